"""`gradsight runs`: a server's runs as a table."""

import sys
import time
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gradsight.transport import LOOPBACK
from gradsight_server.cli import complain

COLOURS = {"running": "green", "stalled": "yellow", "silent": "yellow", "failed": "red", "finished": "dim"}
WIDTH_OF_A_PIPE = 200


def list_runs(server: str, token: str | None, *, project: str | None, limit: int, as_json: bool) -> int:
    """Prints the table; the exit code."""
    query: dict[str, Any] = {"limit": limit} | ({"project": project} if project is not None else {})
    headers = {b"Authorization": f"Bearer {token}".encode()} if token else {}  # bytes: it need not be ASCII
    try:
        url = httpx.URL(server)
        answer = httpx.get(
            f"{server.rstrip('/')}/api/v1/runs",
            params=query,
            headers=headers,
            trust_env=url.host not in LOOPBACK,
            timeout=10,
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return complain(f"no server answers at {server} ({error}); `gradsight serve` starts one.", exit_code=1)
    if answer.status_code == 401:
        return complain(f"{server} wants its token: --token, or GRADSIGHT_TOKEN.")
    if answer.status_code != 200 or not answer.headers.get("content-type", "").startswith("application/json"):
        return complain(f"{server} does not answer as Gradsight: {answer.status_code} {answer.text[:200]}", exit_code=1)
    if as_json:
        print(answer.text)
        return 0
    items = answer.json()["items"]
    if not items:
        return complain(f"there are no runs at {server} yet.", exit_code=1)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_A_PIPE)
    console.print(_table(items, time.time()))
    return 0


def _table(items: list[dict[str, Any]], now_s: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("run", "project", "state"):
        table.add_column(title)
    for title in ("last step", "steps/s", "norm", "clipped", "skipped", "not finite", "seen"):
        table.add_column(title, justify="right")
    table.add_column("id", no_wrap=True)
    for run in items:
        norm, rate = run["last"]["grad_norm_before_clip"], run["steps_per_s"]
        table.add_row(
            _plain(run["name"]),
            _plain(run["project"]),
            Text(run["state"], style=COLOURS.get(run["state"], "")),
            "–" if run["last_step"] is None else str(run["last_step"]),
            "–" if rate is None else f"{rate:.3g}",
            "–" if norm is None else f"{norm:.4g}",
            _share(run["num_clipped"], run["num_steps"]),
            str(run["num_skipped"]),
            str(run["num_nonfinite"]),
            _ago(now_s - run["last_seen_s"]),
            run["id"],
        )
    return table


def _plain(text: str) -> Text:
    """A name as text: neither Rich's markup nor a terminal's control characters do anything."""
    return Text("".join(character if character.isprintable() else "�" for character in text))


def _share(part: int, whole: int) -> str:
    return "–" if not whole else f"{100 * part / whole:.0f} %"


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
