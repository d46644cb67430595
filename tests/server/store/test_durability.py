"""An acknowledged batch is there after the writing process is killed; a batch is never there by half."""

import signal
import subprocess
import sys

import pytest

from gradsight_server.store import models
from gradsight_server.store.database import Database
from tests.server.store.kit import RUN, Store

WRITER = """
import sys
from gradsight import wire
from gradsight_server.store.database import Database
from gradsight_server.store.ingest import ingest
from gradsight_server.store.runs import put_run

url, run_id = sys.argv[1:]
db = Database(url)
db.migrate()
db.write(lambda conn: put_run(conn, run_id, wire.RunRecord(), now_s=1.0)).result()
for i in range(1_000_000):
    batch = wire.Batch(
        step=[2 * i, 2 * i + 1], loss=[1.0, 2.0], layers=["a"], layer_step=[2 * i], layer_norms=[[1.0]]
    )
    answer = db.write(lambda conn: ingest(conn, run_id, "main", batch, now_s=1.0)).result()
    print(answer.last_step, flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill -9")
def test_an_acknowledged_batch_survives_a_killed_server(url: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, url, RUN], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.kill()
    acknowledged = [int(line) for line in process.stdout if line.endswith("\n")]
    process.wait(timeout=30)
    last = max(acknowledged, default=2 * 20 - 1)
    db = Database(url)
    try:
        db.migrate()
        store = Store(db)
        stored = [row["step"] for row in store.rows(models.steps)]
        assert stored == list(range(len(stored)))
        assert len(stored) >= last + 1
        assert len(stored) % 2 == 0, "a batch is there whole or not at all"
        assert sum(row["present"].bit_count() for row in store.rows(models.layer_blocks)) == len(stored) // 2
        assert store.run()["num_steps"] == len(stored)
    finally:
        db.close()
    process.stdout.close()
