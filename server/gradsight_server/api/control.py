"""Control over REST: ask a live run for another threshold, see what became of it. Nothing else can be changed."""

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request

from gradsight_server.alert_schemas import ControlAnswer, ControlPut
from gradsight_server.api.alerts import who
from gradsight_server.api.answers import Json
from gradsight_server.api.body import read_record
from gradsight_server.api.openapi import body_of
from gradsight_server.api.services import DatabaseHere, RunId
from gradsight_server.schemas import ErrorAnswer
from gradsight_server.store import control
from gradsight_server.store.database import Database

router = APIRouter(prefix="/runs/{run_id}/control", tags=["control"])


@router.get("", responses={200: {"model": ControlAnswer}})
def get_control(database: DatabaseHere, run_id: RunId) -> Json:
    """What was asked of the run and what became of it, and which thresholds can be changed."""
    return Json(_state(database, run_id))


@router.put(
    "",
    responses={200: {"model": ControlAnswer}, 409: {"model": ErrorAnswer, "description": "The run cannot: says why."}},
    openapi_extra=body_of(ControlPut, examples={"a fixed threshold": {"value": {"max_norm": 2.0}}}),
)
async def put_control(request: Request, database: DatabaseHere, run_id: RunId) -> Json:
    """Asks for another threshold: applied at the start of one of the next steps. A newer wish takes its place."""
    given, _ = await read_record(request, ControlPut)
    now_s = time.time()
    await asyncio.wrap_future(
        database.write(
            lambda conn: control.ask(
                conn,
                run_id,
                max_norm=float(given.max_norm),
                stream=given.stream,
                pattern=given.pattern,
                by=given.by or who(request),
                now_s=now_s,
            )
        )
    )
    return Json(await asyncio.to_thread(_state, database, run_id))


def _state(database: Database, run_id: str) -> dict[str, Any]:
    with database.reading() as conn:
        return control.state(conn, run_id, now_s=time.time())
