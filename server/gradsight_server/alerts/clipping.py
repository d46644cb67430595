"""Sustained over-clipping: nearly every step is clipped to a fraction of its norm, and that is not by design. Pure."""

import math
from collections.abc import Sequence
from operator import gt, mul

from gradsight_server.alerts.columns import Columns
from gradsight_server.alerts.life import Life, Seen
from gradsight_server.alerts.rules import Rule
from gradsight_server.alerts.setting import Setting, clips_all_by_design
from gradsight_server.alerts.sliding import Clips
from gradsight_server.diagnosis import borders

NUM_PARTS = 10
"""The window slides by a tenth of itself."""
WARMUP_STEPS = 100


class Clipping:
    """Keeps figures of the newest steps' clipping, and judges them."""

    def __init__(self, life: Life, setting: Setting) -> None:
        self._life = life
        self._state = life.state
        self._setting = setting
        self._rule: Rule = life.rules["over_clipping"]

    def go(self, columns: Columns) -> None:
        """Judges the window with these steps in it."""
        if not self._rule.enabled or self._setting.clips == "by_design" or columns.max_norm is None:
            return
        state = self._state
        if state.num_rows > WARMUP_STEPS:
            self._keep(columns)
        if state.clips and (self._may_hold() or "over_clipping" in state.conditions):
            self._judge(_together(state.clips))

    def _keep(self, columns: Columns) -> None:
        """Adds the steps to the newest part; a threshold that was changed begins anew."""
        state, max_norms = self._state, columns.max_norm or ()
        newest = max_norms[-1]
        if newest is None or columns.norm is None:
            return
        if newest != state.max_norm:
            state.max_norm, state.clips = newest, []
        if None in columns.norm or max_norms.count(newest) != len(max_norms):
            columns = columns.at(
                [i for i, norm in enumerate(columns.norm) if norm is not None and max_norms[i] == newest]
            )
        norms: Sequence[float] = columns.norm  # type: ignore[assignment]  # no None is left
        num_clipped = sum(map(gt, norms, [newest] * len(norms)))
        part = self._part()
        part.num_steps += len(norms)
        part.num_clipped += num_clipped
        if 2 * num_clipped <= len(norms):  # what its coefficients are need not be known then
            part.sum_coef += len(norms)
            part.sum_squares += len(norms)
            return
        coefs = [
            min(1.0, newest / (norm + 1e-6)) if coef is None else coef
            for norm, coef in zip(norms, columns.clip_coef or [None] * len(norms), strict=True)
        ]
        part.sum_coef += sum(coefs)
        part.sum_squares += sum(map(mul, coefs, coefs))

    def _part(self) -> Clips:
        """The part that still grows."""
        state = self._state
        if not state.clips or state.clips[-1].num_steps >= (self._rule.window or NUM_PARTS) // NUM_PARTS:
            state.clips = [*state.clips[-NUM_PARTS:], Clips()]
        return state.clips[-1]

    def _may_hold(self) -> bool:
        newest = self._state.clips[-1]
        return newest.num_clipped > (self._rule.threshold or 0.0) * newest.num_steps

    def _judge(self, total: Clips) -> None:
        rule, state = self._rule, self._state
        num = max(1, total.num_steps)
        fraction, mean = total.num_clipped / num, total.sum_coef / num
        spread = math.sqrt(max(0.0, total.sum_squares / num - mean * mean)) / mean if mean > 0 else 0.0
        is_steady = spread <= borders.STEADY_SPREAD and mean >= borders.EPSILON_COEF
        holds = (
            num >= (rule.window or 1)
            and fraction > (rule.threshold or 0.0)
            and mean < borders.SEVERE_COEF
            and not (self._setting.forgives and is_steady)
            and not clips_all_by_design(state.max_norm or 1.0)
        )

        def seen() -> Seen:
            evidence = {
                "fraction": fraction,
                "mean_coef": mean,
                "max_norm": state.max_norm or 0.0,
                "threshold": rule.threshold or 0.0,
                "window": num,
            }
            return Seen(fraction, evidence, max(0, state.last_step - num + 1), num_steps=total.num_clipped)

        self._life.turn("over_clipping", holds, state.num_rows, state.last_step, seen)


def _together(parts: Sequence[Clips]) -> Clips:
    return Clips(
        num_steps=sum(part.num_steps for part in parts),
        num_clipped=sum(part.num_clipped for part in parts),
        sum_coef=sum(part.sum_coef for part in parts),
        sum_squares=sum(part.sum_squares for part in parts),
    )
