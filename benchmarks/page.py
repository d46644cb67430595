"""How fast the page is in headless Chromium: a long run at first sight, a live one, many layers, many runs.

A live run is a real training in this process: a small model, watched by `Monitor`, streamed to the server.
"""

import argparse
import json
import math
import statistics
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page
from sqlalchemy import Connection

from _databases import new_database
from _fill import fill
from _page import chromium, heap_mb, main_thread, new_context, noted, wait_for
from _server import ServerProcess, running_server
from gradsight import wire
from gradsight_server.store.database import Database
from gradsight_server.store.ingest import ingest
from runs import fill as fill_list

LONG, MANY_LAYERS, MAP = (f"{i:032x}" for i in (1, 2, 3))
BUDGETS = {
    "verdict, cold": 2_000.0,
    "norm chart, cold": 2_000.0,
    "verdict, warm": 500.0,
    "norm chart, warm": 500.0,
    "step to pixels, p95": 1_000.0,
    "map of 400 x 500": 200.0,
}
"""In milliseconds."""


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def first_sight(browser: Browser, url: str, times: int) -> dict[str, float]:
    """Until verdict and norm chart are there: with nothing in the browser's cache, and from the list of runs in a tab
    that has shown it before."""
    took: dict[str, list[float]] = {}
    for _ in range(times):
        context = new_context(browser)
        page = context.new_page()
        for kind in ("cold", "warm"):
            busy_ms = main_thread(page)
            before_ms = busy_ms()
            if kind == "cold":
                page.goto(url)
                start_ms = 0.0
            else:
                start_ms = open_from_list(page, url)
            wait_for(page, lambda page: noted(page, "chart") and noted(page, "verdict"), "the first chart")
            took.setdefault(f"main thread busy, {kind}", []).append(busy_ms() - before_ms)
            took.setdefault(f"verdict, {kind}", []).append(noted(page, "verdict") - start_ms)
            took.setdefault(f"norm chart, {kind}", []).append(noted(page, "chart") - start_ms)
        context.close()
    return {name: statistics.median(values) for name, values in took.items()}


def open_from_list(page: Page, url: str) -> float:
    """Goes to the list and from there to the run again; gives when it was clicked, by the page's clock."""
    page.locator("a[href='/']").first.click()
    link = page.locator(f"a[href='{urlsplit(url).path}']").first
    link.wait_for()
    started: float = link.evaluate(
        """(link) => {
          delete noted.verdict;
          delete noted.chart;
          const start = performance.now();
          link.click();
          return start;
        }"""
    )
    return started


def map_drawn(browser: Browser, url: str, times: int) -> dict[str, float]:
    """How long Plotly takes for the map of layers, and how long until it is there."""
    draws, until = [], []
    for _ in range(times):
        context = new_context(browser)
        page = context.new_page()
        start = time.perf_counter()
        page.goto(url)
        found = wait_for(page, lambda page: _of(page, "layers"), "the map of layers")
        until.append(1e3 * (time.perf_counter() - start))
        draws.append(found[0])
        context.close()
    return {"drawn": statistics.median(draws), "there": statistics.median(until)}


def _of(page: Any, name: str) -> list[float]:
    return [took for chart, took in noted(page, "draws") if chart == name]


class Training(threading.Thread):
    """A small model that is trained until it is told to stop, one step each so many seconds."""

    def __init__(self, url: str, folder: Path, every_s: float) -> None:
        super().__init__(name="training", daemon=True)
        import gradsight

        self._every_s, self._ended = every_s, threading.Event()
        self.stepped: dict[int, float] = {}
        options: dict[str, Any] = {"server": url, "spool_dir": str(folder / "spool"), "quiet": True}
        self._run = gradsight.Run(project="benchmark", name="live", **options)
        self.run_id = self._run.id

    def run(self) -> None:
        import torch

        from gradsight import Monitor

        model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(6)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        monitor = Monitor(model, optimizer, run=self._run, clip=1.0)
        while not self._ended.wait(self._every_s):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 32)).square().mean()
            result = monitor.step(loss)
            self.stepped[result.step] = time.time()
        self._run.finish()

    def stop(self) -> None:
        self._ended.set()
        self.join(30)


def live(browser: Browser, server: ServerProcess, folder: Path, num_updates: int) -> dict[str, float]:
    """Latency from `monitor.step` to pixels, the time between frames, and memory, of a run that trains meanwhile."""
    training = Training(server.url, folder, every_s=0.1)
    training.start()
    context = new_context(browser)
    page = context.new_page()
    wait_for(page, lambda _: len(training.stepped) > 20, "the first steps")
    page.goto(f"{server.url}/runs/{training.run_id}")
    wait_for(page, lambda page: noted(page, "chart"), "the first chart")
    time.sleep(5)
    page.evaluate("noted.seen.length = noted.frames.length = noted.draws.length = 0")
    time.sleep(20)
    delays = [1e3 * delay for delay in _delays(noted(page, "seen"), training.stepped)]
    frames, draws = noted(page, "frames"), [took for _, took in noted(page, "draws")]
    before = heap_mb(page)
    wait_for_updates(page, num_updates)
    after = heap_mb(page)
    training.stop()
    context.close()
    return {
        "step to pixels, p50": percentile(delays, 0.5),
        "step to pixels, p95": percentile(delays, 0.95),
        "frame, p50": percentile(frames, 0.5),
        "frame, p95": percentile(frames, 0.95),
        "frame, longest": max(frames),
        "one chart's update, p95": percentile(draws, 0.95),
        "heap before, MB": before,
        "heap after, MB": after,
    }


def wait_for_updates(page: Any, num_updates: int) -> None:
    """Until the charts have been drawn so often."""
    page.evaluate("noted.seen.length = noted.frames.length = noted.draws.length = 0")
    drawn = 0
    while drawn < num_updates:
        time.sleep(1)
        drawn += page.evaluate("noted.draws.splice(0).length")
        page.evaluate("noted.seen.length = noted.frames.length = 0")


def _delays(seen: list[list[float]], stepped: dict[int, float]) -> list[float]:
    """Of every step: until the first picture that holds it."""
    delays, shown = [], -1
    for step, at_ms in seen:
        if step is None:
            continue
        delays += [at_ms / 1e3 - stepped[number] for number in range(shown + 1, int(step) + 1) if number in stepped]
        shown = max(shown, int(step))
    # Those before the first picture were there already.
    first = next((int(step) for step, _ in seen if step is not None), -1)
    num_before = sum(number <= first for number in stepped)
    return delays[num_before:]


def listing(browser: Browser, url: str, times: int) -> float:
    """Until the first rows of the list are there."""
    took = []
    for _ in range(times):
        context = new_context(browser)
        page = context.new_page()
        page.goto(url)
        took.append(float(wait_for(page, lambda page: noted(page, "list"), "the list of runs")))
        context.close()
    return statistics.median(took)


def _count(conn: Connection, run_id: str, step: int) -> None:
    """One more step, as a batch: what `fill` leaves out are the counters, without which a run has no steps."""
    batch = wire.Batch(step=[step], grad_norm_before_clip=[1.5], max_norm=[1.0], loss=[2.0], attempt_id="benchmark")
    ingest(conn, run_id, "main", batch, now_s=time.time())


def measure(options: argparse.Namespace) -> dict[str, float]:
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name, new_database("sqlite", Path(name)) as url:
        folder = Path(name)
        database = Database(url)
        for run_id, num_steps, num_layers in ((LONG, options.steps, 0), (MANY_LAYERS, 200, 4_000), (MAP, 500, 400)):
            fill(database, run_id, num_steps, num_layers=num_layers)
            database.write(partial(_count, run_id=run_id, step=num_steps)).result(60)
        database.close()
        with running_server(url, folder) as server, chromium() as browser:
            found |= first_sight(browser, f"{server.url}/runs/{LONG}", options.times)
            found["map of 400 x 500"] = map_drawn(browser, f"{server.url}/runs/{MAP}", options.times)["drawn"]
            many = map_drawn(browser, f"{server.url}/runs/{MANY_LAYERS}", 1)
            found |= {"map of 4,000 layers, drawn": many["drawn"], "map of 4,000 layers, there": many["there"]}
            found |= live(browser, server, folder, options.updates)
        with tempfile.TemporaryDirectory() as other, new_database("sqlite", Path(other)) as list_url:
            database = Database(list_url)
            fill_list(database, options.runs)
            database.close()
            with running_server(list_url, Path(other)) as server, chromium() as browser:
                found[f"list of {options.runs:,} runs"] = listing(browser, server.url, options.times)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the long run")
    parser.add_argument("--runs", type=int, default=5_000, help="in the list")
    parser.add_argument("--updates", type=int, default=1_000, help="of charts, between the two looks at memory")
    parser.add_argument("--times", type=int, default=3, help="how often each page is opened")
    options = parser.parse_args()
    found = measure(options)
    for name, value in found.items():
        unit = "" if name.endswith("MB") else " ms"
        budget = BUDGETS.get(name)
        over = "  over budget" if budget is not None and value > budget else ""
        print(f"{name:30} {value:9.1f}{unit}{'' if budget is None else f'  (budget {budget:.0f} ms)'}{over}")
    rounded = {name: round(value, 1) for name, value in found.items()}
    print(json.dumps({"benchmark": "page", "budgets_ms": BUDGETS, "found": rounded}))


if __name__ == "__main__":
    main()
