"""A step as the monitor saw it, turned into the wire's columns off the training thread."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from gradsight.layers import BackwardOrder
from gradsight.reading import Reading
from gradsight.rows import LayerSet, StepRow
from gradsight.wire import NO_GRADIENT


class SeenStep(NamedTuple):
    """What the training thread hands over: nothing here has waited for a device."""

    step: int
    wall_time_s: float
    reading: Reading
    times: dict[str, float | None]
    layer_set: LayerSet
    present: list[int] | None  # the layers that have a gradient; None: all
    backward_order: BackwardOrder | None
    with_layers: bool
    tell_underflow: Callable[[int, str, float], None]

    def resolve(self) -> StepRow:
        """The finished row. Runs in the exporter's thread, and may wait for the device there."""
        num_layers = len(self.layer_set)
        present = range(num_layers) if self.present is None else self.present
        norms = self.reading.layer_norms()
        columns: dict[str, Any] = {
            **dict.fromkeys(_ALWAYS),
            **self.reading.values(),
            **self.times,
            "num_layers_without_grad": num_layers - len(present),
            **self._nonfinite(norms, present),
        }
        lost = self.reading.underflow()
        columns["underflow_fraction"] = max(lost, default=None)
        if lost:
            worst = max(range(len(lost)), key=lost.__getitem__)
            self.tell_underflow(self.step, self.layer_set.name(present[worst]), lost[worst])
        if not self.with_layers:
            return StepRow(self.step, self.wall_time_s, columns)
        row = [NO_GRADIENT] * num_layers
        for index, norm in zip(present, norms, strict=True):
            row[index] = norm
        return StepRow(self.step, self.wall_time_s, columns, self.layer_set, row)

    def _nonfinite(self, norms: Sequence[float], present: Sequence[int]) -> dict[str, Any]:
        """How many layers had NaN or Inf, which, and the first of them in backward order."""
        bad = [(index, norm) for index, norm in zip(present, norms, strict=True) if not math.isfinite(norm)]
        if not bad:
            return {"num_nonfinite_layers": 0}
        kinds = {"nan" if math.isnan(norm) else "inf" for _, norm in bad}
        indices = [index for index, _ in bad]
        first = self.backward_order.first(indices) if self.backward_order else max(indices)
        return {
            "num_nonfinite_layers": len(bad),
            "first_nonfinite_layer": self.layer_set.name(first),
            "nonfinite_kind": "nan+inf" if len(kinds) == 2 else kinds.pop(),
        }


class SeenGroup(NamedTuple):
    """One group of a step, for the group's own stream."""

    step: int
    wall_time_s: float
    reading: Reading
    pattern: str

    def resolve(self) -> StepRow:
        return StepRow(self.step, self.wall_time_s, self.reading.group_values()[self.pattern])


_ALWAYS = (
    "loss",
    "lr",
    "grad_norm_before_clip",
    "max_norm",
    "clip_coef",
    "clipped_layer_fraction",
    "loss_scale",
    "loss_scale_after",
    "skipped",
    "skip_reason",
    "num_nonfinite_layers",
    "first_nonfinite_layer",
    "nonfinite_kind",
    "headroom_log2",
    "update_ratio",
)
"""Columns of every row, so that rows share one batch whatever a step did."""
