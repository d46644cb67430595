"""Step by step through what is not quiet: streaks, windows, the loss scale, and which skips are routine. Pure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradsight_server.alerts.columns import Columns
from gradsight_server.alerts.life import Life, Seen
from gradsight_server.alerts.rules import Kind
from gradsight_server.alerts.setting import Setting
from gradsight_server.alerts.sliding import Level, Mark
from gradsight_server.diagnosis import borders

if TYPE_CHECKING:
    from gradsight_server.alerts.sliding import State

NEUTRAL_REASONS = ("no_gradient", "user")
"""Skips that nobody need worry about."""
RESTART_RATIO = 4.0
"""A scale that jumps up by so much at once was set anew: it searches its place again."""
QUIET_STEPS = 20
"""So many steps without a skip end a search. The diagnosis, which looks back, gives it five times as many; but who is
to be told at once of NaN that came after twenty good steps must not be told that the scale is still searching."""
MAX_UNKNOWN_SKIPS = 25
"""So many skips a search may take where the scale is not recorded: 21 from 2^32 with a hysteresis of 2."""
SPIKE_SIGMAS = 6.0


class Stepping:
    """Goes through rows one by one."""

    def __init__(self, life: Life, setting: Setting) -> None:
        self._life = life
        self._state: State = life.state
        self._setting = setting

    def go(self, columns: Columns, level: Level | None) -> None:
        """Judges each of the steps; `level` is that of the norms before them."""
        state = self._state
        rule = self._life.rules["norm_spike"]
        border = level.border(rule.threshold or 1.0, SPIKE_SIGMAS) if level is not None and rule.enabled else None
        for i, step in enumerate(columns.step):
            row = state.num_rows
            state.num_rows += 1
            norm = _at(columns.norm, i)
            has_odd_layers = norm is None and bool(_at(columns.num_nonfinite_layers, i))
            norm_is_odd = has_odd_layers or bool(_at(columns.norm_is_odd, i))
            loss_is_odd = bool(_at(columns.loss_is_odd, i))
            reason = _at(columns.skip_reason, i)
            is_neutral = reason in NEUTRAL_REASONS
            is_skipped = bool(_at(columns.skipped, i)) and not is_neutral
            before = _positive(_at(columns.scale, i))
            after = _positive(_at(columns.scale_after, i)) or before
            overflowed = is_skipped or (norm_is_odd and _at(columns.skipped, i) is None)
            is_routine = self._searches(before or after, after, overflowed, reason) and not loss_is_odd
            says_nothing = is_neutral or is_routine or (norm is None and _at(columns.loss, i) is None)
            mark = Mark(row, step, _at(columns.first_layer, i))
            self._odd(mark, norm_is_odd and not is_routine, loss_is_odd, says_nothing)
            self._skips(row, step, is_skipped and not is_routine, is_neutral or (is_skipped and is_routine))
            self._scale(row, step, after)
            if border is not None and level is not None:
                self._spike(row, step, norm, level, border)

    def _searches(self, scale: float | None, after: float | None, overflowed: bool, reason: str | None) -> bool:
        """Whether the row belongs to a first burst of skips, much as the diagnosis has it."""
        state, search = self._state, self._state.search
        if self._setting.is_scaled is False:
            search.is_on = False
            return False
        grew = after is not None and state.scale is not None and after > state.scale
        if grew and after is not None and after >= RESTART_RATIO * (state.scale or after):
            search.is_on, search.num_quiet, search.num_below, grew = True, 0, 0, False
        if not search.is_on:
            return False
        if not overflowed:
            search.num_quiet += 1
            quiet = min(QUIET_STEPS, self._setting.growth_interval or QUIET_STEPS)
            search.is_on = not grew and search.num_quiet < quiet
            return False
        if self._setting.is_scaled is None and reason != "overflow" and (scale is None or scale == 1.0):
            return False  # nothing says that there is a loss scale
        search.num_quiet = 0
        if scale is None or scale < borders.WARMUP_SCALE:
            search.num_below += 1
        most = MAX_UNKNOWN_SKIPS if scale is None else borders.WARMUP_SKIPS_BELOW
        search.is_on = search.num_below < most
        return search.is_on

    def _odd(self, mark: Mark, norm_is_odd: bool, loss_is_odd: bool, says_nothing: bool) -> None:
        """Norms and losses that are not finite."""
        state = self._state
        if norm_is_odd or loss_is_odd:
            if not state.num_odd_in_a_row:
                state.odd_streak_from = mark
            state.num_odd_in_a_row += 1
        elif not says_nothing:
            state.num_odd_in_a_row = 0
        if norm_is_odd:
            state.odd.append(mark)
        if loss_is_odd:
            state.odd_losses.append(mark)
        self._dead(mark, norm_is_odd or loss_is_odd)
        self._burst("nonfinite_burst", state.odd, mark, norm_is_odd)
        self._burst("loss_nonfinite", state.odd_losses, mark, loss_is_odd)

    def _dead(self, mark: Mark, is_odd: bool) -> None:
        rule, state = self._life.rules["dead_run"], self._state
        if not rule.enabled:
            return
        window, num = rule.window or 1, state.num_odd_in_a_row

        def seen() -> Seen:
            first = state.odd_streak_from or mark
            return Seen(num, {"window": window}, first.step, num_steps=num, layer=first.layer)

        self._life.turn("dead_run", num >= window, mark.row, mark.step, seen, is_sign=is_odd)

    def _burst(self, kind: Kind, marks: list[Mark], mark: Mark, is_sign: bool) -> None:
        rule = self._life.rules[kind]
        window, threshold = rule.window or 1, rule.threshold or 1
        while marks and marks[0].row <= mark.row - window:
            del marks[0]
        if not rule.enabled:
            return
        if self._setting.is_scaled and self._setting.growth_interval and not self._state.odd_losses:
            # A scale that tries to grow every few steps overflows as often.
            threshold = max(threshold, self._setting.num_routine_skips(window) + 1)

        def seen() -> Seen:
            layer = next((found.layer for found in marks if found.layer), None)
            evidence = {"threshold": threshold, "window": window}
            return Seen(len(marks), evidence, marks[0].step, num_steps=len(marks), layer=layer)

        self._life.turn(kind, len(marks) >= threshold, mark.row, mark.step, seen, is_sign=is_sign)

    def _skips(self, row: int, step: int, is_skip: bool, is_neutral: bool) -> None:
        """Steps that were not applied, beyond what loss scaling does by routine."""
        state, life = self._state, self._life
        if is_skip:
            state.skips.append(row)
            if not state.num_skips_in_a_row:
                state.skip_streak_from = step
            state.num_skips_in_a_row += 1
        elif not is_neutral:
            state.num_skips_in_a_row = 0
        streak = life.rules["skip_streak"]
        if streak.enabled:
            num = state.num_skips_in_a_row

            def streak_seen() -> Seen:
                evidence = {"threshold": streak.threshold or 1}
                return Seen(num, evidence, state.skip_streak_from, num_steps=num)

            life.turn("skip_streak", num >= (streak.threshold or 1), row, step, streak_seen, is_sign=is_skip)
        self._skip_rate(row, step, is_skip)

    def _skip_rate(self, row: int, step: int, is_skip: bool) -> None:
        state, rule = self._state, self._life.rules["skip_rate"]
        window = rule.window or 1
        while state.skips and state.skips[0] <= row - window:
            del state.skips[0]
        if not rule.enabled:
            return
        most = max((rule.threshold or 0.0) * window, self._setting.num_routine_skips(window))

        def seen() -> Seen:
            rate = len(state.skips) / window
            evidence = {"rate": rate, "threshold": rule.threshold or 0.0, "window": window}
            return Seen(rate, evidence, step, num_steps=len(state.skips))

        self._life.turn("skip_rate", len(state.skips) > most, row, step, seen, is_sign=is_skip)

    def _scale(self, row: int, step: int, scale: float | None) -> None:
        state, life = self._state, self._life
        falling = life.rules["scale_falling"]
        start = row - (falling.window or 1)
        has_changed = scale is not None and scale != state.scale
        if scale is not None and has_changed:
            state.scale = scale
            state.scales.append((row, scale))
        if state.search.is_on:
            state.scales = state.scales[-1:]
        while len(state.scales) > 1 and state.scales[1][0] <= start:
            del state.scales[0]
        if scale is None:
            return
        highest = max(value for _, value in state.scales)
        if falling.enabled:

            def fell() -> Seen:
                first = max(state.scales, key=lambda found: found[1])[0]
                evidence = {"scale": scale, "highest": highest, "ratio": highest / scale, "window": falling.window or 1}
                return Seen(scale, evidence, max(0, step - (row - first)))

            holds = highest >= scale * 2.0 ** (falling.threshold or 1)
            life.turn("scale_falling", holds, row, step, fell, is_sign=has_changed)
        below = life.rules["scale_below_one"]
        if below.enabled and self._setting.is_scaled is not False:
            border = below.threshold or 1.0

            def is_below() -> Seen:
                return Seen(scale, {"scale": scale, "border": border}, step)

            life.turn("scale_below_one", scale < border, row, step, is_below)

    def _spike(self, row: int, step: int, norm: float | None, level: Level, border: float) -> None:
        def seen() -> Seen:
            assert norm is not None
            evidence = {"norm": norm, "median": level.median, "ratio": norm / level.median}
            return Seen(norm, evidence, step)

        self._life.turn("norm_spike", norm is not None and norm > border, row, step, seen)


def _at(column: Sequence[Any] | None, i: int) -> Any:
    return None if column is None else column[i]


def _positive(value: float | None) -> float | None:
    """A scale of 0 or −1 is a placeholder."""
    return value if value is not None and value > 0 else None
