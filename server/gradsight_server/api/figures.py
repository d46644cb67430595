"""Figures over REST: what the store read, drawn by `gradsight_server.figures`, kept while the run does not change."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Query, Request

from gradsight import wire
from gradsight_server import figures
from gradsight_server.api.answers import Json
from gradsight_server.api.figure_cache import FigureCache
from gradsight_server.api.services import AttemptNumber, Bound, DatabaseHere, LiveHere, RunId, StreamName
from gradsight_server.diagnosis import Column, diagnose
from gradsight_server.errors import InvalidRequestError
from gradsight_server.schemas import FigureAnswer
from gradsight_server.store import attempts, views
from gradsight_server.store.database import Database
from gradsight_server.store.evidence import evidence
from gradsight_server.store.layers import layer_matrix
from gradsight_server.store.metrics import metric_curves
from gradsight_server.store.norms import norm_histogram
from gradsight_server.store.series import series

if TYPE_CHECKING:
    from sqlalchemy import Connection

router = APIRouter(prefix="/runs/{run_id}", tags=["figures"])

MAX_HEAT_MAP_POINTS = 500
MAX_METRIC_POINTS = 500
MAX_GHOSTS = 4
"""Older attempts that a chart shows, the newest of them."""
MAX_GHOST_POINTS = 500

Name = Literal[
    "norm",
    "histogram",
    "clip_coef",
    "clip_fraction",
    "loss",
    "loss_scale",
    "update_ratio",
    "metrics",
    "layers",
    "layer",
]


@router.get("/figures/{name}", responses={200: {"model": FigureAnswer}})
def get_figure(
    request: Request,
    database: DatabaseHere,
    live: LiveHere,
    run_id: RunId,
    name: Name,
    stream: StreamName = "main",
    attempt: AttemptNumber = None,
    first_step: Bound = None,
    last_step: Bound = None,
    points: Annotated[int, Query(ge=1, le=views.MAX_POINTS)] = 1000,
    layer: Annotated[str | None, Query(max_length=1024, description="For `layer`: which one, by its name.")] = None,
) -> Json:
    """A Plotly figure without colours and texts; ticks after its `position` carry what it lacks."""
    if (layer is None) == (name == "layer"):
        raise InvalidRequestError(f"layer must name a layer for the figure 'layer', and only there, got {layer!r}.")
    cache: FigureCache = request.app.state.figure_cache
    asked = Asked(run_id, name, stream, attempt, first_step, last_step, points, layer)
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
    layer: str | None

    @property
    def range(self) -> dict[str, Any]:
        """What every reader of the store takes."""
        names = ("stream", "attempt", "first_step", "last_step")
        return {name: getattr(self, name) for name in names}

    @property
    def range_only(self) -> dict[str, int | None]:
        """The steps alone."""
        return {"first_step": self.first_step, "last_step": self.last_step}


def _draw(database: Database, asked: Asked, position: int) -> figures.Figure:
    with database.reading() as conn:
        if asked.name == "histogram":
            return _draw_histogram(conn, asked, position)
        if asked.name in ("layers", "layer"):
            return _draw_layers(conn, asked, position)
        if asked.name == "metrics":
            return _draw_metrics(conn, asked, position)
        columns = figures.COLUMNS[asked.name]
        found = series(conn, asked.run_id, columns=columns, points=asked.points, **asked.range)
        launches = _launches(conn, asked) if asked.name in figures.GHOST_OF else []
        ghosts = _ghosts(conn, asked, launches)
    bounds = {"first_step": asked.first_step, "last_step": asked.last_step}
    figure = figures.series_figure(asked.name, found, position=position, **bounds)
    shown = [launch._asdict() for launch in launches if launch.is_shown]
    return figure | {"data": [*ghosts, *figure["data"]], "launches": shown}


def _draw_metrics(conn: "Connection", asked: Asked, position: int) -> figures.Figure:
    points = min(asked.points, MAX_METRIC_POINTS)
    curves = metric_curves(conn, asked.run_id, points=points, **asked.range)
    first, last = _extent(conn, asked)
    return figures.metrics_figure(
        curves, stream=asked.stream, attempt=asked.attempt, position=position, first_step=first, last_step=last
    )


class Launch(NamedTuple):
    """The steps of an attempt that are shown, or those that a newer one has taken the place of."""

    attempt: int
    first_step: int
    last_step: int
    is_shown: bool


def _launches(conn: "Connection", asked: Asked) -> list[Launch]:
    """What is shown between the steps asked for, by step; and behind it what older attempts had there."""
    shown = views.show(conn, asked.run_id, asked.stream, **(asked.range_only | {"attempt": asked.attempt}))
    found = [Launch(part.number, part.first_step, part.last_step, True) for part in shown]
    if asked.attempt is not None:
        return found
    ends = {launch.attempt: launch.last_step for launch in found}
    newest = max(ends, default=0)
    for number in range(newest - 1, max(0, newest - 1 - MAX_GHOSTS), -1):
        for whole in views.show(conn, asked.run_id, asked.stream, attempt=number, **asked.range_only):
            first = max(whole.first_step, ends.get(number, -1) + 1)
            if first <= whole.last_step:
                found.append(Launch(number, first, whole.last_step, False))
    return found


def _ghosts(conn: "Connection", asked: Asked, launches: list[Launch]) -> list[figures.Trace]:
    ghosts = []
    for launch in launches:
        if launch.is_shown:
            continue
        bounds = {"attempt": launch.attempt, "first_step": launch.first_step, "last_step": launch.last_step}
        columns, points = [figures.GHOST_OF[asked.name]], min(asked.points, MAX_GHOST_POINTS)
        found = series(conn, asked.run_id, columns=columns, points=points, stream=asked.stream, **bounds)
        ghosts.append(figures.ghost(asked.name, found, launch.attempt))
    return ghosts


def _draw_layers(conn: "Connection", asked: Asked, position: int) -> figures.Figure:
    points = min(asked.points, MAX_HEAT_MAP_POINTS)
    matrix = layer_matrix(conn, asked.run_id, points=points, **asked.range)
    first, last = _extent(conn, asked)
    if asked.layer is None:
        return figures.layers_figure(matrix, position=position, first_step=first, last_step=last)
    place = figures.find_layer(matrix.layers, asked.layer)
    if place is None:
        raise InvalidRequestError(f"layer must be one of the {len(matrix.layers)} recorded here, got {asked.layer!r}.")
    return figures.layer_figure(matrix, place, position=position, first_step=first, last_step=last)


def _draw_histogram(conn: "Connection", asked: Asked, position: int) -> figures.Figure:
    """All norms of the range, with what the diagnosis says of it."""
    found = evidence(conn, asked.run_id, **asked.range)
    recommended = diagnose(found.steps, found.context, found.facts).clipping.recommended_max_norm
    first, last = _extent(conn, asked)
    return figures.histogram_figure(
        norm_histogram(conn, asked.run_id, **asked.range),
        max_norm=_newest_threshold(found.steps.max_norm),
        recommended=None if recommended is None else (recommended.low, recommended.high),
        stream=asked.stream,
        attempt=asked.attempt,
        position=position,
        first_step=first,
        last_step=last,
    )


def _newest_threshold(max_norm: Column | None) -> float | None:
    if max_norm is None:
        return None
    rows = np.flatnonzero(max_norm.finite & (max_norm.values > 0))
    return float(max_norm.values[rows[-1]]) if len(rows) else None


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
