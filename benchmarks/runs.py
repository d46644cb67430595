"""How long a page of the list of runs takes, filtered, searched, sorted and far down, on each engine."""

import argparse
import json
import math
import tempfile
import time
import uuid
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

from _databases import ENGINES, Engine, new_database
from _server import ServerProcess, running_server
from gradsight import wire
from gradsight_server.store import sparklines
from gradsight_server.store.database import Database
from gradsight_server.store.ingest import ingest
from gradsight_server.store.runs import put_run

BUDGET_MS = 30.0
NUM_STEPS = 100
TIMEOUT_S = 600.0
QUESTIONS: dict[str, dict[str, str | int]] = {
    "first page": {},
    "by name": {"sort": "name"},
    "last seen": {"sort": "-last_seen_s"},
    "one project": {"project": "project-7"},
    "a tag": {"tag": "tag-3"},
    "running": {"status": "running"},
    "search, many": {"q": "run-1"},
    "search, one": {"q": "run-4321"},
    "search, none": {"q": "nothing has this name"},
    "search, not ASCII": {"q": "größe früh später"},
    "200 runs": {"limit": 200},
}


def fill(database: Database, num_runs: int) -> None:
    """Runs of some steps each, with configs as large as people's are, and their sparklines."""
    config = {f"option_{i}": {"value": i, "text": "x" * 20} for i in range(40)}
    norms: list[wire.Number | None] = [0.5 + 0.01 * (i % 13) for i in range(NUM_STEPS)]
    columns = {"grad_norm_before_clip": norms, "max_norm": [1.0] * NUM_STEPS, "loss": [2.0] * NUM_STEPS}
    written = []
    for i in range(num_runs):
        run_id = uuid.UUID(int=i * 0x9E3779B97F4A7C15 % 2**128).hex
        tags = [f"tag-{i % 10}", f"tag-{i % 7}"]
        record = wire.RunRecord(project=f"project-{i % 20}", name=f"run-{i}", tags=tags, config=config)
        batch = wire.Batch(step=list(range(NUM_STEPS)), **columns)  # type: ignore[arg-type]
        if i % 3 == 0:
            batch.events = [wire.Event(kind="finished")]

        def work(conn, run_id=run_id, record=record, batch=batch, now_s=1e9 + i):  # type: ignore[no-untyped-def]
            put_run(conn, run_id, record, now_s=now_s)
            ingest(conn, run_id, "main", batch, now_s=now_s)

        written.append(database.write(work))
    for future in written:
        future.result(TIMEOUT_S)
    while sparklines.refresh(database, now_s=time.time()):
        pass


def ask(connection: HTTPConnection, query: dict[str, str | int]) -> tuple[float, dict[str, object]]:
    """How long the answer takes, to its last byte, in ms; and what it says."""
    start = time.perf_counter()
    connection.request("GET", f"/api/v1/runs?{urlencode(query)}")
    answer = connection.getresponse()
    text = answer.read()
    took_ms = 1e3 * (time.perf_counter() - start)
    if answer.status != 200:
        raise RuntimeError(f"{query} was answered {answer.status}: {text[:200]!r}")
    return took_ms, json.loads(text)


def measure(server: ServerProcess, num_times: int) -> dict[str, dict[str, float]]:
    """The median and the 95th percentile of each question, in ms."""
    connection = HTTPConnection(server.host, server.port)
    questions = QUESTIONS | {"far down": {"cursor": _far_down(connection)}}
    found = {}
    for name, query in questions.items():
        times = sorted([ask(connection, query)[0] for _ in range(num_times + 5)][5:])
        p50, p95 = times[num_times // 2], times[math.ceil(0.95 * num_times) - 1]
        found[name] = {"p50_ms": round(p50, 2), "p95_ms": round(p95, 2)}
    connection.close()
    return found


def _far_down(connection: HTTPConnection) -> str:
    cursor = ""
    for _ in range(8):
        _, page = ask(connection, {"limit": 500} | ({"cursor": cursor} if cursor else {}))
        if page["next_cursor"] is None:
            break
        cursor = str(page["next_cursor"])
    return cursor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, action="append", help="one engine only; may be repeated")
    parser.add_argument("--runs", type=int, default=5_000)
    parser.add_argument("--times", type=int, default=40, help="how often each question is asked")
    options = parser.parse_args()
    results = {}
    engines: list[Engine] = options.engine or list(ENGINES)
    for engine in engines:
        with tempfile.TemporaryDirectory() as folder, new_database(engine, Path(folder)) as url:
            database = Database(url)
            fill(database, options.runs)
            database.close()
            with running_server(url, Path(folder)) as server:
                results[engine] = measure(server, options.times)
        for name, took in results[engine].items():
            over = "" if took["p95_ms"] <= BUDGET_MS else "  over budget"
            print(f"{engine:12} {name:14} p50 {took['p50_ms']:7.2f} ms  p95 {took['p95_ms']:7.2f} ms{over}")
    print(json.dumps({"benchmark": "runs", "num_runs": options.runs, "budget_ms": BUDGET_MS, "engines": results}))


if __name__ == "__main__":
    main()
