"""Several runs' series in one answer, for comparison."""

from typing import Annotated

from fastapi import APIRouter, Query

from gradsight_server.api.answers import Json
from gradsight_server.api.series import Columns, named, series_answer
from gradsight_server.api.services import Bound, DatabaseHere, StreamName
from gradsight_server.schemas import ComparedSeries
from gradsight_server.store import compare
from gradsight_server.store.runs import normal_run_id

router = APIRouter(tags=["series"])


@router.get("/series", responses={200: {"model": ComparedSeries}})
def get_compared_series(
    database: DatabaseHere,
    runs: Annotated[
        str, Query(max_length=2_500, description=f"Up to {compare.MAX_RUNS} run ids, separated by commas.")
    ],
    columns: Columns = "grad_norm_before_clip",
    stream: StreamName = "main",
    first_step: Bound = None,
    last_step: Bound = None,
    points: Annotated[int, Query(ge=1, le=compare.MAX_POINTS)] = 500,
) -> Json:
    """The same columns of several runs. All have buckets of the same steps; a run without the stream is empty."""
    with database.reading() as conn:
        found = compare.compare(
            conn,
            [normal_run_id(name) for name in named(runs)],
            columns=named(columns),
            stream=stream,
            first_step=first_step,
            last_step=last_step,
            points=points,
        )
    items = [
        {"run_id": run_id, **series_answer(one.series), "wall_time_s": one.wall_time_s} for run_id, one in found.items()
    ]
    return Json({"items": items})
