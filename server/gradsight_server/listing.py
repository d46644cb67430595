"""`gradsight runs`: a server's runs as a table."""

import json
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradsight_server.asking import get_json
from gradsight_server.cli import complain

COLOURS = {"running": "green", "stalled": "yellow", "silent": "yellow", "failed": "red", "finished": "dim"}
SEVERITY_COLOURS = {"ok": "green", "info": "", "warning": "yellow", "critical": "bold red"}
WIDTH_OF_A_PIPE = 200
MAX_LISTED = 200
"""So many of the newest runs tell which projects there are."""


def list_runs(server: str, token: str | None, *, project: str | None, limit: int, as_json: bool) -> int:
    """Prints the table; the exit code."""
    query: dict[str, Any] = {"limit": limit} | ({"project": project} if project is not None else {})
    answer = get_json(server, token, "runs", query)
    if as_json:
        print(json.dumps(answer))
        return 0
    items = answer["items"]
    if not items:
        return complain(_nothing(server, token, project), exit_code=1)
    terminal().print(_table(items, time.time()))
    return 0


def _nothing(server: str, token: str | None, project: str | None) -> str:
    newest = get_json(server, token, "runs", {"limit": MAX_LISTED})["items"] if project is not None else []
    known = ", ".join(sorted({repr(run["project"]) for run in newest}))
    return (
        f"there is no run of project {project!r}; there are {known}."
        if known
        else f"there are no runs at {server} yet."
    )


def _table(items: list[dict[str, Any]], now_s: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("run", "project", "state", "verdict"):
        table.add_column(title)
    for title in ("last step", "steps/s", "norm", "clipped", "skipped", "not finite", "seen"):
        table.add_column(title, justify="right")
    table.add_column("id", no_wrap=True)
    for run in items:
        norm, rate = run["last"]["grad_norm_before_clip"], run["steps_per_s"]
        table.add_row(
            plain(run["name"]),
            plain(run["project"]),
            Text(run["state"], style=COLOURS.get(run["state"], "")),
            _verdict(run),
            "–" if run["last_step"] is None else str(run["last_step"]),
            "–" if rate is None else f"{rate:.3g}",
            "–" if norm is None else f"{norm:.4g}",
            _share(run["num_clipped"], run["num_steps"]),
            str(run["num_skipped"]),
            str(run["num_nonfinite"]),
            ago(now_s - run["last_seen_s"]),
            run["id"],
        )
    return table


def _verdict(run: dict[str, Any]) -> Text:
    """What is worst, in a word or two; how clipping does where nothing is."""
    verdict = run.get("verdict")
    if verdict is None:
        return Text("–")
    worst = verdict["worst"]
    words = worst["code"] if worst and run["severity"] != "ok" else f"clipping_{verdict['clipping']['verdict']}"
    return Text(words.replace("_", " "), style=SEVERITY_COLOURS[run["severity"]])


def plain(text: str, *, style: str = "") -> Text:
    """A text from elsewhere as it is: neither Rich's markup nor a terminal's control characters do anything."""
    return Text("".join(c if c.isprintable() or c == "\n" else "�" for c in text), style=style)


def _share(part: int, whole: int) -> str:
    return "–" if not whole else f"{100 * part / whole:.0f} %"


def terminal() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for a row where a file or another program reads."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(width=WIDTH_OF_A_PIPE, highlight=False)


def ago(seconds: float) -> str:
    """A duration by its largest unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
