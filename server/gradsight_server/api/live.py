"""The live stream: one connection per browser, by server-sent events."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse

from gradsight import wire
from gradsight_server.api.services import LiveHere
from gradsight_server.errors import InvalidRequestError
from gradsight_server.live import LiveHub
from gradsight_server.store.runs import normal_run_id

router = APIRouter(tags=["live"])

PING_S = 15.0
MAX_RUNS = 200
Position = Annotated[int | None, Query(ge=0, le=wire.MAX_STEP)]
LastEventId = Annotated[int | None, Header(ge=0, le=wire.MAX_STEP)]


# Its class is not declared as the route's response_class: FastAPI would then encode each event once per reader.
@router.get("/live", responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}})
async def get_live(
    live: LiveHere,
    runs: Annotated[str, Query(max_length=10_000, description="Runs to send ticks of, separated by commas.")] = "",
    after: Position = None,
    last_event_id: LastEventId = None,
) -> EventSourceResponse:
    """Events: `hello`, then `tick` (new steps of the runs named), `run`, `deleted` and `alert` (any run), and `stale`.

    An `alert` is as in lists, with the `change`: opened, reminded, repeated, acknowledged or resolved. The first two
    are worth a notification, as are the messages that the server sends.

    The id of an event is a position: named in `after`, or in Last-Event-ID, the stream goes on from there. `stale`
    says that this reader missed something ticks cannot bring: read the run's figures afresh.
    """
    names = [name.strip() for name in runs.split(",") if name.strip()]
    if len(names) > MAX_RUNS:
        raise InvalidRequestError(f"runs must be at most {MAX_RUNS} run ids, got {len(names)}.")
    watched = frozenset(normal_run_id(name) for name in names)
    position = after if last_event_id is None else last_event_id
    # X-Accel-Buffering: nginx would hold the events back.
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventSourceResponse(_frames(live, watched, position), headers=headers)


async def _frames(live: LiveHub, runs: frozenset[str], after: int | None) -> AsyncIterator[bytes]:
    async with live.subscribe(runs, after) as subscriber:
        while (chunk := await subscriber.next(PING_S)) != b"":
            yield KEEPALIVE_COMMENT if chunk is None else chunk
