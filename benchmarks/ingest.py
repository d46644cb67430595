"""How many values a second one server takes in over HTTP, how many bytes a value costs, how much memory the server."""

import argparse
import json
import math
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from _databases import ENGINES, Engine, new_database, num_bytes
from _server import ServerProcess, running_server
from gradsight import wire

SCALARS = (
    "loss",
    "lr",
    "grad_norm_before_clip",
    "max_norm",
    "clip_coef",
    "loss_scale",
    "loss_scale_after",
    "step_time_s",
    "hook_time_s",
)
"""What the hook records of every step, beside the layer norms; all of them count as values, times and flags do not."""

HEADERS = {"Content-Type": wire.CONTENT_TYPE_MSGPACK, "Accept": wire.CONTENT_TYPE_MSGPACK}


class Load(NamedTuple):
    """One way of sending: batches of so many steps, from so many trainings at once."""

    steps_per_batch: int
    connections: int
    num_steps: int
    """Of each training."""


class Outcome(NamedTuple):
    values_per_s: float
    batches_per_s: float
    p50_ms: float
    p99_ms: float
    num_values: int


def bodies(load: Load, num_layers: int, seed: int) -> list[bytes]:
    """The batches of one training, encoded, as the hook sends them."""
    random = np.random.default_rng(seed)
    layers = [f"blocks.{i}.weight" for i in range(num_layers)]
    scale = np.exp(random.normal(-3.0, 1.0, num_layers)).astype("<f4")
    found = []
    for first in range(0, load.num_steps, load.steps_per_batch):
        n = min(load.steps_per_batch, load.num_steps - first)
        norms = scale * np.exp(random.normal(0.0, 0.2, (n, num_layers))).astype("<f4")
        total = np.sqrt(np.square(norms, dtype=np.float64).sum(axis=1))
        columns = {
            "loss": 2.0 + random.normal(0.0, 0.1, n),
            "lr": np.full(n, 3e-4),
            "grad_norm_before_clip": total,
            "max_norm": np.ones(n),
            "clip_coef": np.minimum(1.0, 1.0 / (total + 1e-6)),
            "loss_scale": np.full(n, 65536.0),
            "loss_scale_after": np.full(n, 65536.0),
            "step_time_s": 0.1 + random.normal(0.0, 1e-3, n),
            "hook_time_s": 5e-5 + random.normal(0.0, 1e-6, n),
        }
        batch = wire.Batch(
            attempt_id="benchmark",
            attempt_started_at_s=1.0,
            sequence=first,
            step=list(range(first, first + n)),
            wall_time_s=[1.7e9 + 0.1 * step for step in range(first, first + n)],
            skipped=[False] * n,
            layers_id=wire.layers_id(layers),
            layers=list(layers) if first == 0 else None,
            layer_step=list(range(first, first + n)),
            layer_norms=norms.tobytes(),
            **{name: column.tolist() for name, column in columns.items()},
        )
        found.append(wire.encode(batch))
    return found


def measure(server: ServerProcess, load: Load, num_layers: int, name: str) -> Outcome:
    """Sends all of it, each training from a thread of its own, one batch after another."""
    prepared = [bodies(load, num_layers, seed) for seed in range(load.connections)]
    times_s: list[float] = []
    threads = [
        threading.Thread(target=_send, args=(server, f"{name}{i:030x}", batches, times_s))
        for i, batches in enumerate(prepared)
    ]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    duration_s = time.perf_counter() - start
    num_batches = sum(map(len, prepared))
    if len(times_s) != num_batches:
        raise RuntimeError(f"{num_batches - len(times_s)} batches were not taken in")
    num_values = load.connections * load.num_steps * (num_layers + len(SCALARS))
    times_s.sort()
    return Outcome(
        values_per_s=num_values / duration_s,
        batches_per_s=num_batches / duration_s,
        p50_ms=1e3 * times_s[len(times_s) // 2],
        p99_ms=1e3 * times_s[math.ceil(0.99 * len(times_s)) - 1],
        num_values=num_values,
    )


def _send(server: ServerProcess, run_id: str, batches: list[bytes], times_s: list[float]) -> None:
    connection = HTTPConnection(server.host, server.port)
    ask(connection, "PUT", f"/api/v1/runs/{run_id}", b"")
    for body in batches:
        start = time.perf_counter()
        ask(connection, "POST", f"/api/v1/runs/{run_id}/streams/main/batches", body)
        times_s.append(time.perf_counter() - start)
    connection.close()


def ask(connection: HTTPConnection, method: str, path: str, body: bytes) -> None:
    connection.request(method, path, body, HEADERS)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{method} {path} answered {answer.status}: {text[:200]!r}")


def run(engine: Engine, load: Load, num_layers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="gradsight-") as folder, new_database(engine, Path(folder)) as db:
        empty_bytes = num_bytes(db)
        with running_server(db, Path(folder)) as server:
            cpu_before_s = server.cpu_s()
            outcome = measure(server, load, num_layers, "ab")
            cpu_after_s = server.cpu_s()
            memory = server.memory_mb()
        used_bytes = num_bytes(db) - empty_bytes
    return {
        "steps_per_batch": load.steps_per_batch,
        "connections": load.connections,
        "num_layers": num_layers,
        "values_per_s": round(outcome.values_per_s),
        "values_per_cpu_s": _per(outcome.num_values, cpu_before_s, cpu_after_s),
        "batches_per_s": round(outcome.batches_per_s, 1),
        "p50_ms": round(outcome.p50_ms, 2),
        "p99_ms": round(outcome.p99_ms, 2),
        "bytes_per_value": round(used_bytes / outcome.num_values, 2),
        "server_mb": round(memory[0]) if memory else None,
        "server_peak_mb": round(memory[1]) if memory else None,
    }


def _per(num_values: int, before_s: float | None, after_s: float | None) -> int | None:
    """What the server would take in with a processor of its own: tells the same on a busy machine."""
    if before_s is None or after_s is None or after_s <= before_s:
        return None
    return round(num_values / (after_s - before_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--layers", type=int, default=150)
    parser.add_argument("--steps", type=int, default=40_000, help="of all trainings together, at 100-step batches")
    options = parser.parse_args()
    loads = [
        Load(steps_per_batch=100, connections=1, num_steps=options.steps),
        Load(steps_per_batch=100, connections=4, num_steps=options.steps // 4),
        Load(steps_per_batch=2, connections=1, num_steps=options.steps // 8),
        Load(steps_per_batch=2, connections=8, num_steps=options.steps // 16),
    ]
    rows = []
    print(
        f"{'steps/batch':>11} {'conns':>5} {'M values/s':>10} {'/ CPU s':>7} {'batches/s':>9} {'p50 ms':>7} {'p99':>7}",
        end=" ",
    )
    print(f"{'bytes/value':>11} {'server MB':>9}")
    for load in loads:
        row = run(options.engine, load, options.layers)
        rows.append(row)
        print(f"{row['steps_per_batch']:>11} {row['connections']:>5} {row['values_per_s'] / 1e6:>10.2f}", end=" ")
        print(f"{(row['values_per_cpu_s'] or 0) / 1e6:>7.2f}", end=" ")
        print(f"{row['batches_per_s']:>9.0f} {row['p50_ms']:>7.2f} {row['p99_ms']:>7.2f}", end=" ")
        print(f"{row['bytes_per_value']:>11.2f} {row['server_mb'] or 0:>9}", flush=True)
    print(json.dumps({"benchmark": "ingest", "engine": options.engine, "loads": rows}))


if __name__ == "__main__":
    main()
