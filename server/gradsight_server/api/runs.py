"""Runs over REST: list, look at, put, patch, delete."""

import asyncio
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from gradsight import wire
from gradsight_server.api.answers import Json
from gradsight_server.api.body import read_record
from gradsight_server.api.openapi import body_of
from gradsight_server.api.services import DatabaseHere, LiveHere, RunId
from gradsight_server.judging import VerdictKeeper
from gradsight_server.schemas import RunDetail, RunPage, RunPatch, RunSummary
from gradsight_server.store import deletion, runs
from gradsight_server.store.database import Database
from gradsight_server.store.summaries import run_summary

router = APIRouter(prefix="/runs", tags=["runs"])

DELETION_DEADLINE_S = 5.0
"""So long a run that is created again waits for what is left of one of its id that was deleted."""
Word = Annotated[str | None, Query(max_length=256)]


@router.get("", responses={200: {"model": RunPage}})
def list_runs(
    database: DatabaseHere,
    project: Word = None,
    status: Word = None,
    tag: Word = None,
    q: Annotated[str | None, Query(max_length=256, description="Part of the name, project or id.")] = None,
    sort: Annotated[str, Query(max_length=64)] = "-started_at_s",
    limit: Annotated[int, Query(ge=1, le=runs.MAX_LIMIT)] = 50,
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
) -> Json:
    """Runs in brief, newest start first. Archived ones are listed by `status=archived` only."""
    with database.reading() as conn:
        return Json(
            runs.list_runs(
                conn,
                project=project,
                status=status,
                tag=tag,
                q=q,
                sort=sort,
                limit=limit,
                cursor=cursor,
                now_s=time.time(),
            )
        )


@router.get("/{run_id}", responses={200: {"model": RunDetail}})
def get_run(database: DatabaseHere, live: LiveHere, run_id: RunId) -> Json:
    """Everything about a run but its steps."""
    position, _ = live.version(run_id)  # as figures have it: the database may be a moment ahead of the live stream
    with database.reading() as conn:
        return Json(runs.get_run(conn, run_id, now_s=time.time()) | {"position": position})


@router.put("/{run_id}", responses={200: {"model": RunSummary}}, openapi_extra=body_of(wire.RunRecord, required=False))
async def put_run(request: Request, database: DatabaseHere, run_id: RunId) -> Json:
    """Creates a run, or merges into it: keys that are there overwrite, absent ones stay. The body may be empty."""
    record, _ = await read_record(request, wire.RunRecord, empty=wire.RunRecord())
    await asyncio.to_thread(deletion.finish, database, run_id, deadline_s=DELETION_DEADLINE_S)
    now_s = time.time()
    await asyncio.wrap_future(database.write(lambda conn: runs.put_run(conn, run_id, record, now_s=now_s)))
    verdicts: VerdictKeeper = request.app.state.verdicts
    verdicts.note(run_id)
    return Json(await asyncio.to_thread(_summary, database, run_id))


@router.patch("/{run_id}", responses={200: {"model": RunSummary}}, openapi_extra=body_of(RunPatch))
async def patch_run(request: Request, database: DatabaseHere, run_id: RunId) -> Json:
    """Changes what a person may change: the name, tags, notes, and whether the run is archived."""
    patch, _ = await read_record(request, RunPatch)
    changes: dict[str, Any] = {name: getattr(patch, name) for name in RunPatch.__struct_fields__}
    now_s = time.time()
    await asyncio.wrap_future(database.write(lambda conn: runs.patch_run(conn, run_id, now_s=now_s, **changes)))
    return Json(await asyncio.to_thread(_summary, database, run_id))


@router.delete("/{run_id}", status_code=204)
async def delete_run(database: DatabaseHere, run_id: RunId) -> Response:
    """Deletes a run and everything of it."""
    now_s = time.time()
    await asyncio.wrap_future(database.write(lambda conn: deletion.delete_run(conn, run_id, now_s=now_s)))
    return Response(status_code=204)


def _summary(database: Database, run_id: str) -> dict[str, Any]:
    with database.reading() as conn:
        return run_summary(conn, run_id, now_s=time.time())
