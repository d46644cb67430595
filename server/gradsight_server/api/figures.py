"""Figures over REST: what the store read, drawn by `gradsight_server.figures`, kept while the run does not change."""

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from fastapi import APIRouter, Query, Request

from gradsight import wire
from gradsight_server import figures
from gradsight_server.api.answers import Json
from gradsight_server.api.figure_cache import FigureCache
from gradsight_server.api.services import AttemptNumber, Bound, DatabaseHere, LiveHere, RunId, StreamName
from gradsight_server.schemas import FigureAnswer
from gradsight_server.store import attempts, views
from gradsight_server.store.database import Database
from gradsight_server.store.layers import layer_matrix
from gradsight_server.store.series import series

if TYPE_CHECKING:
    from sqlalchemy import Connection

router = APIRouter(prefix="/runs/{run_id}", tags=["figures"])

MAX_HEAT_MAP_POINTS = 500


@router.get("/figures/{name}", responses={200: {"model": FigureAnswer}})
def get_figure(
    request: Request,
    database: DatabaseHere,
    live: LiveHere,
    run_id: RunId,
    name: Literal["norm", "clip_coef", "loss", "loss_scale", "layers"],
    stream: StreamName = "main",
    attempt: AttemptNumber = None,
    first_step: Bound = None,
    last_step: Bound = None,
    points: Annotated[int, Query(ge=1, le=views.MAX_POINTS)] = 1000,
) -> Json:
    """A Plotly figure without colours and texts; ticks after its `position` carry what it lacks."""
    cache: FigureCache = request.app.state.figure_cache
    asked = Asked(run_id, name, stream, attempt, first_step, last_step, points)
    position, version = live.version(run_id)
    return Json(cache.get(asked, position=position, version=version, draw=lambda: _draw(database, asked, position)))


class Asked(NamedTuple):
    """What a figure is kept under."""

    run_id: str
    name: str
    stream: str
    attempt: int | None
    first_step: int | None
    last_step: int | None
    points: int


def _draw(database: Database, asked: Asked, position: int) -> figures.Figure:
    with database.reading() as conn:
        first, last = asked.first_step, asked.last_step
        if asked.name != "layers":
            found = series(
                conn,
                asked.run_id,
                columns=figures.COLUMNS[asked.name],
                stream=asked.stream,
                attempt=asked.attempt,
                first_step=first,
                last_step=last,
                points=asked.points,
            )
            return figures.series_figure(asked.name, found, position=position, first_step=first, last_step=last)
        matrix = layer_matrix(
            conn,
            asked.run_id,
            stream=asked.stream,
            attempt=asked.attempt,
            first_step=first,
            last_step=last,
            points=min(asked.points, MAX_HEAT_MAP_POINTS),
        )
        first, last = _extent(conn, asked)
    return figures.layers_figure(matrix, position=position, first_step=first, last_step=last)


def _extent(conn: "Connection", asked: Asked) -> tuple[int | None, int | None]:
    """The steps the other charts show: layer norms may be recorded more seldom."""
    low, high = asked.first_step or 0, wire.MAX_STEP if asked.last_step is None else asked.last_step
    stream_key = attempts.stream_key_of(conn, asked.run_id, asked.stream)
    if stream_key is None:
        return asked.first_step, asked.last_step
    shown = views.segments(conn, asked.run_id, stream_key, attempt=asked.attempt, low=low, high=high)
    first = shown[0].first_step if shown else None
    last = shown[-1].last_step if shown else None
    return (
        first if asked.first_step is None else asked.first_step,
        last if asked.last_step is None else asked.last_step,
    )
