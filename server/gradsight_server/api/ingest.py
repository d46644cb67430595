"""Batches in: the one route that training processes call again and again."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, register_url_convertor

from gradsight import wire
from gradsight_server.api.body import read_record
from gradsight_server.api.openapi import answer_of, body_of
from gradsight_server.api.services import no_nul
from gradsight_server.errors import InvalidRequestError, ServerBusyError
from gradsight_server.judging import VerdictKeeper
from gradsight_server.meters import Meters
from gradsight_server.store.database import Database
from gradsight_server.store.ingest import ingest
from gradsight_server.store.runs import normal_run_id

MIN_FLUSH_S, MAX_FLUSH_S = 0.25, 5.0
MAX_QUEUE_DEPTH = 2_000
"""Batches that wait for the writer, each decoded in memory; past that, clients keep them in their spool."""

EXAMPLES = {
    "one column": {"value": {"step": [0, 1], "grad_norm_before_clip": [1.5, "NaN"]}},
    "heartbeat": {"value": {}},
    "layers": {
        "value": {
            "step": [2],
            "grad_norm_before_clip": [0.5],
            "max_norm": [1.0],
            "clip_coef": [1.0],
            "layers": ["embedding.weight", "head.weight"],
            "layer_step": [2],
            "layer_norms": [[0.3, None]],
        }
    },
}


def flush_after_s(queue_depth: int) -> float:
    """How long clients may gather steps before they send: a quarter second at rest, up to five under load."""
    return min(MAX_FLUSH_S, MIN_FLUSH_S * (1 + queue_depth / 8))


class StreamConvertor(PathConvertor):
    """A stream's name with slashes, and with line ends: they are refused by name, not as a path that nobody serves."""

    regex = r"[\s\S]*"


register_url_convertor("stream", StreamConvertor())


class BatchRoute(APIRoute):
    """A documented route without FastAPI's dependencies: to solve them takes longer than to write two steps."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        return _take_in


router = APIRouter(prefix="/runs", tags=["ingest"], route_class=BatchRoute)


async def _take_in(request: Request) -> Response:
    await no_nul(request)
    stream = request.path_params["stream"]
    if not wire.is_stream_name(stream):
        shown = stream if len(stream) <= 80 else stream[:77] + "…"
        raise InvalidRequestError(f"stream must be {wire.STREAM_RULE}, got {shown!r}.")
    return await post_batch(request, request.path_params["run_id"], stream)


@router.post(
    "/{run_id}/streams/{stream:stream}/batches",
    responses={200: answer_of(wire.Answer)},
    openapi_extra=body_of(wire.Batch, examples=EXAMPLES),
)
async def post_batch(
    request: Request,
    run_id: Annotated[str, Path(description="32 hex digits; hyphens are accepted.")],
    stream: Annotated[str, Path(description=f"{wire.STREAM_RULE[0].upper()}{wire.STREAM_RULE[1:]}.")],
) -> Response:
    """Takes in a batch of steps. Only `step` and one column are needed; the same batch again changes nothing."""
    database: Database = request.app.state.database
    run_id = normal_run_id(run_id)
    depth = database.queue_depth
    if depth > MAX_QUEUE_DEPTH:
        raise ServerBusyError(f"{depth} batches wait to be written: send this one again later.")
    batch, num_bytes = await read_record(request, wire.Batch)
    now_s, pause_s = time.time(), flush_after_s(depth)
    answer = await asyncio.wrap_future(
        database.write(lambda conn: ingest(conn, run_id, stream, batch, now_s=now_s, flush_after_s=pause_s))
    )
    verdicts: VerdictKeeper = request.app.state.verdicts
    verdicts.note(run_id)
    meters: Meters = request.app.state.meters
    meters.ingested_steps.inc(answer.accepted_steps)
    meters.sealed_steps.inc(len(batch.step) - answer.accepted_steps)
    meters.ingested_bytes.inc(num_bytes)
    wants_msgpack = wire.CONTENT_TYPE_MSGPACK in request.headers.get("accept", "")
    content_type = wire.CONTENT_TYPE_MSGPACK if wants_msgpack else wire.CONTENT_TYPE_JSON
    return Response(wire.encode(answer, content_type), media_type=content_type)
