"""The steps that rules look at: columns as the wire has them, rank 0 only, and what was not finite in them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import lt
from typing import Any

Numbers = Sequence[float | None]


@dataclass(slots=True, kw_only=True)
class Columns:
    """Some steps by rising number; a column that was not sent is None, as is a value not recorded or not finite."""

    step: Sequence[int]
    norm: Numbers | None = None
    loss: Numbers | None = None
    scale: Numbers | None = None
    """The loss scale that the step's backward used."""
    scale_after: Numbers | None = None
    max_norm: Numbers | None = None
    clip_coef: Numbers | None = None
    skipped: Sequence[bool | None] | None = None
    skip_reason: Sequence[str | None] | None = None
    num_nonfinite_layers: Sequence[int | None] | None = None
    first_layer: Sequence[str | None] | None = None
    """In which the first non-finite value was."""
    time_s: Numbers | None = None
    norm_is_odd: Sequence[bool] | None = None
    """Where the norm was NaN or infinite; None for nowhere."""
    loss_is_odd: Sequence[bool] | None = None

    def __len__(self) -> int:
        return len(self.step)

    def after(self, last_step: int) -> "Columns":
        """Those behind this step, by rising number: steps that came again, or late, are not judged twice."""
        step = self.step
        if not step or (step[0] > last_step and all(map(lt, step, step[1:]))):
            return self
        order = sorted({number: i for i, number in enumerate(step) if number > last_step}.items())
        return self.at([i for _, i in order])

    def at(self, places: Sequence[int]) -> "Columns":
        """The steps at these places, in this order."""
        return Columns(**{name: [column[i] for i in places] for name, column in self._columns()})

    def between(self, first: int, last: int) -> "Columns":
        """A part, `last` not included."""
        if first == 0 and last >= len(self.step):
            return self
        return Columns(**{name: column[first:last] for name, column in self._columns()})

    def _columns(self) -> list[tuple[str, Any]]:
        return [(name, column) for name in _NAMES if (column := getattr(self, name)) is not None]


_NAMES = tuple(field.name for field in fields(Columns))


def known(numbers: Numbers) -> Sequence[float]:
    """Those that were recorded and finite."""
    return numbers if None not in numbers else [number for number in numbers if number is not None]  # type: ignore[return-value]
