"""What the reader of a format gives, item by item, in the order of the log. A format says what stands there; what it
means for a run (attempts, ranks, steps without a number, thresholds) is worked out from the items in one place."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Stage = Literal["before_clip", "after_clip", "unknown"]
Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]

OF_GRADIENTS = frozenset(
    (
        "grad_norm_before_clip",
        "clip_coef",
        "clipped_layer_fraction",
        "loss_scale",
        "loss_scale_after",
        "skipped",
        "num_nonfinite_layers",
        "num_layers_without_grad",
        "headroom_log2",
        "underflow_fraction",
    )
)
"""Without one of these a log has nothing to say of gradients."""


@dataclass(slots=True)
class Point:
    """What one place in a log says of one optimizer step. Nothing is made up: what isn't there is left out."""

    line: int
    """Line number from 1; in files without lines the number of the record."""
    step: float | None
    """As the log counts; None where it does not say: the step after the one before, in this stream and rank."""
    values: dict[str, float] = field(default_factory=dict)
    """By our own column names (`wire.FLOAT_COLUMNS`, `skipped` as 0.0 or 1.0, `num_nonfinite_layers`). NaN and Inf are
    themselves."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Whatever else has a number, by the log's own name: a validation loss say."""
    stream: str = "main"
    rank: int = 0
    epoch: float | None = None
    wall_time_s: float | None = None
    skip_reason: str | None = None
    first_nonfinite_layer: str | None = None
    layer_norms: dict[str, float] = field(default_factory=dict)
    """Norm before clipping by layer, where the log has them."""


@dataclass(slots=True)
class Points:
    """Points of lines one behind the other that are alike, each of their numbers as a column; see `alike.py`."""

    line: Integers
    step: Floats | Integers | None
    values: dict[str, Floats]
    metrics: dict[str, Floats]
    stream: str
    rank: int
    epoch: Floats | None
    wall_time_s: Floats | None

    def __len__(self) -> int:
        return len(self.line)

    def __getitem__(self, part: slice) -> "Points":
        return Points(
            self.line[part],
            _part(self.step, part),
            {name: column[part] for name, column in self.values.items()},
            {name: column[part] for name, column in self.metrics.items()},
            self.stream,
            self.rank,
            _part(self.epoch, part),
            _part(self.wall_time_s, part),
        )

    def each(self) -> Iterator[Point]:
        lines = self.line.tolist()
        steps, epochs, times = (_listed(column, len(lines)) for column in (self.step, self.epoch, self.wall_time_s))
        values = _by_row(self.values, len(lines))
        metrics = _by_row(self.metrics, len(lines))
        for line, step, of_row, aside, epoch, time_s in zip(lines, steps, values, metrics, epochs, times, strict=True):
            yield Point(line, step, of_row, aside, self.stream, self.rank, epoch, time_s)


def _part(column: Any, part: slice) -> Any:
    return None if column is None else column[part]


def _listed(column: Floats | Integers | None, length: int) -> list[Any]:
    return [None] * length if column is None else column.tolist()


def _by_row(columns: dict[str, Floats], length: int) -> Iterator[dict[str, float]]:
    if not columns:
        return ({} for _ in range(length))
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return (dict(zip(columns, row, strict=True)) for row in rows)


@dataclass(slots=True)
class Setting:
    """A line of the log's configuration that matters to a diagnosis.

    Names: `max_norm` (0 or None: clipping is off), `clip_algorithm` ("value": what is called max_norm is of each
    element), `clip_value`, `policy` (its text form), `precision` ("fp32", "bf16", "fp16"), `scaler` (its text form),
    `loss_scale`, `growth_interval`, `optimizer` (its class), `lr`, `total_steps`, `world_size`, `run_name`,
    `accumulation_steps`.
    """

    line: int
    name: str
    value: float | str | None
    source: str
    """What it is called there: `clip_grad`, `gradient_clipping`."""
    stream: str | None = None
    """None: of all streams."""


@dataclass(slots=True)
class Meaning:
    """What the numbers of a column are, where it is not one exact value of one step, unscaled and before clipping."""

    column: str
    source: str
    """The log's own name for it."""
    stage: Stage = "before_clip"
    is_scaled: bool = False
    """Still multiplied by the loss scale."""
    averaged_over_steps: float | None = None
    """A mean over so many steps; NaN where over a window of unknown length. None: one step."""
    is_per_epoch: bool = False
    significant_digits: int | None = None
    """Rounded to so many; None: as exact as printed floats are."""
    remark: str = ""
    """A plain English sentence for what the fields above cannot say."""


@dataclass(slots=True)
class Happened:
    """Something the log tells in words that a person will want to see on the chart."""

    line: int
    kind: str
    message: str
    step: float | None = None
    stream: str = "main"


@dataclass(slots=True)
class Restart:
    """From here on another launch writes: a banner, a configuration again. The steps tell whether it resumes."""

    line: int
    why: str
    is_other_run: bool = False
    """It says so itself: no step can make it the run before, resumed."""


@dataclass(slots=True)
class Unread:
    """A line that should have been a point and could not be read."""

    line: int
    why: str


Item = Point | Points | Setting | Meaning | Happened | Restart | Unread
