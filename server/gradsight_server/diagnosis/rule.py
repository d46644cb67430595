"""What a rule is and what it finds; the rules themselves are in the files by subject, their table is in rules.py."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from gradsight_server.diagnosis.answer import Severity
from gradsight_server.diagnosis.observed import Observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One thing a rule has to say. The words for it are in the catalogue (texts/), by code, variant and language."""

    code: str
    severity: Severity
    evidence: Mapping[str, float] = field(default_factory=dict)
    variant: str = ""
    """Which of the code's texts: what to do may differ by optimizer, say."""
    names: tuple[str, ...] = ()
    """Layers or metrics that the text names."""
    steps: tuple[int, int] | None = None
    """First and last one it is about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A row of the table in docs/findings.md; `find` may give several codes only if each has a row of its own."""

    code: str
    border: str
    severities: tuple[Severity, ...]
    source: str


Find = Callable[[Observed], Iterable[Found]]


def spanning(observed: Observed, first_row: int, last_row: int) -> tuple[int, int]:
    """The `steps` of a Found, from rows."""
    return observed.step_at(first_row), observed.step_at(last_row)
