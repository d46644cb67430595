"""A disk that fills up in mid-ingest: 507, the database whole, and everything that was acknowledged in it."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Pool, event

from tests.server.api.kit import BATCHES, RUN, Running, running

ENOUGH_PAGES = 100_000


class Disk:
    """How many pages a database may have, on each connection from its next use on."""

    max_pages = 300

    def limit(self, dbapi_connection: Any, _record: Any, _proxy: Any) -> None:
        dbapi_connection.execute(f"PRAGMA max_page_count = {self.max_pages}")


@pytest.fixture
def disk() -> Iterator[Disk]:
    small = Disk()
    event.listen(Pool, "checkout", small.limit)
    yield small
    event.remove(Pool, "checkout", small.limit)


@pytest.fixture
def small(disk: Disk, tmp_path: Path) -> Iterator[Running]:
    """A server whose database may not grow beyond some pages."""
    with running(tmp_path) as server:
        server.put()
        yield server


def batch(first: int) -> dict[str, Any]:
    steps = list(range(first, first + 50))
    layers = {"layers": [f"layer {i}" for i in range(100)], "layer_step": steps, "layer_norms": [[1.0] * 100] * 50}
    return {"step": steps, "loss": [1.0] * 50, "grad_norm_before_clip": [0.5] * 50} | layers


def test_a_full_disk_is_answered_507_and_leaves_the_database_whole(
    small: Running, disk: Disk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    num_taken = 0
    while (answer := small.client.post(BATCHES, json=batch(50 * num_taken))).status_code == 200:
        num_taken += 1
        assert num_taken < 1_000
    assert answer.status_code == 507
    assert answer.json()["error"] == "DiskFull"
    assert "disk is full" in answer.json()["detail"]
    assert num_taken > 3
    assert small.client.post(BATCHES, json=batch(50 * num_taken)).status_code == 507
    assert "Traceback" not in caplog.text
    assert [small.client.get(path).status_code for path in ("/healthz", "/readyz", "/readyz")] == [200, 507, 507]

    run = small.get(f"runs/{RUN}")
    assert (run["num_steps"], run["last_step"]) == (50 * num_taken, 50 * num_taken - 1)
    found = small.get(f"runs/{RUN}/series", columns="loss", points=10_000)
    assert found["step"] == list(range(50 * num_taken))
    with sqlite3.connect(tmp_path / "gradsight.db") as conn:
        assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert conn.execute("SELECT sum(num_steps) FROM buckets WHERE level = 1").fetchone() == (
            50 * num_taken // 16 * 16,
        )
    conn.close()

    disk.max_pages = ENOUGH_PAGES
    assert small.client.get("/readyz").status_code == 200
    assert small.client.post(BATCHES, json=batch(50 * num_taken)).status_code == 200
    assert small.get(f"runs/{RUN}")["num_steps"] == 50 * (num_taken + 1)
