"""`gradsight compare`: several runs side by side in the terminal: verdicts, numbers, and where their set-up differs."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from gradsight_server.asking import get_json
from gradsight_server.diagnosis.texts import Figure
from gradsight_server.errors import SettingsError
from gradsight_server.listing import SEVERITY_COLOURS, plain, terminal

MOST = 8
NOTHING = Text("–", style="dim")

Run = dict[str, Any]
Cell = Callable[[Run, dict[str, Any]], Text]


def compare_runs(run_ids: Sequence[str], server: str, token: str | None, *, stream: str | None, as_json: bool) -> int:
    """Prints the comparison; the exit code.

    Raises:
        SettingsError: not two to eight runs.
    """
    if not 2 <= len(run_ids) <= MOST:
        raise SettingsError(f"compare takes 2 to {MOST} runs, got {len(run_ids)}.")
    runs = [get_json(server, token, f"runs/{run_id}") for run_id in run_ids]
    diagnoses = [
        get_json(server, token, f"runs/{run['id']}/diagnosis", {"stream": _stream(run, stream)}) for run in runs
    ]
    differing = list(differences(runs))
    if as_json:
        both = zip(runs, diagnoses, strict=True)
        items = [{"id": run["id"], "name": run["name"], "diagnosis": diagnosis} for run, diagnosis in both]
        print(json.dumps({"items": items, "differences": {name: values for name, values in differing}}))
        return 0
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for run in runs:
        table.add_column(plain(run["name"]), overflow="fold")
    for label, cell in ROWS:
        cells = [cell(run, diagnosis) for run, diagnosis in zip(runs, diagnoses, strict=True)]
        if any(found.plain != NOTHING.plain for found in cells):
            table.add_row(Text(label, style="dim"), *cells)
    for name, values in differing:
        table.add_row(plain(name, style="dim"), *(NOTHING if value is None else plain(str(value)) for value in values))
    terminal().print(table)
    if not differing:
        terminal().print(Text("Their configuration is the same.", style="dim"))
    return 0


def _stream(run: Run, asked: str | None) -> str:
    streams = run["streams"]
    return asked or ("main" if "main" in streams or not streams else streams[0])


def differences(runs: Sequence[Run]) -> Iterator[tuple[str, list[Any]]]:
    """(what, its value in each run or None) of whatever is not the same in all: config, optimizer, policy, versions."""
    flat = [dict(_flat(_set_up(run))) for run in runs]
    for name in dict.fromkeys(name for one in flat for name in one):
        values = [one.get(name) for one in flat]
        if any(value != values[0] for value in values):
            yield name, values


def _set_up(run: Run) -> dict[str, Any]:
    streams = {name: stream["record"] for name, stream in run["streams_detail"].items()}
    of_streams = streams.get("main", {}) if list(streams) == ["main"] else streams
    rest = {"total_steps": run["total_steps"], "world_size": run["world_size"], "versions": run["frameworks"]}
    return {"config": run["config"], "stream": of_streams, **rest}


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield name, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{name}.{key}" if name else str(key))


def _section(name: str) -> Cell:
    def cell(_: Run, diagnosis: dict[str, Any]) -> Text:
        section = diagnosis[name]
        return Text(section["verdict"].replace("_", " "), style=SEVERITY_COLOURS[section["severity"]])

    return cell


def _number(value: float | None, spec: str = "") -> Text:
    return NOTHING if value is None else Text(format(Figure(value), spec))


ROWS: tuple[tuple[str, Cell], ...] = (
    ("project", lambda run, _: plain(run["project"])),
    ("state", lambda run, _: Text(run["state"])),
    ("steps", lambda run, _: Text(f"{run['num_steps']:,}")),
    ("clipping", _section("clipping")),
    ("loss scale", _section("loss_scaling")),
    ("NaN and Inf", lambda run, diagnosis: Text(f"{diagnosis['nonfinite']['num_steps']:,}")),
    ("clipped", lambda run, diagnosis: _number(diagnosis["clipping"]["clip_fraction"], "percent")),
    ("median coefficient", lambda run, diagnosis: _number(diagnosis["clipping"]["median_clip_coef"])),
    ("median norm before clip", lambda run, diagnosis: _number(diagnosis["clipping"]["norm"]["p50"])),
    ("largest norm before clip", lambda run, diagnosis: _number(diagnosis["clipping"]["norm"]["max"])),
    ("last max_norm", lambda run, _: _number(run["last"]["max_norm"])),
    ("last loss", lambda run, _: _number(run["last"]["loss"])),
    ("steps skipped", lambda run, _: Text(f"{run['num_skipped']:,}")),
    ("last loss scale", lambda run, diagnosis: _number(diagnosis["loss_scaling"]["last_scale"])),
)
