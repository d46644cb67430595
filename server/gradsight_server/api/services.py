"""What the routes work with, handed to them by type: the database, the live hub, a run's id."""

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from gradsight import wire
from gradsight_server.errors import InvalidRequestError
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


async def no_nul(request: Request) -> None:
    """Refuses a NUL in any text of the address: PostgreSQL has none in a text, and SQLite shall answer the same.

    Raises:
        InvalidRequestError
    """
    if "\0" not in request.scope["path"] and b"%00" not in request.scope["query_string"]:
        return
    for name, value in (*request.path_params.items(), *request.query_params.multi_items()):
        if "\0" in str(value) and name != "run_id":  # which has a refusal of its own
            raise InvalidRequestError(f"{name} must be a text without NUL, got {value!r}.")


DatabaseHere = Annotated[Database, Depends(_database)]
LiveHere = Annotated[LiveHub, Depends(_live)]
RunId = Annotated[str, Depends(_run_id)]

Step = Annotated[int, Path(ge=0, le=wire.MAX_STEP)]
Bound = Annotated[int | None, Query(ge=0, le=wire.MAX_STEP)]
StreamName = Annotated[str, Query(min_length=1, max_length=256)]
AttemptNumber = Annotated[
    int | None, Query(ge=1, le=2**31 - 1, description="One launch; all, the newest in front, where left out.")
]
