"""What the routes work with, handed to them by type: the database, the live hub, a run's id."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from gradsight import wire
from gradsight_server.live import LiveHub
from gradsight_server.store.database import Database
from gradsight_server.store.runs import normal_run_id

# Coroutines all, though nothing is awaited: FastAPI would run plain functions in a thread, for every request.


async def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


async def _live(request: Request) -> LiveHub:
    hub: LiveHub = request.app.state.live
    return hub


async def _run_id(run_id: Annotated[str, Path(description="32 hex digits; hyphens are accepted.")]) -> str:
    return normal_run_id(run_id)


DatabaseHere = Annotated[Database, Depends(_database)]
LiveHere = Annotated[LiveHub, Depends(_live)]
RunId = Annotated[str, Depends(_run_id)]

Step = Annotated[int, Path(ge=0, le=wire.MAX_STEP)]
Bound = Annotated[int | None, Query(ge=0, le=wire.MAX_STEP)]
StreamName = Annotated[str, Query(min_length=1, max_length=256)]
AttemptNumber = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="One launch; all, the newest in front, where left out.")
]
