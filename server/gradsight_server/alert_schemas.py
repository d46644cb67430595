"""The shapes of alerts, their rules, notification targets and control in REST; the rest of them are in `schemas`."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gradsight import wire
from gradsight_server.alerts.rules import Kind
from gradsight_server.alerts.rules import Severity as AlertSeverity
from gradsight_server.schemas import Shape

Person = Annotated[str, Meta(min_length=1, max_length=256, pattern=wire.NO_NUL)]


class AlertShape(Shape):
    """An alert. Its number, `id`, counts within the run."""

    id: int
    run_id: str
    run_name: str
    project: str
    stream: str | None
    """Null where it is about the whole run, as are `attempt` and, before its first step, the steps."""
    attempt: int | None
    kind: Kind
    severity: AlertSeverity
    state: Literal["open", "acknowledged", "resolved"]
    first_step: int | None
    last_step: int | None
    num_repeats: int
    """How often the same has come again since, within the rule's cool-down."""
    value: float | None
    """The number that the rule is about: norm, scale, rate, steps, or seconds of silence."""
    layer: str | None
    """In which the first non-finite value was."""
    title: str
    evidence: dict[str, float | None]
    folded: list[Kind]
    """What else this alert explains, and what therefore opened none of its own."""
    folded_into: int | None
    """The alert that explains this one."""
    opened_at_s: float
    updated_at_s: float
    acknowledged_at_s: float | None
    acknowledged_by: str | None
    resolved_at_s: float | None


class AlertPage(Shape):
    items: list[AlertShape]
    next_cursor: str | None


class RuleNumbers(Shape):
    """A rule's fields; null where its kind has no use for one."""

    enabled: bool | None
    severity: AlertSeverity | None
    threshold: float | None
    window: int | None
    sustain: int | None
    least_s: float | None
    cool_down_s: float | None


class RuleLimits(Shape):
    """From where to where a number may be."""

    least: float
    most: float
    is_whole: bool
    unit: str


class AlertRuleShape(RuleNumbers):
    """A rule as it is in force at a scope."""

    kind: Kind
    origin: Literal["default", "global", "project", "run"]
    """The narrowest scope that has a say in it."""
    change: RuleNumbers
    """What this very scope changes; null is as the wider scope has it."""
    default: RuleNumbers
    limits: dict[Literal["threshold", "window", "sustain", "least_s", "cool_down_s"], RuleLimits]
    """The fields that the kind has."""
    warnings: list[str]
    """Why the rule may fire where nothing is wrong."""


class AlertRules(Shape):
    scope: Literal["global", "project", "run"]
    project: str | None
    run_id: str | None
    items: list[AlertRuleShape]


class FiredIn(Shape):
    run_id: str
    run_name: str
    project: str
    num_fired: int
    first_step: int | None
    """At which it would have fired first."""


class Covered(Shape):
    """What a preview has looked at."""

    since_s: float
    until_s: float
    num_runs: int
    num_steps: int
    is_complete: bool
    """False where there was more than the time allowed; then the newest runs were looked at."""


class RulePreview(Shape):
    """What a rule would have done over recorded runs."""

    kind: Kind
    num_fired: int
    """Messages that it would have sent."""
    num_repeats: int
    """The same again, counted within the cool-down."""
    runs: list[FiredIn]
    """Where, the most first; at most 20."""
    covered: Covered
    warnings: list[str]


class TargetShape(Shape):
    """A notification target. What it is reached by stays in the server's configuration."""

    name: str
    service: str
    """Slack, E-Mail, JSON, …"""
    project: str
    """The pattern of the projects it is told of."""
    severity: AlertSeverity
    """The least that it is told of."""
    state: Literal["ok", "failing", "hanging"]
    num_waiting: int
    num_sent: int
    num_given_up: int
    """Messages that had become a day old while it could not be reached."""
    failing_since_s: float | None
    num_failures: int
    """In a row."""
    next_try_at_s: float | None
    last_sent_at_s: float | None
    last_error: str | None


class TargetList(Shape):
    items: list[TargetShape]
    public_url: str | None
    """What links in messages begin with."""


class TargetTest(Shape):
    name: str
    ok: bool
    error: str | None
    duration_s: float


class TargetTests(Shape):
    items: list[TargetTest]


class ControlWish(Shape):
    """A threshold somebody asked for, and what became of it."""

    id: int
    stream: str
    pattern: str | None
    max_norm: float
    previous_max_norm: float | None
    state: Literal["asked", "applied", "refused", "expired"]
    """Refused by the training process, which says why in `message`; expired where a later launch began before that."""
    by: str | None
    asked_at_s: float
    settled_at_s: float | None
    applied_step: int | None
    message: str
    """What the training process said to it, or why nothing came of it."""


class Controllable(Shape):
    """A fixed threshold of the run's, and whether it can be changed from here."""

    stream: str
    pattern: str | None
    max_norm: float | None
    """As it is now; null where none is in force, as for `inf`."""
    is_allowed: bool
    reason: str | None
    """Why not."""


class ControlAnswer(Shape):
    wishes: list[ControlWish]
    """The newest of each threshold first."""
    thresholds: list[Controllable]


class Acknowledgement(Struct, kw_only=True, forbid_unknown_fields=True):
    """Who has seen to an alert; the address of whoever asks, where left out."""

    by: Person | None = None


class RuleChange(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a scope changes of a rule; absent or null is as the wider scope has it."""

    kind: str
    enabled: bool | None = None
    severity: str | None = None
    threshold: float | None = None
    window: float | None = None
    sustain: float | None = None
    least_s: float | None = None
    cool_down_s: float | None = None

    @property
    def change(self) -> dict[str, Any]:
        """The fields that it sets."""
        given = {name: getattr(self, name) for name in self.__struct_fields__ if name != "kind"}
        return {name: value for name, value in given.items() if value is not None}


class AlertRulesPut(Struct, kw_only=True, forbid_unknown_fields=True):
    """All that a scope changes."""

    rules: Annotated[list[RuleChange], Meta(max_length=100)]


class PreviewRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """A rule somebody thinks of, and how far back to try it."""

    rule: RuleChange
    days: Annotated[float, Meta(gt=0, le=365)] = 7.0


class TestRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """Which target to send a test to; all where left out."""

    name: Annotated[str, Meta(max_length=256)] | None = None


class ControlPut(Struct, kw_only=True, forbid_unknown_fields=True):
    """A threshold to be changed; of a policy with groups, that of the pattern named."""

    max_norm: float | wire.NonFinite
    stream: wire.Name = "main"
    pattern: Annotated[str, Meta(max_length=1024, pattern=wire.NO_NUL)] | None = None
    by: Person | None = None
