"""What a message says of an alert, as plain text: whatever names hold arrives as text, each on its own line. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_LISTED = 20
MAX_NAME = 200
_CALLS = re.compile(r"@(?=(everyone|here|channel|all)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Note:
    """A message: a title of our own words, lines that hold names from elsewhere, and where to look."""

    title: str
    lines: tuple[str, ...]
    link: str | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """A row of the outbox."""

    outbox_id: int
    run_id: str
    project: str
    severity: str
    payload: Mapping[str, Any]
    created_at_s: float


def note_of(waiting: Sequence[Waiting], *, public_url: str | None) -> Note:
    """One message about one alert, or about all that wait."""
    if len(waiting) == 1:
        return _of_one(waiting[0], public_url)
    lines = [_in_a_line(item) for item in waiting[:MAX_LISTED]]
    if len(waiting) > MAX_LISTED:
        lines.append(f"… and {len(waiting) - MAX_LISTED} more")
    return Note(f"Gradsight: {len(waiting)} alerts", tuple(lines), public_url)


def trial_note(target: str, *, public_url: str | None) -> Note:
    """What a test sends."""
    return Note("Gradsight: test", (f"This is a test of the notification target {plain(target)}.",), public_url)


def plain(text: str) -> str:
    """A name as one line of text, that neither breaks out of its line nor calls everybody in a chat."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return _CALLS.sub("@\u200b", shown if len(shown) <= MAX_NAME else shown[: MAX_NAME - 1] + "…")


def _of_one(item: Waiting, public_url: str | None) -> Note:
    told = item.payload
    again = f", for the {_nth(told['num_repeats'] + 1)} time" if told["num_repeats"] else ""
    where = [f"run {plain(told['run_name'])} (project {plain(item.project)})"]
    if told["stream"] not in (None, "main"):
        where.append(f"stream {plain(told['stream'])}")
    if (told["attempt"] or 1) > 1:
        where.append(f"launch {told['attempt']}")
    lines = [f"{plain(told['title'])}{again}", ", ".join(where)]
    facts = [part for part in (_steps(told), _value(told), _layer(told)) if part]
    if facts:
        lines.append(", ".join(facts))
    link = None if public_url is None else f"{public_url}/runs/{item.run_id}"
    return Note(f"Gradsight: {item.severity} alert", tuple(lines), link)


def _in_a_line(item: Waiting) -> str:
    told = item.payload
    return f"{item.severity}: {plain(told['title'])} (run {plain(told['run_name'])}, project {plain(item.project)})"


def _steps(told: Mapping[str, Any]) -> str:
    first, last = told["first_step"], told["last_step"]
    if last is None:
        return ""
    return f"step {last}" if first in (None, last) else f"steps {first} to {last}"


def _value(told: Mapping[str, Any]) -> str:
    return "" if told["value"] is None else f"value {told['value']:.6g}"


def _layer(told: Mapping[str, Any]) -> str:
    return "" if told["layer"] is None else f"first bad layer {plain(told['layer'])}"


def _nth(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
