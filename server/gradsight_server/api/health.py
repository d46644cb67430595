"""For whoever keeps the server running: is it up, does its database answer, what does it do."""

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from gradsight_server.api.answers import Json
from gradsight_server.api.services import DatabaseHere
from gradsight_server.store import ticks

router = APIRouter(tags=["health"])


@router.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
async def healthz() -> Response:
    """The process is up."""
    return Json({"status": "ok"})


@router.api_route("/readyz", methods=["GET", "HEAD"], include_in_schema=False)
def readyz(database: DatabaseHere) -> Response:
    """The database answers, and has room for more."""
    with database.reading() as conn:
        ticks.latest_position(conn)
    database.check_room()
    return Json({"status": "ok"})


@router.get("/metrics", include_in_schema=False)
def metrics(request: Request) -> Response:
    return Response(request.app.state.meters.text(), media_type=CONTENT_TYPE_LATEST)
