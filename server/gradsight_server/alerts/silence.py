"""When a run without steps is silent: longer than it usually pauses, and told apart, stalled or crashed. Pure."""

from dataclasses import dataclass

from gradsight_server.alerts.rules import SEVERITIES, Rule, Severity

HEARD_WITHIN_S = 30.0
"""Heartbeats come every two seconds: without one for so long the process is gone, or its network."""
UNKNOWN_PATIENCE_S = 600.0
"""For a run whose pace nobody knows yet: compiling the first step may take minutes."""
PAUSES = 2.0
"""A pause may be so many times the longest before: validations and checkpoints grow with time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """A run that has had no step for a while."""

    silence_s: float
    unheard_s: float
    """Since the newest batch or heartbeat."""
    steps_per_s: float | None
    longest_pause_s: float


def patience_s(rule: Rule, quiet: Quiet) -> float:
    """How long the run may be without steps."""
    least_s = rule.least_s or 0.0
    if not quiet.steps_per_s:
        return max(least_s, UNKNOWN_PATIENCE_S)
    usual_s = (rule.threshold or 1.0) / quiet.steps_per_s
    return max(least_s, usual_s, PAUSES * quiet.longest_pause_s)


def is_silent(rule: Rule, quiet: Quiet) -> bool:
    return rule.enabled and quiet.silence_s > patience_s(rule, quiet)


def is_crashed(quiet: Quiet) -> bool:
    """Nothing is heard of the process either: else it is alive, and stalled."""
    return quiet.unheard_s > HEARD_WITHIN_S


def severity_of(rule: Rule, quiet: Quiet) -> Severity:
    """A process that is alive may only be validating: a degree less."""
    degree = SEVERITIES.index(rule.severity)
    return SEVERITIES[degree if is_crashed(quiet) else max(0, degree - 1)]


def evidence_of(rule: Rule, quiet: Quiet) -> dict[str, float]:
    return {
        "silence": quiet.silence_s,
        "unheard": quiet.unheard_s,
        "patience": patience_s(rule, quiet),
        "steps_per_s": quiet.steps_per_s or 0.0,
        "is_crashed": float(is_crashed(quiet)),
    }
