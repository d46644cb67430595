"""Megatron-LM and what grew from it: `iteration  10/ 1000 | … | lm loss: 1.2E+01 | … | grad norm: 0.500 | …`.

The norm is that of the line's own step, before clipping; Megatron-LM leaves it out where that step was skipped, while
Megatron-DeepSpeed prints the one before again. The loss is a mean over the applied steps since the line before, and is
left out where it isn't above zero, so also where it is NaN. The scale is the one for the next step.
"""

import math
import re
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from gradsight_server.importers import skips
from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Points, Restart, Setting, Unread
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

NORM, SKIPPED, NAN_LOSSES = "grad norm", "number of skipped iterations", "number of nan iterations"
COLUMNS = {
    NORM: "grad_norm_before_clip",
    "learning rate": "lr",
    "loss scale": "loss_scale",
    "lm loss": "loss",
    "lm-loss": "loss",
    "lm_loss": "loss",
    "loss": "loss",
    SKIPPED: SKIPPED,
}
TOTAL = "iterations"
LARGE_SCALE = 2.0**16
"""With which the first step hardly ever succeeds: a norm of 0.000 there is that of no step."""
METRICS = frozenset({"params norm", "num zeros", NAN_LOSSES})
TIME_MS = "elapsed time per iteration (ms)"
OneOrMany = TypeVar("OneOrMany", Point, Points)
_AS_PRINTED = {f" {name}": column for name, column in COLUMNS.items()} | {f" {TIME_MS}": "step_time_s"}
_OF_NO_USE = frozenset({" consumed samples", " global batch size", ""})
"""Named only so that reading is quick."""

_ITERATION = re.compile(r"iteration\s+(\d{1,15})\s*/\s*(\d{1,15})\s*\|(.*)")
_PRINTED = Printed(
    {
        **NAMES,
        "initial_loss_scale": "initial_loss_scale",
        "loss_scale": "loss_scale",
        "train_iters": "total_steps",
        "world_size": "world_size",
        "optimizer": "optimizer",
        "log_interval": "log_interval",
    }
)


def read(lines: Lines, options: Options) -> Iterator[Item]:
    """Line by line; the first one only once the second, or the configuration, tells how many steps it speaks of."""
    reader = _Reader()
    alike = Alike(lines, _point)
    for at, line in lines:
        point = _point(at, line)
        if point is not None:
            yield from reader.iteration(point)
            yield from reader.alike(alike, line)
        else:
            yield from reader.configuration(at, line)
    yield from reader.first_line()


class _Reader:
    def __init__(self) -> None:
        self._step: int | None = None
        self._scale = 0.0
        self._norm: float | None = None
        """Of the line before."""
        self._interval: int | None = None
        self._first: tuple[Point, int] | None = None
        self._has_skips = self._has_said_total = self._has_said_mean = self._has_said_spread = False

    def iteration(self, point: Point) -> Iterator[Item]:
        step, total = int(point.step or 0), point.metrics.pop(TOTAL)
        values = _as_recorded(point).values
        if not values:
            yield Unread(point.line, "the line ends before any value of the iteration")
            return
        counted = values.pop(SKIPPED, 0.0)
        num_skipped = int(counted) if 0 <= counted <= step else 0
        if not self._has_said_total:
            self._has_said_total = True
            yield Setting(point.line, "total_steps", total, "iteration")
        if self._step is not None and step > self._step:
            distance = step - self._step
            if self._interval is None or distance < self._interval:
                self._interval = distance
        if self._first is not None:
            yield from self.first_line()
        self._mark_stale(values)
        self._step = step
        if self._interval is None:
            self._first = point, num_skipped
        elif num_skipped or (self._has_skips and self._interval > 1):
            yield from self._with_skips(point, num_skipped)
        else:
            values.setdefault("skipped", 0.0)
            if self._interval > 1 and not self._has_said_mean:
                yield self._mean()
            yield point

    def alike(self, alike: Alike, line: str) -> Iterator[Item]:
        if self._interval is None or (self._interval > 1 and not self._has_said_mean):
            return
        for points in alike.after(line):
            if self._goes_on(points):
                assert points.step is not None
                norms, scales = points.values.get("grad_norm_before_clip"), points.values.get("loss_scale")
                self._step = int(points.step[-1])
                self._norm = None if norms is None else float(norms[-1])
                self._scale = 0.0 if scales is None else float(scales[-1])
                points.values.pop(SKIPPED, None)
                points.values["skipped"] = np.zeros(len(points))
                del points.metrics[TOTAL]
                yield _as_recorded(points)
            else:
                for point in points.each():
                    yield from self.iteration(point)

    def _goes_on(self, points: Points) -> bool:
        """Whether no step was skipped, and all are as far apart as before."""
        counted, norms = points.values.get(SKIPPED), points.values.get("grad_norm_before_clip")
        scales = points.values.get("loss_scale")
        is_skipped = counted is not None and counted.any()
        if points.step is None or is_skipped or (self._has_skips and self._interval != 1):
            return False
        if norms is not None and scales is not None:
            is_same = np.diff(norms, prepend=math.nan if self._norm is None else self._norm) == 0
            if (is_same & (np.diff(scales, prepend=self._scale) < 0)).any():
                return False
        is_whole = all(column.all() or not column.any() for column in points.metrics.values())
        return is_whole and bool((np.diff(points.step, prepend=self._step or 0) >= (self._interval or 1)).all())

    def _mark_stale(self, values: dict[str, float]) -> None:
        """A norm printed once more while the scale falls is that of the step before: this one overflowed."""
        norm, scale = values.get("grad_norm_before_clip"), values.get("loss_scale", 0.0)
        if norm is not None and norm == self._norm and scale < self._scale:
            values["skipped"] = 1.0
        is_first = self._step is None and scale >= LARGE_SCALE
        if norm == 0 and (is_first or "skipped" in values):
            del values["grad_norm_before_clip"]
        self._norm, self._scale = norm, scale

    def _with_skips(self, point: Point, num_skipped: int) -> Iterator[Item]:
        """Megatron-LM prints no norm for a skipped step; where all of a window were skipped, this one was."""
        assert point.step is not None
        step, window = int(point.step), self._interval or max(1, num_skipped)
        is_skipped = num_skipped > 0 and ("grad_norm_before_clip" not in point.values or num_skipped >= window)
        point.values.setdefault("skipped", float(is_skipped))
        if window > 1 and not self._has_said_mean:
            yield self._mean()
        if 0 < num_skipped < window and not self._has_said_spread:
            self._has_said_spread = True
            yield skips.meaning(SKIPPED)
        self._has_skips = self._has_skips or num_skipped > 0
        if self._has_skips:
            yield from skips.between(point.line, max(step - window, 0), step, num_skipped, is_last_skipped=is_skipped)
        yield point

    def _mean(self) -> Meaning:
        self._has_said_mean = True
        remark = "Of the applied steps only; left out where it is not above zero, so also where it is NaN."
        return Meaning("loss", "lm loss", averaged_over_steps=self._interval, remark=remark)

    def first_line(self) -> Iterator[Item]:
        if self._first is not None:
            (point, num_skipped), self._first = self._first, None
            yield from self._with_skips(point, num_skipped)

    def configuration(self, at: int, line: str) -> Iterator[Item]:
        if self._step is not None and "...." in line:
            yield from self.first_line()
            self._step = self._interval = None
            yield Restart(at, "another launch prints its arguments")
        for setting in _PRINTED.read(at, line):
            if setting.name == "log_interval":
                if isinstance(setting.value, float) and 1 <= setting.value <= 1e9:
                    self._interval = int(setting.value)
            elif setting.name == "initial_loss_scale":
                yield Setting(at, "scaler", f"dynamic(init_scale={setting.value!r})", setting.source)
            elif setting.name != "loss_scale":
                yield setting
            elif isinstance(setting.value, float) and setting.value > 0:
                yield Setting(at, "scaler", f"static({setting.value!r})", setting.source)


def _point(at: int, line: str) -> Point | None:
    """As it stands there: with SKIPPED and TOTAL, zeros, and a time in milliseconds; see `_as_recorded`."""
    match = _ITERATION.search(line)
    if match is None:
        return None
    point = Point(at, int(match[1]), metrics={TOTAL: float(match[2])})
    for part in match[3].split("|"):
        name, _, printed = part.partition(":")
        column = _AS_PRINTED.get(name)
        if column is not None:
            try:
                point.values[column] = float(printed)
            except ValueError:
                _put_odd(point, name.strip(), printed)
        elif name not in _OF_NO_USE:
            _put_odd(point, name.strip(), printed)
    return point


def _put_odd(point: Point, name: str, printed: str) -> None:
    """What is rarer: a time as `80.1/79.5`, another loss, a fork's spelling."""
    value = number(printed.partition("/")[0])
    if value is None:
        return
    if name == TIME_MS:
        point.values["step_time_s"] = value
    elif name in COLUMNS:
        point.values[COLUMNS[name]] = value
    elif name in METRICS or "loss" in name:
        point.metrics[name] = value


def _as_recorded(point: OneOrMany) -> OneOrMany:
    """A metric of 0 is one that is not counted."""
    if "step_time_s" in point.values:
        point.values["step_time_s"] = point.values["step_time_s"] / 1000
    for name in [name for name, value in point.metrics.items() if not np.any(value)]:
        del point.metrics[name]
    return point


FORMAT = LineFormat(
    name="megatron",
    title="Megatron-LM console",
    source="Megatron-LM 1.1 to core 0.16, megatron/training/training.py: training_log; Megatron-DeepSpeed and GPT-NeoX "
    "2.0, megatron/training.py and megatron/logging.py: training_log",
    pattern=re.compile(r"iteration\s+\d{1,15}\s*/\s*\d{1,15}\s*\|"),
    read=read,
    also=re.compile(r"\.\.\.\. |--clip-grad"),
)
