"""What it costs ingest that each run's verdict is kept current: the same batches with and without, turn by turn.

Two servers are up at once, one of which never judges; each round sends the next batches of the same trainings first to
one, then to the other, and the next round the other way round, so that whatever else the machine does meets both alike.
"""

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from _databases import new_database
from _server import ServerProcess, running_server
from ingest import SCALARS, Load, ask, bodies

WITHOUT = "--never-judge"
FIRST_ROUND = 2
"""Rounds before it warm the servers up and are not counted."""


JUDGED_WITHIN_S = 120.0


class Round(NamedTuple):
    duration_s: float
    cpu_s: float | None


@contextmanager
def server(folder: Path, *, is_judging: bool) -> Iterator[ServerProcess]:
    folder.mkdir()
    program = ("-m", "gradsight_server.cli") if is_judging else (str(Path(__file__).resolve()), WITHOUT)
    with new_database("sqlite", folder) as db, running_server(db, folder, program=program) as started:
        yield started


def serve_without_verdicts(arguments: list[str]) -> None:
    """The server as it is, but for the thread that judges: it is told of no run."""
    from gradsight_server.cli import main
    from gradsight_server.judging import VerdictKeeper

    VerdictKeeper.note = lambda self, run_id: None  # type: ignore[method-assign]
    sys.argv = ["gradsight", *arguments]
    main()


def send(server: ServerProcess, batches: list[list[bytes]]) -> Round:
    """Each training's batches from a thread of its own."""
    before_s = server.cpu_s()
    start = time.perf_counter()
    threads = [threading.Thread(target=_send, args=(server, i, mine)) for i, mine in enumerate(batches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    duration_s = time.perf_counter() - start
    after_s = server.cpu_s()
    return Round(duration_s, None if before_s is None or after_s is None else after_s - before_s)


def _send(server: ServerProcess, training: int, batches: list[bytes]) -> None:
    connection = HTTPConnection(server.host, server.port)
    run_id = f"{training:032x}"
    ask(connection, "PUT", f"/api/v1/runs/{run_id}", b"")
    for body in batches:
        ask(connection, "POST", f"/api/v1/runs/{run_id}/streams/main/batches", body)
    connection.close()


def compare(load: Load, num_layers: int, num_rounds: int) -> dict[str, Any]:
    num_each = load.num_steps // load.steps_per_batch // (num_rounds + FIRST_ROUND)
    if num_each == 0:
        raise SystemExit("error: --steps must be enough for a batch in each round.")
    prepared = [bodies(load, num_layers, seed) for seed in range(load.connections)]
    rounds: dict[bool, list[Round]] = {True: [], False: []}
    with (
        tempfile.TemporaryDirectory(prefix="gradsight-") as name,
        server(Path(name) / "with", is_judging=True) as judging,
        server(Path(name) / "without", is_judging=False) as plain,
    ):
        servers = {True: judging, False: plain}
        for number in range(num_rounds + FIRST_ROUND):
            now = [batches[number * num_each : (number + 1) * num_each] for batches in prepared]
            for is_judging in (True, False) if number % 2 else (False, True):
                rounds[is_judging].append(send(servers[is_judging], now))
        until_s = time.monotonic() + JUDGED_WITHIN_S
        while not all(_is_judged(judging, i) for i in range(load.connections)):
            if time.monotonic() > until_s:
                raise RuntimeError("the server that should judge its runs did not")
            time.sleep(0.5)
        if _is_judged(plain, 0):
            raise RuntimeError("the server that should not judge its runs did")
    counted = {is_judging: found[FIRST_ROUND:] for is_judging, found in rounds.items()}
    num_values = num_rounds * num_each * load.steps_per_batch * load.connections * (num_layers + len(SCALARS))
    return {
        "steps_per_batch": load.steps_per_batch,
        "connections": load.connections,
        "rounds": num_rounds,
        "values_per_s": round(num_values / sum(one.duration_s for one in counted[True])),
        "values_per_s_without": round(num_values / sum(one.duration_s for one in counted[False])),
        "time_ratio": round(
            _ratio([one.duration_s for one in counted[True]], [o.duration_s for o in counted[False]]), 3
        ),
        "cpu_ratio": _cpu_ratio(counted),
    }


def _is_judged(server: ServerProcess, training: int) -> bool:
    connection = HTTPConnection(server.host, server.port)
    connection.request("GET", f"/api/v1/runs/{training:032x}")
    run = json.loads(connection.getresponse().read())
    connection.close()
    return run["verdict"] is not None


def _ratio(with_verdicts: list[float], without: list[float]) -> float:
    """The median of the rounds, each of which met the two servers one after the other."""
    return statistics.median(a / b for a, b in zip(with_verdicts, without, strict=True))


def _cpu_ratio(counted: dict[bool, list[Round]]) -> float | None:
    """Of all rounds together: a clock that ticks every 10 ms is too coarse for one."""
    totals = {
        is_judging: sum(one.cpu_s for one in found if one.cpu_s is not None) for is_judging, found in counted.items()
    }
    return round(totals[True] / totals[False], 3) if totals[False] else None


def main() -> None:
    if WITHOUT in sys.argv:
        serve_without_verdicts([argument for argument in sys.argv[1:] if argument != WITHOUT])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=150)
    parser.add_argument("--steps", type=int, default=60_000, help="of all trainings together, at 100-step batches")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    loads = [
        Load(steps_per_batch=100, connections=1, num_steps=options.steps),
        Load(steps_per_batch=100, connections=8, num_steps=options.steps // 8),
        Load(steps_per_batch=4, connections=8, num_steps=options.steps // 64),
    ]
    rows = []
    print(f"{'steps/batch':>11} {'conns':>5} {'M values/s':>10} {'without':>8} {'time ÷ without':>15} {'CPU ÷':>6}")
    for load in loads:
        row = compare(load, options.layers, options.rounds)
        rows.append(row)
        print(
            f"{row['steps_per_batch']:>11} {row['connections']:>5} {row['values_per_s'] / 1e6:>10.2f} "
            f"{row['values_per_s_without'] / 1e6:>8.2f} {row['time_ratio']:>15.3f} {row['cpu_ratio'] or 0:>6.3f}",
            flush=True,
        )
    print(json.dumps({"benchmark": "verdicts", "loads": rows}))


if __name__ == "__main__":
    main()
