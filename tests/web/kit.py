"""A real server in a process of its own, that can be killed and started again; and what a test asks of a page."""

import itertools
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page

DEADLINE_S = 40.0
START_DEADLINE_S = 90.0
"""A server imports much: on a machine that is busy with other tests it takes its time."""
LAYERS = ["wte.weight", "blocks.0.<b>attn</b>.weight", "blocks.0.mlp.weight", "head.weight"]

_run_ids = itertools.count(1)


class Served:
    """`gradsight serve` on a port that stays the same when it is started again."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=DEADLINE_S, trust_env=False)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "gradsight_server.cli", "serve", "--port", str(self.port), "--db", "runs.db"]
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        wait_until(self._answers, START_DEADLINE_S)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(DEADLINE_S)

    def close(self) -> None:
        self.client.close()
        self.kill()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the server ended by itself"
        try:
            return self.client.get("/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def put(self, **record: Any) -> "SentRun":
        """A new run without steps."""
        run = SentRun(self, f"{next(_run_ids):032x}")
        run.put(**record)
        return run

    def num_streams_open(self) -> int:
        found = re.search(r"^gradsight_live_subscribers (\S+)$", self.client.get("/metrics").text, re.MULTILINE)
        assert found is not None
        return int(float(found[1]))

    def forget_all(self) -> None:
        for run in self.client.get("/api/v1/runs", params={"limit": 500}).json()["items"]:
            self.client.delete(f"/api/v1/runs/{run['id']}").raise_for_status()


class SentRun:
    """A run on the server, and short words for sending its steps."""

    def __init__(self, served: Served, run_id: str) -> None:
        self.id = run_id
        self.path = f"/runs/{run_id}"
        self.url = served.url + self.path
        self._client = served.client

    def put(self, **record: Any) -> None:
        self._client.put(f"/api/v1{self.path}", json=record).raise_for_status()

    def send(self, steps: Sequence[int], *, stream: str = "main", attempt_id: str = "", **columns: Any) -> None:
        """Steps with plausible values in every chart; columns given go over them, None leaves one out."""
        batch: dict[str, Any] = {
            "attempt_id": attempt_id,
            "step": list(steps),
            "grad_norm_before_clip": [norm_at(step) for step in steps],
            "max_norm": [1.0 for _ in steps],
            "clip_coef": [min(1.0, 1.0 / norm_at(step)) for step in steps],
            "loss": [4.0 - step / 1000 for step in steps],
            "lr": [3e-4 for _ in steps],
            "loss_scale": [65536.0 for _ in steps],
            "layers": LAYERS,
            "layer_step": list(steps),
            "layer_norms": [[norm_at(step) / (i + 1) for i in range(len(LAYERS))] for step in steps],
        }
        batch = {name: value for name, value in (batch | columns).items() if value is not None}
        self.post(batch, stream=stream)

    def post(self, batch: dict[str, Any], *, stream: str = "main") -> None:
        self._client.post(f"/api/v1{self.path}/streams/{stream}/batches", json=batch).raise_for_status()


def norm_at(step: int) -> float:
    """A norm that is clipped at each fifth step."""
    return 1.5 if step % 5 == 0 else 0.5


def send_too_tight(run: SentRun, steps: Sequence[int], *, stream: str = "main") -> None:
    """Norms around 20 and a threshold of 1.0: each step is clipped to about a twentieth."""
    norms = [20.0 + 4.0 * ((7 * step) % 11 - 5) / 5 for step in steps]
    coefs = [1.0 / norm for norm in norms]
    columns: dict[str, Any] = {"grad_norm_before_clip": norms, "clip_coef": coefs, "loss_scale": None}
    run.send(steps, stream=stream, **columns, **WITHOUT_LAYERS)


WITHOUT_LAYERS: dict[str, Any] = {"layers": None, "layer_step": None, "layer_norms": None}


def wait_until(is_true: Callable[[], object], within_s: float = DEADLINE_S) -> None:
    """Returns once it is; fails at the deadline."""
    deadline_s = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.02)


def shown_range(page: Page) -> list[list[float]]:
    """The step axis of each chart that is drawn, rounded to whole steps."""
    ranges: list[list[float]] = page.evaluate(
        """() => [...document.querySelectorAll(".chart-plot")].filter((plot) => plot._fullLayout)
             .map((plot) => plot._fullLayout.xaxis.range.map((edge) => Math.round(edge * 2) / 2))"""
    )
    return ranges


def drawn_charts(page: Page) -> list[str]:
    """The names of the charts that are drawn and in sight."""
    names: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("chart-row:not(.is-empty)")]
             .filter((row) => row.querySelector(".main-svg") && row.querySelector(".chart-words").hidden)
             .map((row) => row.dataset.figure)"""
    )
    return names


def last_drawn_step(page: Page) -> float | None:
    """The newest step of the norm's line, as Plotly holds it."""
    step: float | None = page.evaluate(
        """() => {
          const plot = document.querySelector("chart-row[data-figure=norm] .chart-plot");
          const line = plot?._fullData?.find((trace) => trace.mode.startsWith("lines") && trace.fill !== "toself");
          return line ? line.x.at(-1) : null;
        }"""
    )
    return step


ALL_CHARTS = ["norm", "clip_fraction", "clip_coef", "loss", "loss_scale", "layers"]


def wait_for_charts(page: Page, names: Sequence[str] = ALL_CHARTS) -> None:
    wait_until(lambda: drawn_charts(page) == list(names))


def call_of(page: Page, module: str, name: str, *arguments: Any) -> Any:
    """What a function of one of the page's own modules gives."""
    return page.evaluate(
        """async ([module, name, args]) => {
          const main = document.querySelector("script[type=module]").src;
          return (await import(new URL(`lib/${module}`, main)))[name](...args);
        }""",
        [module, name, list(arguments)],
    )
