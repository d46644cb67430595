"""How a range's norms are spread, and what another threshold would have clipped of them."""

from typing import Annotated

from fastapi import APIRouter, Query

from gradsight_server.api.answers import Json
from gradsight_server.api.services import AttemptNumber, Bound, DatabaseHere, RunId, StreamName
from gradsight_server.schemas import DistributionAnswer
from gradsight_server.store.distribution import norm_distribution

router = APIRouter(prefix="/runs/{run_id}", tags=["series"])

QUANTILES = (1, 5, 10, 25, 50, 75, 80, 90, 95, 99)


@router.get("/distribution", responses={200: {"model": DistributionAnswer}})
def get_distribution(
    database: DatabaseHere,
    run_id: RunId,
    stream: StreamName = "main",
    attempt: AttemptNumber = None,
    first_step: Bound = None,
    last_step: Bound = None,
    max_norm: Annotated[
        float | None, Query(ge=0, allow_inf_nan=False, description="A threshold to count the norms above.")
    ] = None,
) -> Json:
    """Quantiles of the norm before clipping, within 2 %, and the part above `max_norm`, between bounds."""
    with database.reading() as conn:
        found = norm_distribution(
            conn, run_id, stream=stream, attempt=attempt, first_step=first_step, last_step=last_step
        )
    above = None if max_norm is None else found.clip_fraction(max_norm)
    return Json(
        {
            "num_steps": found.num_steps,
            "num_finite": found.num_finite,
            "num_nonfinite": found.num_nonfinite,
            "num_skipped": found.num_skipped,
            "num_clipped": found.num_clipped,
            "min": found.min,
            "max": found.max,
            "quantiles": {f"p{percent}": found.quantile(percent / 100) for percent in QUANTILES},
            "clip_fraction": None if above is None else {"max_norm": max_norm, "low": above[0], "high": above[1]},
        }
    )
