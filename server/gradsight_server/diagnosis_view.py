"""A diagnosis in the terminal: verdicts at a glance, the norm as a sparkline, findings with numbers and advice."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradsight_server.diagnosis.inputs import Floats
from gradsight_server.diagnosis.texts import Figure
from gradsight_server.listing import SEVERITY_COLOURS, plain

SPARKS, SPARKS_IN_ASCII = "▁▂▃▄▅▆▇█", "_.-:=+*#"
SPARK_COLUMNS = 60
LABEL = 13
CONTENT = ("healthy", "inactive", "off")
"""Verdicts on clipping beside which no other threshold is offered."""
MARKS = {"ok": "✓", "info": "·", "warning": "!", "critical": "✗"}
IN_ASCII = str.maketrans({"–": "-", "−": "-", "×": "x", "÷": "/", "…": "...", "’": "'"})
"""What the catalogue's words hold beside ASCII."""
MARKS_IN_ASCII = {"ok": "ok", "info": "-", "warning": "!", "critical": "X"}


def show(console: Console, name: str, diagnosis: dict[str, Any], norms: Floats, notes: Sequence[str] = ()) -> None:
    """Prints it.

    Args:
        diagnosis: As JSON.
        norms: By step, NaN where not finite: what the sparkline is drawn from.
        notes: What could not be read.
    """
    span = diagnosis["range"]
    console.print(Text.assemble(_plain(console, name, "bold"), "  ", Text(_span(span), style="dim")))
    glance = Table.grid(padding=(0, 2, 0, 0))
    glance.add_column(width=LABEL - 2, no_wrap=True)
    glance.add_column()
    if np.isfinite(norms).any():
        columns = min(SPARK_COLUMNS, max(1, console.width - LABEL))
        line = sparkline(norms, SPARKS if _is_utf8(console) else SPARKS_IN_ASCII, columns)
        glance.add_row("norm", _plain(console, line, "blue"))
        glance.add_row("", Text(_norms(diagnosis), style="dim"))
    for label, verdict, words in _verdicts(diagnosis):
        glance.add_row(label, Text.assemble(verdict, "  " if words else "", Text(words, style="dim")))
    console.print(glance)
    for note in notes:
        console.print(_plain(console, f"Note: {note}", "dim"))
    for finding in diagnosis["findings"]:
        _show_finding(console, finding)


def sparkline(norms: Floats, sparks: str = SPARKS, columns: int = SPARK_COLUMNS) -> str:
    """The largest norm of each part of the steps, by its log; `×` where none was finite."""
    parts = np.array_split(norms, min(columns, len(norms)))
    largest = np.array([np.max(part[np.isfinite(part)], initial=-np.inf) for part in parts])
    positive = largest[largest > 0]
    if len(positive) == 0:
        return "".join(sparks[0] if height == 0 else "×" for height in largest)
    low, high = np.log(positive.min()), np.log(positive.max())
    heights = (np.log(np.maximum(largest, positive.min())) - low) / max(high - low, np.log(1.5))
    places = np.minimum((heights * len(sparks)).astype(int), len(sparks) - 1)
    return "".join("×" if np.isneginf(at) else sparks[place] for at, place in zip(largest, places, strict=True))


def _span(span: dict[str, Any]) -> str:
    if not span["num_steps"]:
        return "no steps"
    finite = f", {span['num_finite']:,} with a finite norm" if span["num_finite"] != span["num_steps"] else ""
    return f"steps {span['first_step']:,} to {span['last_step']:,}: {span['num_steps']:,} recorded{finite}"


def _norms(diagnosis: dict[str, Any]) -> str:
    norm = diagnosis["clipping"]["norm"]
    named = (("median", "p50"), ("p90", "p90"), ("largest", "max"), ("last", "last"))
    return ", ".join(f"{word} {Figure(norm[name])}" for word, name in named if norm[name] is not None)


def _verdicts(diagnosis: dict[str, Any]) -> Iterator[tuple[str, Text, str]]:
    """(what, the verdict, its numbers)"""
    clipping, scaling, nonfinite = (diagnosis[name] for name in ("clipping", "loss_scaling", "nonfinite"))
    yield "clipping", _word(clipping), _clipping(clipping)
    yield "loss scale", _word(scaling), _scaling(scaling)
    num_nonfinite = nonfinite["num_steps"]
    yield "NaN and Inf", Text(_steps(num_nonfinite) if num_nonfinite else "none"), _longest(nonfinite["bursts"])


def _longest(bursts: list[dict[str, Any]]) -> str:
    """The longest burst: finite steps may lie between its own, or steps that were not recorded."""
    if not bursts:
        return ""
    longest = max(bursts, key=lambda burst: burst["num_steps"])
    num_steps, first, last = longest["num_steps"], longest["first_step"], longest["last_step"]
    if last - first + 1 > num_steps:
        return f"the longest burst was of {_steps(num_steps)} between {first:,} and {last:,}"
    return f"the longest burst was of {_steps(num_steps)}{' in a row' * (num_steps > 1)}"


def _steps(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"


def _word(section: dict[str, Any]) -> Text:
    return Text(section["verdict"].replace("_", " "), style=SEVERITY_COLOURS[section["severity"]] or "bold")


def _clipping(section: dict[str, Any]) -> str:
    parts = []
    if section["clip_fraction"] is not None:
        parts.append(f"{Figure(section['clip_fraction']):percent} of the judged steps clipped")
    if section["median_clip_coef"] is not None:
        parts.append(f"median coefficient {Figure(section['median_clip_coef'])}")
    wanted = section["recommended_max_norm"]
    if wanted is not None and section["verdict"] not in CONTENT:
        parts.append(f"better max_norm {Figure(wanted['low'])} to {Figure(wanted['high'])}")
    return ", ".join(parts)


def _scaling(section: dict[str, Any]) -> str:
    if section["last_scale"] is None:
        return ""
    words = f"scale {Figure(section['last_scale'])}, {_steps(section['num_skipped'])} skipped"
    rate = section["skip_rate"]
    return f"{words} ({Figure(rate):percent})" if rate else words


def _show_finding(console: Console, finding: dict[str, Any]) -> None:
    severity = finding["severity"]
    marks = MARKS if _is_utf8(console) else MARKS_IN_ASCII
    head = Text(f"{marks[severity]} {severity}", style=SEVERITY_COLOURS[severity] or "bold")
    console.print()
    console.print(Text.assemble(head, "  ", _plain(console, finding["title"], "bold")))
    console.print(_indented(_plain(console, finding["advice"])))
    numbers = ", ".join(f"{name} {Figure(value)}" for name, value in finding["evidence"].items() if value)
    steps = "" if finding["first_step"] is None else f"steps {finding['first_step']:,} to {finding['last_step']:,}"
    known = "; ".join(part for part in (steps, numbers) if part)
    console.print(_indented(_plain(console, f"{finding['code']}: {known}" if known else finding["code"], "dim")))


def _plain(console: Console, text: str, style: str = "") -> Text:
    """A text, in whatever letters this terminal has."""
    if not _is_utf8(console):
        text = text.translate(IN_ASCII).encode(console.encoding, "replace").decode(console.encoding)
    return plain(text, style=style)


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 4), expand=False)


def _is_utf8(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")
