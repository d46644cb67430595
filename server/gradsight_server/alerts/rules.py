"""What an alert rule is: its kinds, the numbers it may have, the defaults, and which alert explains which. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from gradsight import wire
from gradsight_server.errors import InvalidRequestError

Kind = wire.AlertKind
KINDS = wire.ALERT_KINDS
Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
Field = Literal["threshold", "window", "sustain", "least_s", "cool_down_s"]
FIELDS: tuple[Field, ...] = get_args(Field)

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule; a field its kind has no use for is None.

    Windows and `sustain` count recorded steps. Within `cool_down_s` after a message the same again is only counted.
    """

    kind: Kind
    enabled: bool = True
    severity: Severity
    threshold: float | None = None
    window: int | None = None
    sustain: int | None = None
    least_s: float | None = None
    cool_down_s: float = 30 * MINUTE_S


DEFAULTS: dict[Kind, Rule] = {
    rule.kind: rule
    for rule in (
        Rule(kind="dead_run", severity="critical", window=20),
        Rule(kind="nonfinite_burst", severity="critical", threshold=3, window=20, sustain=1),
        Rule(kind="loss_nonfinite", severity="critical", threshold=3, window=20, sustain=1),
        Rule(kind="scale_below_one", severity="critical", threshold=1.0, sustain=1),
        Rule(kind="skip_streak", severity="warning", threshold=5),
        Rule(kind="scale_falling", severity="warning", threshold=4, window=100, sustain=1),
        Rule(kind="skip_rate", severity="warning", threshold=0.1, window=200, sustain=1),
        Rule(kind="norm_spike", severity="warning", threshold=10.0, window=200, sustain=1),
        Rule(kind="over_clipping", severity="warning", threshold=0.95, window=2_000, sustain=1, cool_down_s=6 * HOUR_S),
        Rule(kind="silent_run", severity="critical", threshold=5.0, least_s=30.0),
        Rule(kind="telemetry_loss", severity="warning", threshold=100, cool_down_s=HOUR_S),
    )
}


@dataclass(frozen=True, slots=True)
class Limits:
    """From where to where a number may be."""

    least: float
    most: float
    is_whole: bool
    unit: str
    """Of what the number is, as a key for texts."""


_STEPS = Limits(1, 10_000, True, "steps")
_SUSTAIN = Limits(1, 10_000, True, "steps")
_COOL_DOWN = Limits(0, 30 * DAY_S, False, "seconds")
LIMITS: dict[Kind, dict[Field, Limits]] = {
    "dead_run": {"window": Limits(2, 10_000, True, "steps")},
    "nonfinite_burst": {"threshold": _STEPS, "window": _STEPS, "sustain": _SUSTAIN},
    "loss_nonfinite": {"threshold": _STEPS, "window": _STEPS, "sustain": _SUSTAIN},
    "scale_below_one": {"threshold": Limits(1e-30, 2.0**40, False, "scale"), "sustain": _SUSTAIN},
    "skip_streak": {"threshold": _STEPS},
    "scale_falling": {
        "threshold": Limits(1, 200, True, "halvings"),
        "window": Limits(2, 10_000, True, "steps"),
        "sustain": _SUSTAIN,
    },
    "skip_rate": {
        "threshold": Limits(0, 1, False, "fraction"),
        "window": Limits(10, 10_000, True, "steps"),
        "sustain": _SUSTAIN,
    },
    "norm_spike": {
        "threshold": Limits(1, 1e9, False, "medians"),
        "window": Limits(20, 2_000, True, "steps"),
        "sustain": _SUSTAIN,
    },
    "over_clipping": {
        "threshold": Limits(0, 1, False, "fraction"),
        "window": Limits(50, 100_000, True, "steps"),
        "sustain": _SUSTAIN,
    },
    "silent_run": {"threshold": Limits(1, 1e6, False, "intervals"), "least_s": Limits(1, 7 * DAY_S, False, "seconds")},
    "telemetry_loss": {"threshold": Limits(1, 1e9, True, "rows")},
}
for _limits in LIMITS.values():
    _limits["cool_down_s"] = _COOL_DOWN

EXPLAINS: dict[Kind, tuple[Kind, ...]] = {
    "dead_run": (
        "nonfinite_burst",
        "loss_nonfinite",
        "scale_below_one",
        "skip_streak",
        "scale_falling",
        "skip_rate",
    ),
    "nonfinite_burst": ("loss_nonfinite", "scale_below_one", "skip_streak", "scale_falling", "skip_rate"),
    "loss_nonfinite": ("nonfinite_burst", "scale_below_one", "skip_streak", "scale_falling", "skip_rate"),
    "scale_below_one": ("skip_streak", "scale_falling", "skip_rate"),
    "skip_streak": ("scale_falling", "skip_rate"),
    "scale_falling": ("skip_rate",),
}
"""While an alert of the first kind is open, one of the others is its consequence and opens none of its own."""

Change = Mapping[str, Any]
"""Fields of a rule that a scope sets; what it leaves out is as the wider scope has it."""


def changed(rule: Rule, change: Change) -> Rule:
    """The rule with a scope's changes; what an older version allowed and this one does not is left out."""
    kept = {name: change[name] for name in ("enabled", "severity") if change.get(name) is not None}
    for name, limits in LIMITS[rule.kind].items():
        value = change.get(name)
        if value is not None and limits.least <= value <= limits.most:
            kept[name] = int(value) if limits.is_whole else float(value)
    return replace(rule, **kept)


def effective(changes: Iterable[Mapping[Kind, Change]]) -> dict[Kind, Rule]:
    """The rules in force under these scopes' changes, the widest scope first."""
    rules = dict(DEFAULTS)
    for of_scope in changes:
        for kind, change in of_scope.items():
            if kind in rules:
                rules[kind] = changed(rules[kind], change)
    return rules


def check_change(kind: str, change: Change) -> Kind:
    """The kind, as one of ours.

    Raises:
        InvalidRequestError: there is no such kind, it has no such field, or the value is none it can have.
    """
    if kind not in LIMITS:
        raise InvalidRequestError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    known_kind: Kind = kind
    limits = LIMITS[known_kind]
    for name, value in change.items():
        if value is None or name == "enabled":
            continue
        if name == "severity":
            if value not in SEVERITIES:
                raise InvalidRequestError(f"{kind}: severity must be one of {', '.join(SEVERITIES)}, got {value!r}.")
        elif name not in limits:
            known = ", ".join(("enabled", "severity", *limits))
            raise InvalidRequestError(f"{kind} has no {name}; it has {known}.")
        else:
            _check_number(f"{kind}: {name}", value, limits[name])
    return known_kind


def _check_number(what: str, value: float, limits: Limits) -> None:
    kind = "a whole number" if limits.is_whole else "a number"
    fits = limits.least <= value <= limits.most and (not limits.is_whole or value == int(value))
    if not fits:  # NaN is in no range
        raise InvalidRequestError(f"{what} must be {kind} from {limits.least:g} to {limits.most:g}, got {value!r}.")


def check_rule(rule: Rule) -> None:
    """
    Raises:
        InvalidRequestError: the rule could never fire, or would always.
    """
    for problem in _impossible(rule):
        raise InvalidRequestError(f"{rule.kind}: {problem}")


def _impossible(rule: Rule) -> Iterator[str]:
    threshold, window = rule.threshold or 0.0, rule.window or 0
    if rule.kind in ("nonfinite_burst", "loss_nonfinite", "scale_falling") and threshold > window:
        yield (
            f"{threshold:g} in {window} steps can never be: "
            f"threshold must be at most window, got {threshold:g} and {window}."
        )
    if rule.kind in ("skip_rate", "over_clipping") and threshold >= 1:
        yield f"more than all steps can never be: threshold must be below 1, got {threshold:g}."
    if rule.kind == "norm_spike":
        if threshold <= 1:
            yield f"every second norm is above the median: threshold must be above 1, got {threshold:g}."
        if (rule.sustain or 1) > window // 2:
            yield (
                f"after half a window the median has followed: sustain must be at most {window // 2}, "
                f"got {rule.sustain}."
            )
    if rule.kind == "silent_run" and threshold <= 1:
        yield f"a run is always silent for one interval: threshold must be above 1, got {threshold:g}."


def warnings(rule: Rule) -> list[str]:
    """What a person should know of a rule that may fire where nothing is wrong, or hardly where something is."""
    return list(_doubts(rule)) if rule.enabled else []


def _doubts(rule: Rule) -> Iterator[str]:
    threshold, window = rule.threshold or 0.0, rule.window or 0
    match rule.kind:
        case "nonfinite_burst" if threshold < 3:
            yield "Loss scaling skips a step or two now and then by design: this fires on them."
        case "skip_streak" if threshold < 3:
            yield "Loss scaling skips a step or two now and then by design: this fires on them."
        case "skip_rate" if threshold * window < 3:
            yield f"{threshold:g} of {window} steps is less than three: this fires on loss scaling's routine skips."
        case "dead_run" if window < 10:
            yield "So few non-finite steps in a row may pass by themselves: nonfinite_burst tells of them."
        case "scale_below_one" if threshold > 1024:
            yield "Loss scales of some hundreds are usual: this fires on healthy runs."
        case "scale_falling" if threshold < 3:
            yield "A healthy scale halves once or twice in a growth interval: this fires on it."
        case "norm_spike" if threshold < 3:
            yield "Norms vary by as much from step to step: this fires on healthy runs."
        case "over_clipping" if threshold < 0.5:
            yield "Up to half of the steps clipped is a usual setting: this fires on it."
        case "silent_run" if (rule.least_s or 0) < 10:
            yield "Saving a checkpoint or validating takes as long: this fires on healthy runs."
        case _:
            pass
    if rule.cool_down_s < MINUTE_S:
        yield "With so short a cool-down a condition that comes and goes sends a message each time."
    if (rule.sustain or 1) > 1000:
        yield f"This fires only after {rule.sustain} steps."
