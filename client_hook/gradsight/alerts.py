"""What a training hears while it runs: an `Alert`, the server's or one of two rules that need no server."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from gradsight import wire

WINDOW = 20
BURST = 3
WARMUP_SCALE = 1024.0
WARMUP_SKIPS_BELOW = 8
QUIET_STEPS = 200
LOCAL_KINDS = ("dead_run", "nonfinite_burst")
NEUTRAL_REASONS = ("no_gradient", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something a person should know of now."""

    kind: str
    """As the server names its rules: `nonfinite_burst`, `dead_run`, `norm_spike`, …"""
    severity: Literal["info", "warning", "critical"]
    state: Literal["open", "acknowledged", "resolved"]
    title: str
    stream: str | None = None
    """None: of the whole run."""
    first_step: int | None = None
    last_step: int | None = None
    value: float | None = None
    """What was seen, by kind: a number of steps, a norm, a loss scale, a fraction."""
    layer: str | None = None
    """In which the first non-finite value was, where that is known."""
    num_repeats: int = 0
    is_local: bool = False
    """Told by this process itself, without a server."""

    def __str__(self) -> str:
        at = "" if self.first_step is None else f" (since step {self.first_step:,})"
        return f"{self.kind}: {self.title}{at}"

    @classmethod
    def of(cls, notice: wire.AlertNotice) -> "Alert":
        """The server's."""
        fields = {name: getattr(notice, name) for name in wire.AlertNotice.__struct_fields__ if name != "id"}
        return cls(**fields)


@dataclass(slots=True)
class _Stream:
    """What the rules remember of a stream."""

    odd: deque[tuple[int, str | None]] = field(default_factory=deque)  # (row, layer) of the newest WINDOW rows
    num_rows: int = 0
    num_in_a_row: int = 0
    first_step: int = 0
    first_layer: str | None = None
    scale: float | None = None
    is_searching: bool = True
    num_quiet: int = 0
    num_below: int = 0
    open: dict[str, Alert] = field(default_factory=dict)


class LocalRules:
    """A burst of non-finite gradients, and a run of which every step is: told also where no server is.

    As the server has them by default: 3 of 20 steps, 20 in a row. The first skips of a dynamic loss scale, by which it
    finds its place, are none of either.
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}

    def look(self, stream: str, batch: wire.Batch) -> Iterator[Alert]:
        """Alerts that open or are over with these steps."""
        norms = batch.grad_norm_before_clip
        if not isinstance(norms, list) or self._is_group(stream):
            return
        state = self._streams.setdefault(stream, _Stream())
        for i, step in enumerate(batch.step):
            norm = _at(norms, i)
            if norm is None or _at(batch.skip_reason, i) in NEUTRAL_REASONS:
                continue
            is_odd = not math.isfinite(norm)
            if self._is_search(state, is_odd, _at(batch.loss_scale, i), _at(batch.loss_scale_after, i)):
                continue
            layer = _at(batch.first_nonfinite_layer, i)
            yield from self._judge(state, stream, step, is_odd, layer)

    def _is_group(self, stream: str) -> bool:
        """Whether it is one of a policy's groups, which repeat their stream's steps."""
        return any(stream[:end] in self._streams for end, letter in enumerate(stream) if letter == "/")

    def _is_search(self, state: _Stream, is_odd: bool, scale: float | None, after: float | None) -> bool:
        """Whether the step is one of the first skips of a loss scale."""
        if scale is None:
            return False
        grew = after is not None and after > scale
        if state.is_searching and is_odd:
            state.num_quiet = 0
            state.num_below += scale < WARMUP_SCALE
            state.is_searching = state.num_below < WARMUP_SKIPS_BELOW
            return state.is_searching
        state.num_quiet += 1
        state.is_searching = state.is_searching and not grew and state.num_quiet < QUIET_STEPS
        return False

    def _judge(self, state: _Stream, stream: str, step: int, is_odd: bool, layer: str | None) -> Iterator[Alert]:
        state.num_rows += 1
        while state.odd and state.odd[0][0] <= state.num_rows - WINDOW:
            state.odd.popleft()
        if is_odd:
            if not state.odd:
                state.first_step, state.first_layer = step, layer
            state.odd.append((state.num_rows, layer))
            state.num_in_a_row += 1
        else:
            state.num_in_a_row = 0
        yield from self._turn(state, "dead_run", stream, step, state.num_in_a_row >= WINDOW, is_over=not is_odd)
        is_burst = len(state.odd) >= BURST and "dead_run" not in state.open
        yield from self._turn(state, "nonfinite_burst", stream, step, is_burst, is_over=not state.odd)

    def _turn(
        self, state: _Stream, kind: str, stream: str, step: int, holds: bool, *, is_over: bool
    ) -> Iterator[Alert]:
        alert = state.open.get(kind)
        if alert is None and holds:
            num = state.num_in_a_row if kind == "dead_run" else len(state.odd)
            what = f"Every one of the last {num} steps" if kind == "dead_run" else f"{num} of {WINDOW} steps"
            in_layer = f", first in {state.first_layer}" if state.first_layer else ""
            alert = state.open[kind] = Alert(
                kind=kind,
                severity="critical",
                state="open",
                title=f"{what} had non-finite gradients{in_layer}",
                stream=stream,
                first_step=state.first_step,
                last_step=step,
                value=float(num),
                layer=state.first_layer,
                is_local=True,
            )
            yield alert
        elif alert is not None and is_over:
            del state.open[kind]
            yield Alert(
                kind=kind,
                severity=alert.severity,
                state="resolved",
                title=alert.title,
                stream=stream,
                first_step=alert.first_step,
                last_step=step,
                value=alert.value,
                layer=alert.layer,
                is_local=True,
            )


def _at(column: Any, i: int) -> Any:
    return column[i] if isinstance(column, list) else None
