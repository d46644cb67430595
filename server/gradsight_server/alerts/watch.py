"""Judges a stream's new steps by the rules, over what is remembered of those before: quiet stretches at a glance. Pure.

A batch of a healthy run costs a few passes in C over its columns; steps are looked at one by one only where something
is, or has just been.
"""

from array import array
from collections.abc import Callable, Mapping
from operator import sub

from gradsight_server.alerts.clipping import Clipping
from gradsight_server.alerts.columns import Columns, Numbers, known
from gradsight_server.alerts.life import Life, Seen
from gradsight_server.alerts.rules import Kind, Rule
from gradsight_server.alerts.setting import Setting
from gradsight_server.alerts.sliding import Level, State, level_of
from gradsight_server.alerts.stepping import Stepping

CHUNK = 128
"""Steps judged together: the usual norm is that of the steps before them."""
LEVEL_EVERY = 100
"""New norms until the usual norm is worked out anew."""
MIN_NORMS = 50
"""Fewer bear no usual norm."""
SUSPICIOUS = 0.5
"""From this part of the border on, norms are looked at one by one."""
MAX_PAUSE_S = 900.0
"""A longer pause was no usual one."""
_ELSEWHERE: frozenset[Kind] = frozenset({"over_clipping", "telemetry_loss"})


class Watch:
    """One stream's rules at work on one transaction's steps; `life` then holds what is to be written and told."""

    def __init__(
        self,
        state: State,
        rules: Mapping[Kind, Rule],
        setting: Setting,
        *,
        now_s: float,
        new_id: Callable[[], int],
    ) -> None:
        self.state = state
        self.life = Life(state, rules, now_s=now_s, new_id=new_id)
        self._rules = rules
        self._setting = setting
        self._stepping = Stepping(self.life, setting)
        self._clipping = Clipping(self.life, setting)

    def see(self, columns: Columns) -> None:
        """Judges steps; those that have been judged already are passed over."""
        columns = columns.after(self.state.last_step)
        for first in range(0, len(columns), CHUNK):
            self._see(columns.between(first, first + CHUNK))

    def lose(self, num_lost: int) -> None:
        """Notes how many rows the attempt has lost by now."""
        rule, state = self._rules["telemetry_loss"], self.state
        num_new = num_lost - state.num_lost
        if not rule.enabled or num_new < (rule.threshold or 1):
            return
        state.num_lost = num_lost

        def seen() -> Seen:
            return Seen(num_lost, {"num_rows": num_lost, "num_new": num_new}, max(state.last_step, 0))

        # Each loss is an event of its own, not a condition that lasts.
        self.life.turn("telemetry_loss", False, state.num_rows, state.last_step, seen)
        self.life.turn("telemetry_loss", True, state.num_rows, state.last_step, seen)

    def _see(self, columns: Columns) -> None:
        state = self.state
        if self._is_quiet(columns):
            state.num_rows += len(columns)
        else:
            self._stepping.go(columns, self._fresh_level())
        state.last_step = columns.step[-1]
        self._keep_norms(columns.norm)
        self._clipping.go(columns)
        self._pauses(columns.time_s)
        if "telemetry_loss" in state.conditions:
            self.life.turn("telemetry_loss", False, state.num_rows, state.last_step, _nothing)

    def _is_quiet(self, columns: Columns) -> bool:
        """Whether nothing happens in these steps, and nothing that happened before is still of interest."""
        state = self.state
        if columns.norm_is_odd is not None or columns.loss_is_odd is not None or self._is_busy():
            return False
        if columns.skipped is not None and True in columns.skipped:
            return False
        if columns.num_nonfinite_layers is not None and any(columns.num_nonfinite_layers):
            return False
        for scales in (columns.scale, columns.scale_after):
            if scales is not None and scales.count(state.scale) != len(scales):
                return False
        norms = columns.norm
        if norms is None or state.level is None:
            return True
        border = state.level.border(self._rules["norm_spike"].threshold or 1.0, 0.0)
        return max(known(norms), default=0.0) <= SUSPICIOUS * border

    def _is_busy(self) -> bool:
        state = self.state
        return bool(
            state.odd
            or state.skips
            or state.odd_losses
            or state.num_odd_in_a_row
            or state.num_skips_in_a_row
            or len(state.scales) > 1
            or (state.search.is_on and self._setting.is_scaled is not False)
            or any(found.is_active for kind, found in state.conditions.items() if kind not in _ELSEWHERE)
        )

    def _fresh_level(self) -> Level | None:
        """The usual norm just before these steps; None while there are too few."""
        state = self.state
        if state.num_since_level:
            state.level = level_of(state.norms, at_least=min(MIN_NORMS, self._rules["norm_spike"].window or MIN_NORMS))
            state.num_since_level = 0
        return state.level

    def _keep_norms(self, norms: Numbers | None) -> None:
        if norms is None:
            return
        kept = array("f", known(norms))
        state = self.state
        window = self._rules["norm_spike"].window or 1
        state.norms = (state.norms + kept.tobytes())[-4 * window :]
        state.num_since_level += len(kept)
        if state.num_since_level >= LEVEL_EVERY or state.level is None:
            self._fresh_level()

    def _pauses(self, times: Numbers | None) -> None:
        """The longest usual pause between two steps: a validation, a checkpoint."""
        moments = known(times or ())
        if not moments:
            return
        state = self.state
        before = moments[0] if state.last_time_s is None else state.last_time_s
        longest = max(map(sub, moments, [before, *moments[:-1]]))
        state.longest_pause_s = max(state.longest_pause_s, min(longest, MAX_PAUSE_S))
        state.last_time_s = moments[-1]


def _nothing() -> Seen:
    raise AssertionError("asked of a condition that does not hold")
