"""How soon a planted NaN burst is at a webhook and in an open live stream, and what judging costs a batch."""

import argparse
import json
import math
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from _databases import ENGINES, Engine, new_database
from _server import ServerProcess, running_server
from gradsight import wire
from gradsight_server.store import alerting, pending, runs
from gradsight_server.store.alerting import Outcome
from gradsight_server.store.database import Database
from gradsight_server.store.ingest import ingest

NUM_TRIES = 20
PAUSE_S = 3.0
"""Between tries: a target gets ten messages at once, and then one in five seconds."""
WAIT_S = 20.0
Arrivals = queue.SimpleQueue[tuple[str, float]]
"""(run id, when by the monotonic clock)"""


@contextmanager
def webhook() -> Iterator[tuple[str, Arrivals]]:
    """The URL of a receiver, and what arrives there."""
    arrived: Arrivals = queue.SimpleQueue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            arrived.put((body["message"].rpartition("/")[2], time.perf_counter()))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"json://127.0.0.1:{server.server_address[1]}/", arrived
    server.shutdown()
    server.server_close()


def follow(url: str, arrived: Arrivals, ready: threading.Event) -> None:
    """What an open browser hears of alerts, until the server ends."""
    with httpx.Client(timeout=None, trust_env=False) as client, client.stream("GET", f"{url}/api/v1/live") as answer:
        event = ""
        try:
            for line in answer.iter_lines():
                name, _, value = line.partition(": ")
                event = value if name == "event" else event
                ready.set()
                if name == "data" and event == "alert" and json.loads(value)["change"] == "opened":
                    arrived.put((json.loads(value)["run_id"], time.perf_counter()))
        except httpx.HTTPError:
            pass


def one_try(server: ServerProcess, number: int) -> tuple[str, float]:
    """Trains a little, then sends a burst; the run, and when the burst was sent."""
    run_id = f"{number + 1:032x}"
    connection = HTTPConnection(server.host, server.port)
    random = np.random.default_rng(number)
    record = wire.RunRecord(streams={"main": wire.StreamRecord(precision="bf16", scaler=None)})
    _ask(connection, "PUT", f"/api/v1/runs/{run_id}", wire.encode(record))
    path = f"/api/v1/runs/{run_id}/streams/main/batches"
    for first in range(0, 200, 20):
        norms = np.exp(random.normal(0.0, 0.3, 20)).tolist()
        _ask(connection, "POST", path, wire.encode(_batch(first, norms)))
    begin_s = time.perf_counter()
    _ask(connection, "POST", path, wire.encode(_batch(200, [1.0, math.nan, math.nan, math.nan])))
    connection.close()
    return run_id, begin_s


def end(server: ServerProcess, run_id: str) -> None:
    """The run is over: else it would be told of as silent half a minute later."""
    connection = HTTPConnection(server.host, server.port)
    batch = wire.Batch(events=[wire.Event(kind="finished")])
    _ask(connection, "POST", f"/api/v1/runs/{run_id}/streams/main/batches", wire.encode(batch))
    connection.close()


def _batch(first: int, norms: list[float]) -> wire.Batch:
    times: list[float | None] = [time.time()] * len(norms)
    steps = list(range(first, first + len(norms)))
    return wire.Batch(step=steps, wall_time_s=times, grad_norm_before_clip=list(norms))


def _ask(connection: HTTPConnection, method: str, path: str, body: bytes) -> None:
    connection.request(method, path, body, {"Content-Type": wire.CONTENT_TYPE_MSGPACK})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{method} {path} answered {answer.status}: {text[:200]!r}")


def measure_delay(engine: Engine, num_tries: int) -> dict[str, Any]:
    told: Arrivals = queue.SimpleQueue()
    ready = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="gradsight-") as folder,
        new_database(engine, Path(folder)) as db,
        webhook() as (hook, arrived),
        running_server(
            db,
            Path(folder),
            environment={"GRADSIGHT_NOTIFICATIONS": hook, "GRADSIGHT_PUBLIC_URL": "http://benchmark"},
        ) as server,
    ):
        threading.Thread(target=follow, args=(server.url, told, ready), daemon=True).start()
        ready.wait(WAIT_S)
        at_webhook, in_browser = [], []
        for number in range(num_tries):
            run_id, begin_s = one_try(server, number)
            at_webhook.append(_delay(arrived, run_id, begin_s))
            in_browser.append(_delay(told, run_id, begin_s))
            end(server, run_id)
            time.sleep(PAUSE_S)
        if not (arrived.empty() and told.empty()):
            raise RuntimeError("an alert was told of twice")
    return {"num_tries": num_tries, "webhook": _figures(at_webhook), "browser": _figures(in_browser)}


def _delay(arrivals: Arrivals, run_id: str, begin_s: float) -> float:
    found, at_s = arrivals.get(timeout=WAIT_S)
    if found != run_id:
        raise RuntimeError(f"expected an alert of {run_id}, got one of {found}")
    return at_s - begin_s


def _figures(delays: list[float]) -> dict[str, float]:
    ordered = sorted(delays)
    return {
        "p50_s": round(statistics.median(ordered), 3),
        "p95_s": round(ordered[math.ceil(0.95 * len(ordered)) - 1], 3),
        "max_s": round(ordered[-1], 3),
    }


def measure_cost(steps_per_batch: int, num_batches: int) -> float:
    """What judging adds to a batch's processor time: with it and without, in turn, in one process."""
    spent = {True: 0.0, False: 0.0}
    judge = alerting.judge
    with tempfile.TemporaryDirectory(prefix="gradsight-") as folder:
        database = Database(f"sqlite:///{folder}/gradsight.db")
        database.migrate()
        record = wire.RunRecord(
            streams={
                "main": wire.StreamRecord(
                    policy="global_norm(1.0)", precision="fp16", scaler="dynamic(growth_interval=2000)"
                )
            }
        )
        for run_id in ("a" * 32, "b" * 32):
            database.write(partial(runs.put_run, run_id=run_id, record=record, now_s=1.0)).result()
        for number in range(num_batches):
            batch = _full_batch(number * steps_per_batch, steps_per_batch)
            for is_judged in (True, False) if number % 2 else (False, True):  # the second finds the batch in its caches
                pending.alerting.judge = judge if is_judged else lambda *_: Outcome()  # type: ignore[attr-defined]
                run_id = ("a" if is_judged else "b") * 32
                begin_s = time.process_time()
                database.write(partial(ingest, run_id=run_id, stream="main", batch=batch, now_s=2.0)).result()
                spent[is_judged] += time.process_time() - begin_s
        database.close()
    return round(spent[True] / spent[False], 3)


def _full_batch(first: int, num: int, num_layers: int = 150) -> wire.Batch:
    random = np.random.default_rng(first)
    norms = np.exp(random.normal(-0.7, 0.4, num))
    layers = [f"blocks.{i}.weight" for i in range(num_layers)]
    steps = list(range(first, first + num))
    return wire.Batch(
        attempt_id="benchmark",
        attempt_started_at_s=1.0,
        step=steps,
        wall_time_s=[1.7e9 + 0.1 * step for step in steps],
        loss=[2.0] * num,
        lr=[3e-4] * num,
        grad_norm_before_clip=norms.tolist(),
        max_norm=[1.0] * num,
        clip_coef=np.minimum(1.0, 1.0 / (norms + 1e-6)).tolist(),
        loss_scale=[65536.0] * num,
        loss_scale_after=[65536.0] * num,
        skipped=[False] * num,
        layers_id=wire.layers_id(layers),
        layers=list(layers) if first == 0 else None,
        layer_step=steps,
        layer_norms=np.abs(random.normal(0.0, 0.1, (num, num_layers))).astype("<f4").tobytes(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--tries", type=int, default=NUM_TRIES)
    options = parser.parse_args()
    delays = measure_delay(options.engine, options.tries)
    print(f"{'from the burst to':<20} {'p50 s':>7} {'p95 s':>7} {'max s':>7}   ({options.tries} tries)")
    for place in ("webhook", "browser"):
        figures = delays[place]
        print(f"{place:<20} {figures['p50_s']:>7.3f} {figures['p95_s']:>7.3f} {figures['max_s']:>7.3f}", flush=True)
    costs = {size: measure_cost(size, num) for size, num in ((100, 200), (2, 2_000))}
    for size, ratio in costs.items():
        print(f"processor time of a batch of {size} steps with judging ÷ without: {ratio:.3f}")
    print(json.dumps({"benchmark": "alerts", "engine": options.engine, **delays, "judging_ratio": costs}))


if __name__ == "__main__":
    main()
