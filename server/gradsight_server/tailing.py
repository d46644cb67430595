"""`gradsight tail`: a run's newest steps in the terminal, then each new one as it comes."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
from rich.console import Console
from rich.text import Text

from gradsight_server.asking import asking, explained, get_json
from gradsight_server.diagnosis.texts import Figure
from gradsight_server.errors import NothingToReadError
from gradsight_server.listing import plain, terminal

COLUMNS = ("grad_norm_before_clip", "max_norm", "clip_coef", "loss", "lr", "loss_scale")
TITLES = ("step", "norm", "max_norm", "coef", "loss", "lr", "scale")
WIDTH = 11
SILENCE_S = 60.0
"""The server sends a sign of life each 15 s; after so long without one the connection is dead."""

Row = dict[str, Any]


def tail_run(
    run_id: str, server: str, token: str | None, *, stream: str | None, lines: int, follow: bool, as_json: bool
) -> int:
    """Prints the steps until the run ends or the person does; the exit code."""
    run = get_json(server, token, f"runs/{run_id}")
    name = stream or ("main" if "main" in run["streams"] or not run["streams"] else run["streams"][0])
    if stream is not None and run["streams"] and stream not in run["streams"]:
        raise NothingToReadError(f"run {run['id']} has no stream {stream!r}; it has {', '.join(run['streams'])}.")
    console = terminal()
    if not as_json:
        console.print(Text.assemble(plain(run["name"], style="bold"), plain(f"  stream {name}", style="dim")))
        console.print(Text("".join(title.rjust(WIDTH) for title in TITLES), style="bold"))
    last = -1
    for row in _newest(server, token, run, name, lines):
        last = row["step"]
        _print(console, row, as_json)
    if not follow or run["status"] != "running":
        return 0
    try:
        for kind, payload in _events(server, token, run["id"], run["position"]):
            if kind in ("tick", "stale") and payload.get("run_id") in (run["id"], None):
                is_ours = kind == "tick" and payload["stream"] == name and payload["steps"]
                rows = list(_rows(payload["steps"])) if is_ours else []
                if kind == "stale":
                    rows = list(_newest(server, token, run, name, lines))
                    if rows and rows[-1]["step"] < last:  # a resumed launch has taken the place of what was shown
                        last = -1
                for row in rows:
                    if row["step"] > last:
                        last = row["step"]
                        _print(console, row, as_json)
            elif kind == "deleted" and payload["run_id"] == run["id"]:
                raise NothingToReadError(f"run {run['id']} has been deleted.")
            elif kind == "run" and payload["id"] == run["id"] and payload["status"] != "running":
                return 0
    except KeyboardInterrupt:
        return 0
    raise NothingToReadError(f"the server at {server} ended the connection.")


def _newest(server: str, token: str | None, run: Row, stream: str, lines: int) -> Iterator[Row]:
    if lines < 1 or stream not in run["streams"]:
        return
    last = get_json(server, token, f"runs/{run['id']}")["streams_detail"][stream]["last_step"]
    if last is None:
        return
    query = {"stream": stream, "columns": ",".join(COLUMNS), "first_step": max(0, last - lines + 1), "points": lines}
    found = get_json(server, token, f"runs/{run['id']}/series", query)
    for i, step in enumerate(found["step"]):
        columns = {name: found["columns"][name] for name in COLUMNS}
        row = {name: column["max"][i] for name, column in columns.items()}
        odd = any(column["num_nonfinite"][i] for column in columns.values())
        yield row | {"step": step, "skipped": bool(found["num_skipped"][i]), "nonfinite": odd}


def _rows(steps: dict[str, list[Any]]) -> Iterator[Row]:
    names = ("step", *COLUMNS, "skipped", "nonfinite")
    for values in zip(*(steps[name] for name in names), strict=True):
        yield dict(zip(names, values, strict=True))


def _print(console: Console, row: Row, as_json: bool) -> None:
    if as_json:
        print(json.dumps(row), flush=True)
        return
    cells = [str(row["step"]), *("–" if row[name] is None else format(Figure(row[name])) for name in COLUMNS)]
    line = Text("".join(cell.rjust(WIDTH) for cell in cells))
    norm, threshold = row["grad_norm_before_clip"], row["max_norm"]
    if row["nonfinite"]:
        line.append("  not finite", style="bold red")
    if row["skipped"]:
        line.append("  skipped", style="yellow")
    elif norm is not None and threshold is not None and norm > threshold:
        line.append("  clipped", style="yellow")
    console.print(line)


def _events(server: str, token: str | None, run_id: str, after: int) -> Iterator[tuple[str, Any]]:
    """(kind, payload) of the live stream."""
    query = {"runs": run_id, "after": after}
    with asking(server, token, "live", query, timeout_s=SILENCE_S) as answer:
        if answer.status_code != 200:
            answer.read()
            raise explained(server, answer)
        kind, payload = "", ""
        try:
            for line in answer.iter_lines():
                if line.startswith("event:"):
                    kind = line[6:].strip()
                elif line.startswith("data:"):
                    payload += line[5:].strip()
                elif not line and payload:
                    yield kind, json.loads(payload)
                    kind, payload = "", ""
        except httpx.HTTPError as error:
            raise NothingToReadError(f"the connection to {server} broke: {error}.") from error
