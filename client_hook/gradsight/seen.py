"""A step as the monitor saw it, turned into the wire's columns off the training thread."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from gradsight import door
from gradsight.layers import BackwardOrder
from gradsight.reading import Reading
from gradsight.rows import LayerSet, StepRow
from gradsight.wire import NO_GRADIENT, Event

TELL_UNDERFLOW_FROM = 0.25
"""The share of a layer's gradients lost to fp16 from which on its name is worth an event."""


class UnderflowTold:
    """Names layers that lose most to fp16, each one once. For the exporter's thread."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}

    def event(self, step: int, wall_time_s: float, layer: str, fraction: float) -> Event | None:
        # The same step may be resolved twice, where its batch could not be spooled.
        if fraction < TELL_UNDERFLOW_FROM or self._steps.setdefault(layer, step) != step:
            return None
        message = f"{layer}: {fraction:.0%} of its scaled gradients are below fp16's normal range"
        return Event(kind="underflow", step=step, message=door.text(message, most=4096), wall_time_s=wall_time_s)


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
    underflow_told: UnderflowTold

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
        events = self._underflow(lost, present)
        if not self.with_layers:
            return StepRow(self.step, self.wall_time_s, columns, events=events)
        row = [NO_GRADIENT] * num_layers
        for index, norm in zip(present, norms, strict=True):
            row[index] = norm
        return StepRow(self.step, self.wall_time_s, columns, self.layer_set, row, events)

    def _underflow(self, lost: Sequence[float], present: Sequence[int]) -> list[Event]:
        """The layer that loses most, where that is news."""
        if not lost:
            return []
        worst = max(range(len(lost)), key=lost.__getitem__)
        layer = self.layer_set.name(present[worst])
        event = self.underflow_told.event(self.step, self.wall_time_s, layer, lost[worst])
        return [] if event is None else [event]

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
