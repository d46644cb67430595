"""The rules as they are by default, in the documentation, and under what people change."""

from dataclasses import replace
from pathlib import Path

import pytest

from gradsight_server.alerts import rules
from gradsight_server.alerts.rules import DEFAULTS, EXPLAINS, FIELDS, KINDS, LIMITS
from gradsight_server.alerts.texts import TITLES
from gradsight_server.errors import InvalidRequestError

DOCUMENT = Path(__file__).parents[3] / "docs" / "alerts.md"
UNITS = {"scale": "", "fraction": "", "medians": "", "steps": " steps", "halvings": " halvings"}


def duration(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


def test_the_documented_table_is_that_of_the_code() -> None:
    rows = [line.strip("| ").split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    documented = {cells[0].strip(" `"): [cell.strip() for cell in cells[2:]] for cells in rows}
    assert list(documented) == list(KINDS)
    for kind in KINDS:
        rule, limits = DEFAULTS[kind], LIMITS[kind]
        unit = UNITS.get(limits["threshold"].unit, f" {limits['threshold'].unit}") if "threshold" in limits else ""
        threshold = "" if rule.threshold is None else f"{rule.threshold:g}{unit}"
        window = "" if rule.window is None else f"{rule.window} steps"
        assert documented[kind] == [threshold, window, rule.severity, duration(rule.cool_down_s)], kind


def test_every_kind_has_a_default_that_may_be_and_needs_no_warning() -> None:
    assert set(DEFAULTS) == set(LIMITS) == set(TITLES) == set(KINDS)
    for kind, rule in DEFAULTS.items():
        rules.check_rule(rule)
        assert rules.warnings(rule) == []
        assert {name for name in FIELDS if getattr(rule, name) is not None} == set(LIMITS[kind])


def test_what_explains_comes_before_what_it_explains_or_either_does() -> None:
    for kind, others in EXPLAINS.items():
        for other in others:
            assert KINDS.index(kind) < KINDS.index(other) or kind in EXPLAINS[other]


def test_a_narrower_scope_goes_over_a_wider_one_field_by_field() -> None:
    found = rules.effective([{"skip_rate": {"threshold": 0.2, "window": 100}}, {"skip_rate": {"window": 300}}, {}])
    assert found["skip_rate"] == replace(DEFAULTS["skip_rate"], threshold=0.2, window=300)
    assert found["dead_run"] == DEFAULTS["dead_run"]


def test_what_an_older_version_allowed_and_this_one_does_not_is_left_out() -> None:
    change = {"threshold": 2.0, "window": 10**9, "colour": "red", "enabled": False}
    assert rules.changed(DEFAULTS["skip_rate"], change) == replace(DEFAULTS["skip_rate"], enabled=False)


@pytest.mark.parametrize("kind", KINDS)
def test_the_ends_of_every_range_are_taken_and_what_is_beyond_is_not(kind: rules.Kind) -> None:
    for name, limits in LIMITS[kind].items():
        for value in (limits.least, limits.most):
            rules.check_change(kind, {name: value})
        for value in (limits.least - 1, limits.most * 2, float("nan"), float("inf")):
            with pytest.raises(InvalidRequestError, match=name):
                rules.check_change(kind, {name: value})
