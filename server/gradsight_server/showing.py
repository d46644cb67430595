"""`gradsight show`: a run in the terminal: what it is, how far it is, its newest values, its last events."""

import json
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradsight_server.asking import get_json
from gradsight_server.diagnosis.texts import Figure
from gradsight_server.listing import COLOURS, SEVERITY_COLOURS, ago, plain, terminal

NUM_EVENTS = 8
LAST_VALUES = {
    "grad_norm_before_clip": "norm before clip",
    "max_norm": "max_norm",
    "clip_coef": "clip coefficient",
    "loss": "loss",
    "loss_scale": "loss scale",
}


def show_run(run_id: str, server: str, token: str | None, *, as_json: bool) -> int:
    """Prints the run; the exit code."""
    run = get_json(server, token, f"runs/{run_id}")
    events = get_json(server, token, f"runs/{run_id}/events", {"limit": NUM_EVENTS})["items"]
    if as_json:
        print(json.dumps(run | {"events": events}))
        return 0
    console = terminal()
    console.print(Text.assemble(plain(run["name"], style="bold"), plain(f"  {run['project']}", style="dim")))
    console.print(_grid(_facts(run, f"{server.rstrip('/')}/runs/{run['id']}", time.time())))
    for name, stream in run["streams_detail"].items():
        console.print()
        console.print(Text.assemble("stream ", plain(name, style="bold")))
        console.print(_grid(_stream_facts(stream)))
    if events:
        console.print()
        _print_events(console, events)
    return 0


def _grid(facts: Iterator[tuple[str, Text]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, value in facts:
        grid.add_row(name, value)
    return grid


def _facts(run: dict[str, Any], url: str, now_s: float) -> Iterator[tuple[str, Text]]:
    state = Text(run["state"], style=COLOURS.get(run["state"], ""))
    seen, began = ago(now_s - run["last_seen_s"]), ago(now_s - run["started_at_s"])
    yield "state", Text.assemble(state, Text(f", last seen {seen} ago, started {began} ago", style="dim"))
    yield "verdict", _verdict(run)
    yield "steps", Text(_progress(run))
    if run["tags"]:
        yield "tags", plain(", ".join(run["tags"]))
    if len(run["attempts"]) > 1:
        yield "attempts", Text(str(len(run["attempts"])))
    lost = sum(count for attempt in run["attempts"] for count in attempt["dropped"].values())
    if lost:
        yield "telemetry lost", Text(f"{lost:,} rows", style=SEVERITY_COLOURS["warning"])
    if run["config"]:
        yield "config", plain(", ".join(f"{name}={value}" for name, value in run["config"].items()))
    if run["notes"]:
        yield "notes", plain(run["notes"])
    yield "id", Text(run["id"])
    yield "page", Text(url)


def _verdict(run: dict[str, Any]) -> Text:
    verdict = run["verdict"]
    if verdict is None:
        return Text("not judged yet", style="dim")
    parts = []
    for label, section in (("clipping", verdict["clipping"]), ("loss scale", verdict["loss_scaling"])):
        words = f"{label} {section['verdict'].replace('_', ' ')}"
        parts.append(Text(words, style=SEVERITY_COLOURS[section["severity"]]))
    nonfinite = verdict["nonfinite"]
    words = f"{nonfinite['num_steps']:,} non-finite" if nonfinite["num_steps"] else "no NaN or Inf"
    parts.append(Text(words, style=SEVERITY_COLOURS[nonfinite["severity"]]))
    return Text(", ").join(parts)


def _progress(run: dict[str, Any]) -> str:
    if run["last_step"] is None:
        return "none yet"
    of = f" of {run['total_steps']:,}" if run["total_steps"] else ""
    rate = f", {run['steps_per_s']:.3g} a second" if run["steps_per_s"] else ""
    return f"last {run['last_step']:,}{of}{rate}; {run['num_steps']:,} recorded, {run['num_applied']:,} applied"


def _stream_facts(stream: dict[str, Any]) -> Iterator[tuple[str, Text]]:
    record = stream["record"]
    if optimizer := record.get("optimizer"):
        yield "optimizer", plain(optimizer["class"])
    for name, label in (("policy", "clipping"), ("precision", "precision"), ("scaler", "loss scaling")):
        if name in record:
            yield label, plain("off" if record[name] is None else str(record[name]))
    counts = ", ".join(f"{stream[f'num_{kind}']:,} {kind}" for kind in ("clipped", "skipped", "nonfinite"))
    yield "steps", Text(f"{stream['num_steps']:,} recorded, {counts}")
    for name, label in LAST_VALUES.items():
        value = stream["last"]["nonfinite"].get(name, stream["last"][name])
        if value is not None:
            yield label, Text(value if isinstance(value, str) else format(Figure(value)))


def _print_events(console: Console, events: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("step", "event", "what"):
        table.add_column(title, justify="right" if title == "step" else "left")
    for event in events:
        step = "" if event["step"] is None else f"{event['step']:,}"
        table.add_row(step, plain(event["kind"]), plain(event["message"]))
    console.print(table)
