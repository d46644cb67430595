"""A batch's steps as the alert rules look at them: rank 0, and not finite told apart from not sent."""

from typing import Any

from msgspec import UNSET

from gradsight import wire
from gradsight_server.alerts.columns import Columns
from gradsight_server.store.models import nonfinite_shift

FROM: dict[str, str] = {
    "norm": "grad_norm_before_clip",
    "loss": "loss",
    "scale": "loss_scale",
    "scale_after": "loss_scale_after",
    "max_norm": "max_norm",
    "clip_coef": "clip_coef",
    "skipped": "skipped",
    "skip_reason": "skip_reason",
    "num_nonfinite_layers": "num_nonfinite_layers",
    "first_layer": "first_nonfinite_layer",
}
"""What rules look at, and the column it is in."""
_NORM, _LOSS = nonfinite_shift("grad_norm_before_clip"), nonfinite_shift("loss")


def judged_columns(batch: wire.Batch, columns: dict[str, list[Any]], masks: list[int]) -> Columns:
    """
    Args:
        columns: The batch's, None where not finite.
        masks: Each row's `nonfinite`.
    """
    found: dict[str, Any] = {name: columns[source] for name, source in FROM.items() if source in columns}
    if batch.wall_time_s is not UNSET:
        found["time_s"] = batch.wall_time_s
    judged = Columns(step=batch.step, **found, **odd_columns(masks))
    if batch.rank is UNSET or not any(batch.rank):
        return judged
    return judged.at([i for i, rank in enumerate(batch.rank) if rank == 0])


def odd_columns(masks: list[int]) -> dict[str, Any]:
    """Where norm and loss were not finite, from each row's `nonfinite`; None for nowhere."""
    return {"norm_is_odd": _odd(masks, _NORM), "loss_is_odd": _odd(masks, _LOSS)} if any(masks) else {}


def _odd(masks: list[int], shift: int) -> list[bool] | None:
    flags = [mask >> shift & 3 != 0 for mask in masks]
    return flags if any(flags) else None
