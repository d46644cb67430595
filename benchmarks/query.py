"""How long a chart takes: a series of 1,000 points against the length of the run, a heat-map against its layers."""

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from _databases import ENGINES, new_database
from _fill import fill
from _server import ServerProcess, running_server
from gradsight_server.store.database import Database

POINTS, BUCKETS = 1_000, 500
COLUMNS = "grad_norm_before_clip,max_norm"
REFERENCE_STEPS = 100_000
"""The run length that others are compared with."""
LAYER_STEPS = 60_000
"""For these a heat-map of 500 buckets is made of the most buckets of the pyramid: 8 of 16 steps for each of its own."""
LAYER_VALUES = 40_000_000
"""How many layer norms a run has at most, so that it is soon there."""


def ask(server: ServerProcess, connection: HTTPConnection, path: str) -> float:
    """How long a GET takes, to the answer's last byte, in ms."""
    start = time.perf_counter()
    connection.request("GET", f"/api/v1/{path}")
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path} answered {answer.status}: {text[:200]!r}")
    return 1e3 * (time.perf_counter() - start)


def times(server: ServerProcess, paths: Iterator[str], num_times: int) -> dict[str, float]:
    """p50 and p95 of so many questions, after some that warm up."""
    connection = HTTPConnection(server.host, server.port)
    found = sorted([ask(server, connection, next(paths)) for _ in range(num_times + 5)][5:])
    connection.close()
    return {"p50_ms": round(found[num_times // 2], 2), "p95_ms": round(found[math.ceil(0.95 * num_times) - 1], 2)}


def ranges(num_steps: int, *, is_random: bool) -> Iterator[str]:
    """Query strings: the whole run again and again, or ranges between any two steps."""
    numbers = random.Random(num_steps)
    while True:
        ends = sorted((numbers.randrange(num_steps), numbers.randrange(num_steps)))
        first, last = ends if is_random else (0, num_steps - 1)
        yield f"first_step={first}&last_step={last}"


def measure_series(server: ServerProcess, run_id: str, num_steps: int, num_times: int) -> dict[str, Any]:
    def paths(*, is_random: bool) -> Iterator[str]:
        base = f"runs/{run_id}/series?columns={COLUMNS}&points={POINTS}&"
        return (base + part for part in ranges(num_steps, is_random=is_random))

    return {
        "num_steps": num_steps,
        "full": times(server, paths(is_random=False), num_times),
        "random": times(server, paths(is_random=True), num_times),
    }


def measure_layers(
    server: ServerProcess, run_id: str, num_layers: int, num_steps: int, num_times: int
) -> dict[str, Any]:
    # No two questions alike: the server would remember the answer.
    paths = (f"runs/{run_id}/figures/layers?points={BUCKETS}&last_step={num_steps - i}" for i in range(1, 10_000))
    return {"num_layers": num_layers, "num_steps": num_steps, "heat_map": times(server, paths, num_times)}


def print_series(rows: list[dict[str, Any]]) -> None:
    reference = next((row["full"]["p50_ms"] for row in rows if row["num_steps"] == REFERENCE_STEPS), None)
    print(f"{'steps':>12} {'full p50':>9} {'p95':>7} {'random p50':>11} {'p95':>7} {'full ÷':>7} {'random ÷':>9}")
    for row in rows:
        full, some = row["full"], row["random"]
        print(f"{row['num_steps']:>12,} {full['p50_ms']:>9} {full['p95_ms']:>7}", end=" ")
        print(f"{some['p50_ms']:>11} {some['p95_ms']:>7}", end=" ")
        if reference:
            row["full_ratio"], row["random_ratio"] = (round(of["p50_ms"] / reference, 2) for of in (full, some))
            print(f"{row['full_ratio']:>7} {row['random_ratio']:>9}", end="")
        print()


def print_layers(rows: list[dict[str, Any]]) -> None:
    print(f"{'layers':>12} {'steps':>9} {'heat-map p50':>13} {'p95':>7}")
    for row in rows:
        found = row["heat_map"]
        print(f"{row['num_layers']:>12,} {row['num_steps']:>9,} {found['p50_ms']:>13} {found['p95_ms']:>7}")


def fill_all(db: str, lengths: list[int], layers: list[int], say: Callable[[str], None]) -> None:
    database = Database(db)
    try:
        for num_steps in lengths:
            start = time.perf_counter()
            fill(database, run_id_of(num_steps), num_steps)
            say(f"made {num_steps:,} steps in {time.perf_counter() - start:.0f} s")
        for num_layers in layers:
            fill(database, run_id_of(num_layers, of_layers=True), steps_with(num_layers), num_layers=num_layers)
    finally:
        database.close()


def run_id_of(number: int, *, of_layers: bool = False) -> str:
    return f"{'b' if of_layers else 'a'}{number:031d}"


def steps_with(num_layers: int) -> int:
    return min(LAYER_STEPS, LAYER_VALUES // num_layers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--max-steps", type=int, default=10_000_000, help="length of the longest run")
    parser.add_argument("--layers", type=int, nargs="*", default=[10, 100, 400, 1_000, 4_000])
    parser.add_argument("--times", type=int, default=100, help="how often each question is asked")
    options = parser.parse_args()
    lengths = [10**power for power in range(4, 8) if 10**power <= options.max_steps]
    with (
        tempfile.TemporaryDirectory(prefix="gradsight-") as folder,
        new_database(options.engine, Path(folder)) as db,
    ):
        fill_all(db, lengths, options.layers, lambda text: print(text, flush=True))
        with running_server(db, Path(folder)) as server:
            series = [measure_series(server, run_id_of(n), n, options.times) for n in lengths]
            layers = [
                measure_layers(server, run_id_of(n, of_layers=True), n, steps_with(n), options.times)
                for n in options.layers
            ]
            memory = server.memory_mb()
    print_series(series)
    print_layers(layers)
    peak_mb = round(memory[1]) if memory else None
    answer = {"benchmark": "query", "engine": options.engine, "series": series, "layers": layers}
    print(json.dumps(answer | {"server_peak_mb": peak_mb}))


if __name__ == "__main__":
    main()
