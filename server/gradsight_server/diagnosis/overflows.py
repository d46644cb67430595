"""The loss scale and its skipped steps: which steps overflowed, which of them only searched for the scale."""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.inputs import Bools, Floats, Integers
from gradsight_server.diagnosis.levels import longest_streak, trailing_streak, usual_spacing
from gradsight_server.diagnosis.observed import Observed

RESTART_RATIO = 4.0
"""A scale that jumps up by so much at once was set anew, since a scaler doubles; or it was not recorded meanwhile."""
MAX_RESTARTS = 3
"""A scale that jumps more often is not set anew each time: it jumps about."""
RESTART_SKIPS, RESTART_STEPS = 3, 10
"""So many skips within so many steps of the jump tell a scale that was set anew from one that had grown unseen."""

SEARCH_SLACK = 4
"""A search takes up to two skips for each halving (DeepSpeed's hysteresis), and so many more…"""
MAX_HALVINGS = 20
"""…and where the scale is not recorded, it can be no longer than from 2^32 down to one that is of use."""

TINY = float(np.finfo(np.float64).tiny)
FELL_RATIO = 0.75
"""A scaler halves; a mean over an epoch may sink by less and says nothing of a single step."""


@dataclass(frozen=True)
class Overflows:
    """All arrays by row [S]. `scale` carries the last known value over rows that did not record it."""

    observed: Observed

    @cached_property
    def scale(self) -> Floats:
        scale = self.observed.scale
        return scale[self._told_at] if np.isfinite(scale).any() else scale

    @cached_property
    def _told_at(self) -> Integers:
        """The row that the scale of each row is known from: the newest so far, or the first of all."""
        there = np.isfinite(self.observed.scale)
        last = np.maximum.accumulate(np.where(there, np.arange(len(there)), -1))
        return np.where(last >= 0, last, int(np.argmax(there)))

    @cached_property
    def has_scale(self) -> bool:
        return bool(np.isfinite(self.scale).any())

    @cached_property
    def last_scale(self) -> float:
        """The scale that the next step begins with, where the newest one says so; else its own."""
        after = self.observed.steps.loss_scale_after
        newest = float(after.values[-1]) if after is not None and len(after.values) else np.nan
        return newest if np.isfinite(newest) and newest > 0 else float(self.scale[-1])

    @cached_property
    def is_scaled(self) -> bool:
        """Whether loss scaling is at work: a scale that does something is recorded, or steps that overflowed."""
        return (self.has_scale and not self.is_idle) or bool(self.observed.has_reason("overflow").any())

    @cached_property
    def is_idle(self) -> bool:
        """A scale that does nothing: constant, under bf16 or fp32, or 1 throughout."""
        if not self.has_scale or bool(np.any(self.scale != self.scale[0])):
            return False
        return self.observed.context.record.precision in ("bf16", "fp32") or float(self.scale[0]) == 1.0

    @cached_property
    def kind(self) -> Literal["static", "dynamic", "unknown"]:
        """As the record says; else dynamic where the scale has moved."""
        text = self.observed.context.record.scaler
        if isinstance(text, str) and text.startswith(("static", "dynamic")):
            return "static" if text.startswith("static") else "dynamic"
        return "dynamic" if self.has_scale and bool(np.any(self.scale != self.scale[0])) else "unknown"

    @cached_property
    def growth_interval(self) -> int | None:
        given = self.observed.context.growth_interval
        return given if given is not None and given > 0 else _interval_in(self.observed.context.record.scaler)

    @cached_property
    def skips(self) -> Bools:
        """Steps that the scaler skipped: as recorded; else where the scale fell or the gradient was not finite."""
        observed = self.observed
        if observed.skipped.any():
            return observed.skipped & ~observed.has_reason("user", "no_gradient")
        if not self.is_scaled:
            return np.zeros(observed.num_rows, dtype=np.bool_)
        return (self._fell | self._overflowed) & ~observed.applied

    @cached_property
    def _fell(self) -> Bools:
        """Rows after which the scale is lower."""
        fell = np.zeros(self.observed.num_rows, dtype=np.bool_)
        if self.has_scale:
            fell[:-1] = self.scale[1:] <= FELL_RATIO * self.scale[:-1]
        return fell

    @cached_property
    def _overflowed(self) -> Bools:
        """Rows that say themselves that they overflowed."""
        return self.observed.skipped | self.observed.nonfinite | self.observed.has_reason("overflow")

    @cached_property
    def inferred(self) -> Bools:
        """Skips that only a fallen scale tells of, between rows more than a step apart: of any step in between.

        A log of every thousandth step sees the halvings of a healthy scale in every other row.
        """
        inferred = np.zeros(self.observed.num_rows, dtype=np.bool_)
        if self.has_scale:
            step = self.observed.step
            inferred[:-1] = step[1:] - step[self._told_at[:-1]] > 1
        return inferred & self.skips & self._fell & ~self._overflowed

    @cached_property
    def certain(self) -> Bools:
        """Skips of the rows themselves: these alone may be told to come one after another."""
        return self.skips & ~self.inferred

    def counted(self, rows: slice) -> tuple[int, int]:
        """Skips among these rows and what they are counted against: the rows, or, where inferred, all steps between."""
        of_rows = int(np.count_nonzero(self.certain[rows])), len(self.certain[rows])
        if not self.inferred[rows].any():
            return of_rows
        of_steps = int(np.count_nonzero(self.skips[rows])), self._num_spanned(rows)
        return max(of_rows, of_steps, key=lambda counts: counts[0] / counts[1])

    def _num_spanned(self, rows: slice) -> int:
        """Steps that these rows span, each with those up to the next."""
        distances = np.diff(self.observed.step[rows].astype(np.float64))
        return round(float(np.maximum(distances, 1.0).sum()) + usual_spacing(self.observed.step))

    @cached_property
    def _search(self) -> tuple[Bools, bool]:
        """Skips that belong to a first burst, and whether such a burst has gone on for too long."""
        searching = np.zeros(len(self.skips), dtype=np.bool_)
        if not self.is_scaled or self.kind == "static":
            return searching, False  # nothing is searched for
        jumps = np.flatnonzero(self.scale[1:] >= RESTART_RATIO * self.scale[:-1]) + 1
        restarts = [jump for jump in jumps.tolist() if self.skips[jump : jump + RESTART_STEPS].sum() >= RESTART_SKIPS]
        restarts = restarts if len(restarts) <= MAX_RESTARTS else []
        starts = [0, *restarts] if self.observed.is_from_start else restarts
        ran_out = False
        for first, last in pairwise([*starts, len(self.skips)]):
            burst = self._burst(first, last)
            below = [row for row in burst if self.scale[row] < borders.WARMUP_SCALE]
            if len(below) >= borders.WARMUP_SKIPS_BELOW:
                ran_out = True
            elif not self._is_in_vain(burst):
                searching[burst] = True
        return searching, ran_out

    def _burst(self, first: int, last: int) -> list[int]:
        """Skips from `first` on, until the scale first grows or so many steps in a row were applied."""
        burst: list[int] = []
        before = first - 1
        for row in (np.flatnonzero(self.skips[first:last]) + first).tolist():
            grew = self.has_scale and self.scale[row] > self.scale[max(before, first)]
            if row - before - 1 >= self.quiet_rows or grew:
                break
            burst.append(row)
            before = row
        return burst

    def _is_in_vain(self, burst: list[int]) -> bool:
        """Whether these are more skips than the scale has fallen by: a search lowers it every time or two."""
        halvings = float(MAX_HALVINGS)
        if self.has_scale and burst:
            halvings = math.log2(max(1.0, self.scale[burst[0]] / max(self.scale[burst].min(), TINY)))
        return len(burst) > 2 * halvings + SEARCH_SLACK

    @cached_property
    def quiet_rows(self) -> int:
        """So many rows without a skip end the first burst."""
        steps = min(borders.QUIET_STEPS, self.growth_interval or borders.QUIET_STEPS)
        return math.ceil(steps / usual_spacing(self.observed.step))

    @property
    def searching(self) -> Bools:
        """Skips of the first burst, which finds the scale. After a resume without the scaler's state it comes again."""
        return self._search[0]

    @property
    def search_ran_out(self) -> bool:
        """The first burst went on below any scale that could be needed."""
        return self._search[1]

    @cached_property
    def newest(self) -> slice:
        """The judged rows: the newest, from the end of the first burst on."""
        rows = np.flatnonzero(self.searching)
        after_search = int(rows[-1]) + 1 if len(rows) else 0
        return slice(max(after_search, self.observed.num_rows - borders.NEWEST_JUDGED), self.observed.num_rows)

    @cached_property
    def longest(self) -> int:
        """The longest streak of skips among the judged rows."""
        return longest_streak(self.certain[self.newest])

    @cached_property
    def trailing(self) -> int:
        """How many of the newest steps were skipped in a row."""
        return trailing_streak(self.certain[self.newest])

    @cached_property
    def all_trailing(self) -> int:
        """The same, also where they belong to the first burst."""
        return trailing_streak(self.certain)

    @cached_property
    def num_stuck(self) -> int:
        """How many of the newest steps were skipped in a row at a scale that falls no more: it is at its floor."""
        if self.kind != "dynamic" or not self.has_scale:
            return 0
        return trailing_streak(self.skips & (self.observed.scale == self.scale[-1]))

    @cached_property
    def is_over_rate(self) -> bool:
        """More skips than the growth interval explains."""
        num_skips, num_steps = self.counted(self.newest)
        if num_skips < borders.MIN_THRASHING_SKIPS:
            return False
        if self.growth_interval is None:
            return num_skips > borders.SKIP_RATE * num_steps
        return num_skips > borders.SKIPS_PER_INTERVAL * math.ceil(num_steps / self.growth_interval)

    @cached_property
    def is_falling(self) -> bool:
        """New lows again and again: four halvings net in the newest 100 steps, or quarter by quarter."""
        scale = self.scale[self.newest]
        if len(scale) == 0 or not self.has_scale or scale[-1] > 2 * scale.min():
            return False
        if scale[-1] * borders.COLLAPSING_RATIO <= scale[-borders.QUIET_STEPS :].max():
            return True
        windows = [scale[-len(scale) // parts :] for parts in (1, 2, 4)]
        return any(_falls_by_quarters(window) for window in windows if len(window) >= 4 * borders.BURST_WINDOW)


def _falls_by_quarters(scale: Floats) -> bool:
    """Whether each quarter has a new low, with four halvings or more from the first to the last."""
    quarters = np.array_split(scale, 4)
    lows = np.array([part.min() for part in quarters])
    no_way_back = bool(quarters[-1].max() < quarters[0].max())
    return bool(np.all(np.diff(lows) < 0)) and no_way_back and bool(lows[0] >= borders.COLLAPSING_RATIO * lows[-1])


def _interval_in(scaler: object) -> int | None:
    """The growth interval in a scaler's text, `dynamic(init_scale=65536.0, growth_interval=2000)`."""
    if not isinstance(scaler, str):
        return None
    _, _, rest = scaler.partition("growth_interval=")
    digits = rest.partition(",")[0].partition(")")[0].strip()
    return int(digits) if digits.isdecimal() and int(digits) > 0 else None
