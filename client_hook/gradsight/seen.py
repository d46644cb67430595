"""A step as the monitor saw it, turned into the wire's columns off the training thread."""

import math
from collections.abc import Sequence
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

    def resolve(self) -> StepRow:
        """The finished row. Runs in the exporter's thread, and may wait for the device there."""
        num_layers = len(self.layer_set)
        present = range(num_layers) if self.present is None else self.present
        columns: dict[str, Any] = {
            **dict.fromkeys(_ALWAYS),
            **self.reading.values(),
            **self.times,
            "num_layers_without_grad": num_layers - len(present),
        }
        norms = self.reading.layer_norms() if self.with_layers else []
        columns |= self._nonfinite(norms, present)
        row: list[float] | None = None
        if self.with_layers:
            row = [NO_GRADIENT] * num_layers
            for index, norm in zip(present, norms, strict=True):
                row[index] = norm
        return StepRow(self.step, self.wall_time_s, columns, self.layer_set if row else None, row)

    def _nonfinite(self, norms: Sequence[float], present: Sequence[int]) -> dict[str, Any]:
        """How many layers had NaN or Inf, which, and the first of them in backward order."""
        bad = [(index, norm) for index, norm in zip(present, norms, strict=False) if not math.isfinite(norm)]
        if not bad:
            return {"num_nonfinite_layers": 0 if self.with_layers else None}
        kinds = {"nan" if math.isnan(norm) else "inf" for _, norm in bad}
        indices = [index for index, _ in bad]
        first = self.backward_order.first(indices) if self.backward_order else max(indices)
        name = self.layer_set.names[first]
        return {
            "num_nonfinite_layers": len(bad),
            "first_nonfinite_layer": name if isinstance(name, str) else name[0],
            "nonfinite_kind": "nan+inf" if len(kinds) == 2 else kinds.pop(),
        }


_ALWAYS = (
    "loss",
    "lr",
    "grad_norm_before_clip",
    "max_norm",
    "clip_coef",
    "loss_scale",
    "loss_scale_after",
    "skipped",
    "skip_reason",
    "num_nonfinite_layers",
    "first_nonfinite_layer",
    "nonfinite_kind",
)
"""Columns of every row, so that rows share one batch whatever a step did."""
