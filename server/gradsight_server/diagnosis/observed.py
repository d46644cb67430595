"""What the rules look at: a stream's steps with what follows from them, each worked out once.

Placeholders are taken out here ("0.000" on every line is not a norm), so that no rule meets them as numbers.
"""

from functools import cached_property
from typing import Literal

import numpy as np

from gradsight import wire
from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.clip_setting import ClipSetting, clip_setting
from gradsight_server.diagnosis.inputs import (
    Bools,
    Column,
    Context,
    Floats,
    Histogram,
    Integers,
    RangeFacts,
    StreamSteps,
)
from gradsight_server.diagnosis.levels import in_long_streaks, local_level, moves, streaks, usual_spacing

ADAM_LIKE = ("adam", "adafactor", "adagrad", "adopt", "lamb", "lion", "muon", "rmsprop", "shampoo", "soap", "sophia")
"""Optimizers that divide by the gradient's own size: by a part of the class name."""
Placeholder = Literal["zero", "negative"]


class Observed:
    """One stream's steps, as the rules see them. Arrays are by row of the steps [S] unless they say otherwise."""

    def __init__(self, steps: StreamSteps, context: Context, facts: RangeFacts | None) -> None:
        self.steps = steps
        self.context = context
        self.facts = facts
        self.step = steps.step
        self.num_rows = len(steps.step)

    @cached_property
    def setting(self) -> ClipSetting:
        return clip_setting(self.steps, self.context.record)

    # Norms

    @cached_property
    def norm_placeholder(self) -> Placeholder | None:
        """What stands where the norm was not recorded: all zeros while the loss moves, or negative numbers."""
        column = self.steps.grad_norm_before_clip
        if column is None or not column.finite.any() or np.any(column.values[column.finite] > 0):
            return None
        if np.all(column.values[column.finite] < 0):
            return "negative"
        return "zero" if moves(self.loss[np.isfinite(self.loss)]) else None

    @cached_property
    def norm(self) -> Floats:
        """Norm before clipping; NaN where it is not finite or was not recorded. DeepSpeed's −1 is "not finite"."""
        column = self.steps.grad_norm_before_clip
        if column is None or self.norm_placeholder is not None:
            return np.full(self.num_rows, np.nan)
        return np.where(column.finite & (column.values >= 0), column.values, np.nan)

    @cached_property
    def finite(self) -> Bools:
        return np.isfinite(self.norm)

    @cached_property
    def nonfinite(self) -> Bools:
        """Rows whose gradient was not finite."""
        column, layers = self.steps.grad_norm_before_clip, self.steps.num_nonfinite_layers
        flags = np.zeros(self.num_rows, dtype=np.bool_)
        if column is not None and self.norm_placeholder is None:
            flags |= column.nonfinite | (column.finite & (column.values < 0))
        if layers is not None:
            flags |= layers.finite & (layers.values > 0)
        return flags & ~self.finite

    @cached_property
    def rows(self) -> Integers:
        """Rows with a finite norm, in order [N]; `norms` are theirs."""
        return np.flatnonzero(self.finite)

    @cached_property
    def norms(self) -> Floats:
        return self.norm[self.rows]

    @cached_property
    def older_norms(self) -> Histogram | None:
        """The norms of the range before these rows; None where the rows are all there are."""
        facts = self.facts
        if facts is None or facts.histogram is None or facts.num_finite <= len(self.rows):
            return None
        return facts.histogram.without(self.norms)

    @cached_property
    def is_from_start(self) -> bool:
        """Whether the rows begin about where the run does, so that its warm-up is among them."""
        if self.facts is not None and self.num_rows and self.facts.num_steps > self.num_rows:
            return False
        return self.num_rows > 0 and self.step[0] <= borders.MAX_WARMUP_STEPS * usual_spacing(self.step)

    @cached_property
    def num_warmup(self) -> int:
        """How many of `rows` are left out as warm-up."""
        num_rows = len(self.rows)
        wanted = min(int(borders.WARMUP_FRACTION * num_rows), borders.MAX_WARMUP_STEPS)
        return wanted if self.is_from_start else 0

    @cached_property
    def is_without_signal(self) -> Bools:
        """Which of `rows` [N] are isolated (near-)zero norms between normal ones."""
        level = local_level(self.norms, block=borders.LEVEL_BLOCK, q=75.0)
        # Also beside those before: where norms explode, the last normal ones are small beside what follows.
        before = np.concatenate([level[: 2 * borders.LEVEL_BLOCK], level])[: len(level)]
        low: Bools = self.norms <= borders.NO_SIGNAL_RATIO * np.minimum(level, before)
        low &= ~in_long_streaks(low, borders.MAX_NO_SIGNAL_STREAK)
        if len(self.norms) < borders.MIN_NORMS and len(streaks(low)) < borders.MIN_NO_SIGNAL_STREAKS:
            return np.zeros_like(low)
        return low

    @cached_property
    def settled(self) -> tuple[Integers, Floats]:
        """Rows after warm-up whose norm has signal, and their norms."""
        rows = self.rows[self.num_warmup :][~self.is_without_signal[self.num_warmup :]]
        return rows, self.norm[rows]

    @cached_property
    def judged(self) -> Integers:
        """The rows that are judged [J]: finite, with signal, after warm-up, the newest, as things are at present."""
        kept = self.settled[0][-borders.NEWEST_JUDGED :]
        if self.setting.kind in ("fixed", "scheduled") and len(kept):
            kept = self._under_present_threshold(kept)
            kept = self._since_clipping_changed(kept)
        return kept

    def _under_present_threshold(self, rows: Integers) -> Integers:
        """Without the rows before a fixed threshold was last changed, where enough are left."""
        if self.setting.kind != "fixed" or self.max_norm is None:
            return rows
        changed = np.flatnonzero(self.max_norm[rows] != self.max_norm[rows[-1]])
        since = rows[int(changed[-1]) + 1 :] if len(changed) else rows
        return since if len(since) >= borders.MIN_NORMS else rows

    def _since_clipping_changed(self, rows: Integers) -> Integers:
        """The newer half, where clipping acts quite otherwise on it than on the older; of that again, as need be."""
        while self.clipped is not None and len(rows) >= 2 * borders.MIN_NORMS:
            older, newer = np.split(rows, [len(rows) // 2])
            before, now = float(np.mean(self.clipped[older])), float(np.mean(self.clipped[newer]))
            stopped = before >= borders.OUTGROWN_FROM and now < borders.INACTIVE_BELOW
            if not stopped and abs(now - before) <= borders.REGIME_CHANGE:
                break
            rows = newer
        return rows

    @cached_property
    def judged_norms(self) -> Floats:
        return self.norm[self.judged]

    @property
    def has_enough(self) -> bool:
        return len(self.rows) >= borders.MIN_NORMS and len(self.judged) > 0

    # Clipping

    @cached_property
    def max_norm(self) -> Floats | None:
        """The threshold of each row, `inf` where there was none; None where no threshold is known."""
        column, coef = self.steps.max_norm, self.steps.clip_coef
        if self.setting.kind == "off":
            return None
        if column is not None and np.any(column.finite & (column.values > 0)):
            return self._thresholds(column)
        if self.setting.max_norm is not None:
            return np.full(self.num_rows, self.setting.max_norm)
        if coef is None or not self.setting.has_global_coef:
            return None
        clipped = coef.finite & (coef.values < 1) & self.finite
        thresholds = coef.values[clipped] * self.norm[clipped]
        return np.full(self.num_rows, np.median(thresholds)) if len(thresholds) else None

    def _thresholds(self, column: Column) -> Floats:
        """`inf` where there is none; a fixed one holds from where it was last recorded."""
        there = column.finite & (column.values > 0)
        if self.setting.kind != "fixed":
            return np.where(there, column.values, np.inf)
        last = np.maximum.accumulate(np.where(there, np.arange(self.num_rows), -1))
        return np.where(last >= 0, column.values[last], np.inf)

    @cached_property
    def clipped(self) -> Bools | None:
        """Rows that were clipped; None where that is not known."""
        fraction = self.steps.clipped_layer_fraction
        if fraction is not None and fraction.recorded.any():
            return fraction.finite & (fraction.values > 0)
        if self.max_norm is None or not self.setting.has_global_coef:
            return None
        if self.is_after_clip:
            return self.finite & (self.norm >= self.max_norm * (1 - borders.PILE_WIDTH))
        return self.finite & (self.norm > self.max_norm)

    @cached_property
    def is_after_clip(self) -> bool:
        """Whether the norms were taken after clipping: many sit exactly on a fixed threshold, none above it."""
        if self.max_norm is None or self.setting.kind != "fixed" or self.num_warmup >= len(self.rows):
            return False
        rows = self.rows[self.num_warmup :]
        with np.errstate(over="ignore"):
            ratio = self.norm[rows] / self.max_norm[rows]
        ratio = ratio[np.isfinite(self.max_norm[rows])]
        piled = np.count_nonzero(np.abs(ratio - 1) <= borders.PILE_WIDTH)
        is_pile = piled >= max(borders.PILE_FRACTION * len(ratio), borders.MIN_PILE)
        return bool(is_pile and np.all(ratio <= 1 + borders.PILE_WIDTH))

    @cached_property
    def clip_coef(self) -> Floats | None:
        """What gradients were multiplied by: as recorded, else as the threshold has it; NaN where neither says."""
        recorded = self.steps.clip_coef
        if recorded is not None and recorded.finite.any():
            return np.where(recorded.finite & self.finite, recorded.values, np.nan)
        if self.max_norm is None or not self.setting.has_global_coef or self.is_after_clip:
            return None
        return np.where(self.finite, np.minimum(1.0, self.max_norm / (self.norm + 1e-6)), np.nan)

    # The rest of a step

    @cached_property
    def loss(self) -> Floats:
        """Loss, NaN where it is not finite or was not recorded."""
        return _finite_or_nan(self.steps.loss, self.num_rows)

    @cached_property
    def scale(self) -> Floats:
        """Loss scale of each row; NaN where it was not recorded. A constant −1 or 0 is a placeholder."""
        column = self.steps.loss_scale
        if column is None or not np.any(column.values[column.finite] > 0):
            return np.full(self.num_rows, np.nan)
        return np.where(column.finite & (column.values >= 0), column.values, np.nan)

    @cached_property
    def skipped(self) -> Bools:
        """Rows recorded as not applied."""
        column = self.steps.skipped
        return np.zeros(self.num_rows, dtype=np.bool_) if column is None else column.finite & (column.values != 0)

    @cached_property
    def applied(self) -> Bools:
        """Rows recorded as applied: not the same as not recorded as skipped."""
        column = self.steps.skipped
        return np.zeros(self.num_rows, dtype=np.bool_) if column is None else column.finite & (column.values == 0)

    def has_reason(self, *reasons: str) -> Bools:
        """Rows skipped for one of these reasons."""
        texts = self.steps.skip_reason
        if texts is None:
            return np.zeros(self.num_rows, dtype=np.bool_)
        return np.fromiter((text in reasons for text in texts), dtype=np.bool_, count=self.num_rows)

    @property
    def optimizer(self) -> wire.Optimizer | None:
        optimizer = self.context.record.optimizer
        return None if optimizer is wire.UNSET else optimizer

    @property
    def optimizer_family(self) -> Literal["adam", "sgd", "unknown"]:
        """Whether the optimizer forgives a constant factor on the gradient (adam) or not (sgd)."""
        if self.optimizer is None:
            return "unknown"
        name = self.optimizer.class_name.lower()
        return "adam" if any(part in name for part in ADAM_LIKE) else "sgd" if "sgd" in name else "unknown"

    def step_at(self, row: int) -> int:
        return int(self.step[row])


def _finite_or_nan(column: Column | None, num_rows: int) -> Floats:
    return np.full(num_rows, np.nan) if column is None else np.where(column.finite, column.values, np.nan)
