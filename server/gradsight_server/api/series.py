"""A stream's numbers over REST: series, the layer matrix, one step; and a run's events."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray

from gradsight_server.api.answers import Json
from gradsight_server.api.services import AttemptNumber, Bound, DatabaseHere, RunId, Step, StreamName
from gradsight_server.schemas import EventPage, LayersAnswer, SeriesAnswer, StepAnswer
from gradsight_server.store import events as events_store
from gradsight_server.store.layers import layer_matrix
from gradsight_server.store.models import NUMERIC_COLUMNS
from gradsight_server.store.one_step import one_step
from gradsight_server.store.series import Series, series
from gradsight_server.store.views import MAX_POINTS

router = APIRouter(prefix="/runs/{run_id}", tags=["series"])

MAX_LAYER_POINTS = 2_000
Columns = Annotated[
    str, Query(max_length=1024, description=f"Separated by commas, among {', '.join(NUMERIC_COLUMNS)}.")
]
Points = Annotated[int, Query(ge=1, le=MAX_POINTS, description="At most so many; fewer steps come as they are.")]


@router.get("/series", responses={200: {"model": SeriesAnswer}})
def get_series(
    database: DatabaseHere,
    run_id: RunId,
    columns: Columns = "grad_norm_before_clip",
    stream: StreamName = "main",
    attempt: AttemptNumber = None,
    first_step: Bound = None,
    last_step: Bound = None,
    points: Points = 1000,
) -> Json:
    """Columns of a stream: exact steps where they fit, else buckets with smallest, largest and mean value."""
    with database.reading() as conn:
        found = series(
            conn,
            run_id,
            columns=named(columns),
            stream=stream,
            attempt=attempt,
            first_step=first_step,
            last_step=last_step,
            points=points,
        )
    return Json(series_answer(found))


def named(text: str) -> list[str]:
    """The names in a list separated by commas, each once."""
    return list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))


def series_answer(found: Series) -> dict[str, Any]:
    """A series as REST gives it."""
    return {
        "stream": found.stream,
        "attempt": found.attempt,
        "bucket_steps": found.bucket_steps,
        "step": found.step.tolist(),
        "last_step": found.last_step.tolist(),
        "columns": {
            name: {
                "min": column.min.tolist(),
                "max": column.max.tolist(),
                "mean": column.mean.tolist(),
                "num_nonfinite": column.num_nonfinite.tolist(),
            }
            for name, column in found.columns.items()
        },
        "num_skipped": found.num_skipped.tolist(),
        "num_clipped": found.num_clipped.tolist(),
    }


@router.get("/layers", responses={200: {"model": LayersAnswer}})
def get_layers(
    database: DatabaseHere,
    run_id: RunId,
    stream: StreamName = "main",
    attempt: AttemptNumber = None,
    first_step: Bound = None,
    last_step: Bound = None,
    points: Annotated[int, Query(ge=1, le=MAX_LAYER_POINTS)] = 500,
) -> Json:
    """The layers' norms, a list for each layer with the largest finite norm of each bucket."""
    with database.reading() as conn:
        found = layer_matrix(
            conn, run_id, stream=stream, attempt=attempt, first_step=first_step, last_step=last_step, points=points
        )
    return Json(
        {
            "stream": found.stream,
            "attempt": found.attempt,
            "bucket_steps": found.bucket_steps,
            "step": found.step.tolist(),
            "last_step": found.last_step.tolist(),
            "layers": found.layers,
            "max": _rows(found.max),
            "num_nonfinite": _rows(found.num_nonfinite),
            "num_without_grad": _rows(found.num_without_grad),
        }
    )


@router.get("/steps/{step}", responses={200: {"model": StepAnswer}})
def get_step(
    database: DatabaseHere, run_id: RunId, step: Step, stream: StreamName = "main", attempt: AttemptNumber = None
) -> Json:
    """One step with every column and every layer; what was not finite is named."""
    with database.reading() as conn:
        return Json(one_step(conn, run_id, step, stream=stream, attempt=attempt))


@router.get("/events", responses={200: {"model": EventPage}})
def get_events(
    database: DatabaseHere,
    run_id: RunId,
    kind: Annotated[str | None, Query(min_length=1, max_length=64, description="Only this kind's.")] = None,
    first_step: Bound = None,
    last_step: Bound = None,
    limit: Annotated[int, Query(ge=1, le=events_store.MAX_LIMIT)] = 100,
    cursor: Annotated[str | None, Query(max_length=1024)] = None,
) -> Json:
    """What happened in the run, newest first. Between two steps only events that say their step are found."""
    with database.reading() as conn:
        found = events_store.events(
            conn, run_id, kind=kind, first_step=first_step, last_step=last_step, limit=limit, cursor=cursor
        )
    return Json(found)


def _rows(matrix: NDArray[Any]) -> list[list[float | int]]:
    return [row.tolist() for row in np.atleast_2d(matrix)] if matrix.size else [[] for _ in range(len(matrix))]
