"""The life of alerts: a condition that begins opens one, repeats it or folds into one; its end resolves it. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gradsight_server.alerts.rules import EXPLAINS, Kind, Rule, Severity
from gradsight_server.alerts.sliding import Condition, Remembered, State
from gradsight_server.alerts.texts import title

AlertChange = Literal["opened", "reminded", "repeated", "resolved"]
TOLD: tuple[AlertChange, ...] = ("opened", "reminded")
"""Changes that go out as messages."""

CALM_STEPS: dict[Kind, int] = {
    "dead_run": 5,
    "scale_below_one": 20,
    "skip_streak": 20,
    "norm_spike": 20,
    "over_clipping": 50,
    "telemetry_loss": 200,
}
"""So long a condition must be gone until its alert resolves. Those not named are about a window: slow enough."""
OUTLASTS: frozenset[Kind] = frozenset({"scale_below_one"})
"""What the training is left with when the cause is over: told of then, where it still holds. Those not named are about
a window that the cause still lies in."""


@dataclass(frozen=True, slots=True)
class News:
    """What became of an alert, in the order it did."""

    alert_id: int
    kind: Kind
    severity: Severity
    change: AlertChange
    step: int


@dataclass(slots=True)
class Seen:
    """What is known of a condition at a step where it holds."""

    value: float
    evidence: dict[str, float]
    first_step: int
    num_steps: int = 1
    layer: str | None = None


class Life:
    """The alerts of one stream, over the steps of one transaction.

    Args:
        now_s: The clock that cool-downs are told by.
        new_id: Gives the next alert's id.
    """

    def __init__(self, state: State, rules: Mapping[Kind, Rule], *, now_s: float, new_id: Callable[[], int]) -> None:
        self.state = state
        self.rules = rules
        self.news: list[News] = []
        self.writes: dict[int, dict[str, Any]] = {}
        """Alert id → columns to write; a new alert has its `kind` among them."""
        self._now_s = now_s
        self._new_id = new_id
        self._drop_disabled()

    def turn(
        self, kind: Kind, holds: bool, row: int, step: int, seen: Callable[[], Seen], *, is_sign: bool = True
    ) -> None:
        """Tells whether a condition holds at a row.

        Args:
            is_sign: This very row bears the condition; else it only lies in a window that does.
        """
        condition = self.state.conditions.get(kind)
        if not holds:
            if condition is not None:
                self._calm(kind, condition, row, step)
            return
        if condition is None:
            condition = self.state.conditions[kind] = Condition()
        if condition.since_row is None:
            condition.since_row = row
        if condition.has_begun and not self._outlasts(kind, condition):
            if is_sign and condition.alert is not None and condition.alert.is_open:
                self._go_on(kind, condition.alert, row, step, seen())
        elif row - condition.since_row + 1 >= (self.rules[kind].sustain or 1):
            self._begin(kind, condition, row, step, seen())

    def is_open(self, kind: Kind) -> bool:
        condition = self.state.conditions.get(kind)
        return condition is not None and condition.has_open_alert

    def _calm(self, kind: Kind, condition: Condition, row: int, step: int) -> None:
        condition.since_row = None
        condition.has_begun = False
        alert = condition.alert
        if alert is not None and alert.is_open and row - alert.last_row >= CALM_STEPS.get(kind, 0):
            self._resolve(kind, alert, step)
        elif alert is None:
            del self.state.conditions[kind]

    def _begin(self, kind: Kind, condition: Condition, row: int, step: int, seen: Seen) -> None:
        condition.has_begun = True
        explaining = self._explaining(kind)
        if explaining is not None:
            return self._fold(kind, explaining)
        alert = condition.alert
        if alert is not None and (alert.is_open or self._now_s - alert.told_at_s < self.rules[kind].cool_down_s):
            self._repeat(kind, alert, row, step, seen)
        else:
            condition.alert = alert = Remembered(self._new_id(), seen.first_step, step, row, self._now_s)
            self.writes[alert.alert_id] = {"kind": kind, "severity": self.rules[kind].severity}
            self._note(kind, alert, row, step, seen, num_steps=seen.num_steps)
            self._tell(kind, alert, "opened", step)
        for other in list(self._open()):
            if other in EXPLAINS.get(kind, ()):
                self._give_over(other, kind, alert, step)

    def _explaining(self, kind: Kind) -> Kind | None:
        return next((other for other in self._open() if kind in EXPLAINS.get(other, ())), None)

    def _outlasts(self, kind: Kind, condition: Condition) -> bool:
        return kind in OUTLASTS and not condition.has_open_alert and self._explaining(kind) is None

    def _repeat(self, kind: Kind, alert: Remembered, row: int, step: int, seen: Seen) -> None:
        is_reminder = self._now_s - alert.told_at_s >= self.rules[kind].cool_down_s
        alert.num_repeats += 1
        alert.is_open = True
        if is_reminder:
            alert.told_at_s = self._now_s
        self._note(kind, alert, row, step, seen, num_steps=seen.num_steps)
        self._tell(kind, alert, "reminded" if is_reminder else "repeated", step)

    def _go_on(self, kind: Kind, alert: Remembered, row: int, step: int, seen: Seen) -> None:
        self._note(kind, alert, row, step, seen, num_steps=1)

    def _note(self, kind: Kind, alert: Remembered, row: int, step: int, seen: Seen, *, num_steps: int) -> None:
        """Puts down what is newest of an open alert."""
        alert.last_row, alert.last_step = row, step
        alert.num_steps += num_steps
        alert.value, alert.evidence = seen.value, seen.evidence | {"num_steps": alert.num_steps}
        alert.layer = alert.layer or seen.layer
        self._write(
            alert,
            first_step=alert.first_step,
            last_step=step,
            num_repeats=alert.num_repeats,
            value=alert.value,
            evidence=alert.evidence,
            layer=alert.layer,
            title=title(kind, alert.evidence, alert.layer),
            folded=alert.folded,
            folded_into=None,
            is_open=True,
        )

    def _fold(self, kind: Kind, explaining: Kind) -> None:
        """The condition is a consequence of what another alert has told."""
        alert = self.state.conditions[explaining].alert
        assert alert is not None
        if kind not in alert.folded:
            alert.folded = [*alert.folded, kind]
            self._write(alert, folded=alert.folded)

    def _give_over(self, kind: Kind, explaining: Kind, into: Remembered, step: int) -> None:
        """The alert was the first sign of what another now tells of."""
        alert = self.state.conditions[kind].alert
        assert alert is not None
        self._fold(kind, explaining)
        self._resolve(kind, alert, step)
        self._write(alert, folded_into=into.alert_id)

    def _resolve(self, kind: Kind, alert: Remembered, step: int) -> None:
        alert.is_open = False
        self._write(alert, is_open=False)
        self._tell(kind, alert, "resolved", step)

    def _tell(self, kind: Kind, alert: Remembered, change: AlertChange, step: int) -> None:
        self.news.append(News(alert.alert_id, kind, self.rules[kind].severity, change, step))

    def _write(self, alert: Remembered, **columns: Any) -> None:
        self.writes.setdefault(alert.alert_id, {}).update(columns)

    def _open(self) -> Iterator[Kind]:
        return (kind for kind, condition in self.state.conditions.items() if condition.has_open_alert)

    def _drop_disabled(self) -> None:
        """A rule that somebody has turned off has nothing to say any more."""
        for kind, condition in list(self.state.conditions.items()):
            if not self.rules[kind].enabled:
                if condition.alert is not None and condition.alert.is_open:
                    self._resolve(kind, condition.alert, self.state.last_step)
                del self.state.conditions[kind]
