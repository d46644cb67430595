"""A report as Markdown, the size of an issue comment: verdicts, numbers, the findings that matter, the set-up."""

import re
from collections.abc import Iterator
from typing import Any

from gradsight_server.diagnosis.texts import Figure
from gradsight_server.reports.advice import blocks_of
from gradsight_server.reports.contents import Contents

MARKS = {"ok": "✅", "info": "ℹ️", "warning": "⚠️", "critical": "❌"}
MOST_FINDINGS = 6
MAX_VALUE = 80
MAX_LENGTH = 12_000
"""Well below what an issue tracker takes."""


def markdown(contents: Contents) -> str:
    """The whole document."""
    text = "\n".join(_lines(contents)) + "\n"
    return text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH].rsplit("\n", 1)[0] + "\n…\n"


def _lines(contents: Contents) -> Iterator[str]:
    run = contents.run
    yield f"## {_plain(run['name'])}"
    yield ""
    parts = [run["state"], f"{run['num_steps']:,} steps"]
    parts += [f"{run[f'num_{kind}']:,} {word}" for kind, word in (("skipped", "skipped"), ("nonfinite", "non-finite"))]
    yield ", ".join(parts) + "."
    for name, stream in contents.streams.items():
        yield ""
        if len(contents.streams) > 1:
            yield f"### Stream {_plain(name)}"
            yield ""
        yield from _stream(stream.diagnosis)
    rows = list(_set_up(run))
    if rows:
        yield ""
        yield "| set-up | |"
        yield "|---|---|"
        yield from (f"| {_cell(name)} | {_cell(value)} |" for name, value in rows)
    if contents.notes:
        yield ""
        yield from (f"- {_plain(note)}" for note in contents.notes)
    yield ""
    yield "<sub>Written by `gradsight report`. Norms are of unscaled gradients before clipping.</sub>"


def _stream(diagnosis: dict[str, Any]) -> Iterator[str]:
    clipping, scaling, nonfinite = (diagnosis[name] for name in ("clipping", "loss_scaling", "nonfinite"))
    yield "| what | verdict | numbers |"
    yield "|---|---|---|"
    yield f"| clipping | {_verdict(clipping)} | {_clipping(clipping)} |"
    yield f"| loss scale | {_verdict(scaling)} | {_scaling(scaling)} |"
    bursts = len(nonfinite["bursts"])
    numbers = f"in {bursts} burst{'s' * (bursts != 1)}" if bursts else ""
    count = nonfinite["num_steps"]
    yield f"| NaN and Inf | {MARKS['critical' if count else 'ok']} {count:,} step{'s' * (count != 1)} | {numbers} |"
    for finding in diagnosis["findings"][:MOST_FINDINGS]:
        yield ""
        yield f"{MARKS[finding['severity']]} **{_plain(finding['title'])}**"
        for block in blocks_of(finding["advice"]):
            yield ""
            yield f"```python\n{block.text}\n```" if block.is_code else _plain(block.text)
    left = len(diagnosis["findings"]) - MOST_FINDINGS
    if left > 0:
        yield ""
        yield f"… and {left} more."


def _verdict(section: dict[str, Any]) -> str:
    return f"{MARKS[section['severity']]} {section['verdict'].replace('_', ' ')}"


def _clipping(section: dict[str, Any]) -> str:
    parts = []
    if section["clip_fraction"] is not None:
        parts.append(f"{Figure(section['clip_fraction']):percent} clipped")
    for name, word in (("p50", "median norm"), ("max", "largest")):
        if section["norm"][name] is not None:
            parts.append(f"{word} {Figure(section['norm'][name]):}")
    wanted = section["recommended_max_norm"]
    if wanted is not None and section["severity"] in ("warning", "critical"):
        parts.append(f"better max_norm {Figure(wanted['low']):} to {Figure(wanted['high']):}")
    return ", ".join(parts)


def _scaling(section: dict[str, Any]) -> str:
    if section["last_scale"] is None:
        return ""
    return f"last {Figure(section['last_scale']):}, {section['num_skipped']:,} skipped"


def _set_up(run: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for stream in run["streams_detail"].values():
        for name, value in stream["record"].items():
            yield name, value["class"] if name == "optimizer" else str(value)
        break
    for name, value in run["config"].items():
        if name != "import":
            yield name, str(value)


def _cell(text: str) -> str:
    shown = text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"
    return _plain(shown).replace("|", "\\|")


def _plain(text: str) -> str:
    """Text from elsewhere as it is: nothing in it is markup."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]<>#@])", r"\\\1", one_line).replace("\\_", "_")
