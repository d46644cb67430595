"""Which changes of a verdict are news. What gets worse is told at once, all else once it has lasted."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gradsight_server.diagnosis import Diagnosis, Severity
from gradsight_server.judging.verdict import nonfinite_severity, rank
from gradsight_server.store.verdicts import News

HOLD_S = 30.0
EARLY_STEPS = 300
"""Norms fall at the start: what is said of clipping before so many of them must last, however bad it is."""

SAID = {
    "clipping.off": "clipping was turned off",
    "clipping.inactive": "clipping became inactive",
    "clipping.healthy": "clipping became healthy",
    "clipping.firm": "clipping became firm",
    "clipping.too_tight": "clipping became too tight",
    "clipping.too_loose": "clipping became too loose",
    "loss_scaling.static": "the loss scale became a fixed one",
    "loss_scaling.warming_up": "the loss scale is being searched for again",
    "loss_scaling.healthy": "the loss scale became healthy",
    "loss_scaling.thrashing": "the loss scale began to thrash",
    "loss_scaling.collapsing": "the loss scale began to collapse",
    "loss_scaling.collapsed": "the loss scale collapsed",
    "loss_scaling.model_nan": "the model itself became NaN",
    "nonfinite.ok": "gradients became finite again",
    "nonfinite.info": "single gradients became non-finite",
    "nonfinite.warning": "gradients became non-finite",
    "nonfinite.critical": "gradients stay non-finite",
}
"""What an event says; a verdict that isn't here is not worth one."""

Told = dict[str, dict[str, tuple[str, Severity]]]
"""Stream → section → the verdict that was told last, and its severity; as JSON a list of the two."""


class _Change(NamedTuple):
    verdict: str
    since_s: float


class Teller:
    """Remembers since when each change has lasted; what was told is kept with the run."""

    def __init__(self, *, hold_s: float = HOLD_S) -> None:
        self._hold_s = hold_s
        self._changes: dict[tuple[str, str, str], _Change] = {}

    def look(self, run_id: str, diagnoses: Mapping[str, Diagnosis], told: Told, *, now_s: float) -> None:
        """Notes what differs from what was told, and since when it does."""
        for stream, section, verdict, _ in _all_sections(diagnoses):
            key = (run_id, stream, section)
            before = told.get(stream, {}).get(section)
            change = self._changes.get(key)
            if before is not None and before[0] == verdict:
                self._changes.pop(key, None)
            elif change is None or change.verdict != verdict:
                self._changes[key] = _Change(verdict, now_s)

    def news(
        self, run_id: str, diagnoses: Mapping[str, Diagnosis], told: Told, *, now_s: float
    ) -> tuple[Told, list[News]]:
        """What is told from now on, and what of it is news."""
        kept: Told = {stream: dict(sections) for stream, sections in told.items()}
        news = []
        for stream, section, verdict, severity in _all_sections(diagnoses):
            sections = kept.setdefault(stream, {})
            before = sections.get(section)
            is_first = before is None or before[0] == "unknown"
            is_other = before is None or before[0] != verdict
            is_alarm = rank(severity) >= rank("warning") and (before is None or rank(severity) > rank(before[1]))
            is_early = section == "clipping" and diagnoses[stream].range.num_finite < EARLY_STEPS
            is_at_once = not is_early if is_alarm else is_first or not is_other
            if is_at_once or self._has_lasted((run_id, stream, section), now_s):
                sections[section] = (verdict, severity)
                message = SAID.get(f"{section}.{verdict}")
                if message is not None and (is_alarm or (is_other and not is_first)):
                    news.append(News(stream, diagnoses[stream].range.last_step, message))
        return kept, news

    def _has_lasted(self, key: tuple[str, str, str], now_s: float) -> bool:
        change = self._changes.get(key)
        return change is not None and now_s - change.since_s >= self._hold_s


def is_all_told(diagnoses: Mapping[str, Diagnosis], told: Told) -> bool:
    """Whether nothing of these verdicts has still to last before it is told."""
    return all(
        told.get(stream, {}).get(section, ("",))[0] == verdict
        for stream, section, verdict, _ in _all_sections(diagnoses)
    )


def _all_sections(diagnoses: Mapping[str, Diagnosis]) -> Iterator[tuple[str, str, str, Severity]]:
    """(stream, section, verdict, severity)"""
    for stream, diagnosis in diagnoses.items():
        nonfinite = nonfinite_severity(diagnosis)
        yield stream, "clipping", diagnosis.clipping.verdict, diagnosis.clipping.severity
        yield stream, "loss_scaling", diagnosis.loss_scaling.verdict, diagnosis.loss_scaling.severity
        yield stream, "nonfinite", nonfinite, nonfinite
