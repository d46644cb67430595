"""The server about itself: how it is, how much it holds, and what projects and tags there are to choose from."""

import time

from fastapi import APIRouter, Request

from gradsight_server.api.answers import Json
from gradsight_server.api.services import DatabaseHere, LiveHere
from gradsight_server.schemas import ProjectList, ServerAnswer, TagList
from gradsight_server.store import inventory

router = APIRouter(tags=["server"])


@router.get("/server", responses={200: {"model": ServerAnswer}})
def get_server(request: Request, database: DatabaseHere, live: LiveHere) -> Json:
    """How this server is, and what its database takes."""
    settings = request.app.state.settings
    with database.reading() as conn:
        totals = inventory.totals(conn)
        engine = conn.dialect.name
    return Json(
        {
            "version": request.app.version,
            "started_at_s": request.app.state.started_at_s,
            "now_s": time.time(),
            "needs_token": request.app.state.token is not None,
            "is_leader": request.app.state.background.is_leader,
            "num_viewers": live.num_subscribers,
            "num_waiting": database.queue_depth,
            "database": {"engine": engine, "url": settings.shown_db, "num_bytes": database.num_bytes(), **totals},
            "retention": {"keep_raw_days": settings.keep_raw_days, "keep_raw_steps": settings.keep_raw_steps},
        }
    )


@router.get("/projects", responses={200: {"model": ProjectList}})
def list_projects(database: DatabaseHere) -> Json:
    """Every project, the one with the most runs first."""
    with database.reading() as conn:
        return Json({"items": inventory.projects(conn)})


@router.get("/tags", responses={200: {"model": TagList}})
def list_tags(database: DatabaseHere) -> Json:
    """Every tag, the commonest first."""
    with database.reading() as conn:
        return Json({"items": inventory.tags(conn)})
