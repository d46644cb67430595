"""Two server processes on one PostgreSQL are as one server to whoever asks either."""

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gradsight_server.store import deletion, models
from gradsight_server.store.database import Database
from tests.server.api.kit import Asking, Event, next_of, wait_until
from tests.server.store.kit import Store

pytestmark = pytest.mark.postgresql


class Replica(Asking):
    """`gradsight serve` in a process of its own."""

    def __init__(self, url: str, process: "subprocess.Popen[str]") -> None:
        super().__init__(url)
        self._process = process

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    @property
    def leads(self) -> bool:
        return "gradsight_leader 1.0" in self.client.get("/metrics").text.splitlines()


@contextmanager
def replica(db: str, folder: Path) -> Iterator[Replica]:
    command = [sys.executable, "-m", "gradsight_server.cli", "serve", "--port", "0", "--db", db]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        try:
            assert process.stdout is not None
            found = Replica(process.stdout.readline().split()[3], process)
            with found.client:
                yield found
        finally:
            process.kill()


@pytest.fixture
def pair(postgresql_url: str, tmp_path: Path) -> Iterator[tuple[Replica, Replica]]:
    with ExitStack() as started:
        both = [started.enter_context(replica(postgresql_url, tmp_path)) for _ in range(2)]
        yield both[0], both[1]


def ticks(events: Iterator[Event], last_step: int) -> list[Event]:
    """Ticks up to that of a step; a `stale` among them fails."""
    found: list[Event] = []
    while not found or found[-1].data["steps"]["step"][-1] < last_step:
        event = next(event for event in events if event.name in ("tick", "stale"))
        assert event.name == "tick"
        found.append(event)
    return found


def steps_of(found: list[Event]) -> list[int]:
    return [step for tick in found for step in tick.data["steps"]["step"]]


def test_what_one_takes_in_the_other_shows_and_either_goes_on_from_the_others_ids(
    pair: tuple[Replica, Replica],
) -> None:
    a, b = pair
    run_id = uuid.uuid4().hex
    a.put(run_id, name="shared")
    wait_until(lambda: b.client.get(f"/api/v1/runs/{run_id}").status_code == 200)
    with a.live(run_id) as of_a, b.live(run_id) as of_b:
        next(of_a), next(of_b)
        began_s = time.monotonic()
        a.send({"step": [0, 1], "loss": [2.0, 1.0]}, run_id=run_id)
        seen = ticks(of_b, 1)
        assert time.monotonic() - began_s < 2.0  # a second and what a busy machine adds
        assert [tick.id for tick in seen] == [tick.id for tick in ticks(of_a, 1)]
    b.send({"step": [2], "loss": [1.0]}, run_id=run_id)
    a.send({"step": [3], "loss": [1.0]}, run_id=run_id)
    for server in pair:
        with server.live(run_id, last_event_id=seen[-1].id) as events:
            assert next(events).name == "hello"
            assert steps_of(ticks(events, 3)) == [2, 3]
    a.checked(b.client.patch(f"/api/v1/runs/{run_id}", json={"name": "renamed"}))
    assert a.get(f"runs/{run_id}")["name"] == "renamed"
    with a.live() as events:
        next(events)
        b.client.delete(f"/api/v1/runs/{run_id}")
        assert next_of(events, "deleted").data == {"run_id": run_id}


def test_both_take_the_same_stream_in_at_once_and_nothing_is_lost_or_counted_twice(
    pair: tuple[Replica, Replica],
) -> None:
    run_id, others = uuid.uuid4().hex, [uuid.uuid4().hex for _ in range(2)]
    for found in (run_id, *others):
        pair[0].put(found)
    num_batches, size = 40, 25
    answers: list[dict[str, Any]] = []

    def send(server: Replica, numbers: range, other: str) -> None:
        for number in numbers:
            steps = list(range(number * size, number * size + size))
            batch = {"step": steps, "grad_norm_before_clip": [2.0] * size, "max_norm": [1.0] * size}
            layers = {"layers": ["a", "b"], "layer_step": steps, "layer_norms": [[1.0, 2.0]] * size}
            answers.append(server.send(batch | layers, run_id=run_id))
            server.send(batch, run_id=other)

    # Each sends most batches, in opposite orders; the middle ones come from both.
    senders = [
        threading.Thread(target=send, args=(pair[0], range(0, 30), others[0])),
        threading.Thread(target=send, args=(pair[1], range(num_batches - 1, 9, -1), others[0])),
        threading.Thread(target=send, args=(pair[1], range(0, num_batches), others[1])),
    ]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)
    assert [answer["accepted_steps"] for answer in answers] == [size] * (30 + 30 + 40)
    for server in pair:
        for found in (run_id, *others):
            run = server.get(f"runs/{found}")
            num_steps = num_batches * size
            assert (run["num_steps"], run["num_clipped"], run["last_step"]) == (num_steps, num_steps, num_steps - 1)
        whole = server.get(f"runs/{run_id}/series", columns="grad_norm_before_clip", points=10)
        assert sum(whole["num_clipped"]) == num_batches * size
        layers = server.get(f"runs/{run_id}/layers", points=10)
        assert all(value == 2.0 for value in layers["max"][1])


def test_when_the_leader_is_killed_the_other_ends_what_it_had_begun(
    pair: tuple[Replica, Replica], postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: any(server.leads for server in pair))
    leader, other = pair if pair[0].leads else pair[::-1]
    assert not other.leads
    run_id = uuid.uuid4().hex
    database = Database(postgresql_url)
    try:
        leader.put(run_id)
        leader.send({"step": list(range(500)), "loss": [1.0] * 500}, run_id=run_id)
        leader.kill()
        monkeypatch.setattr(deletion, "SLICE_ROWS", 10)
        store = Store(database)
        store.write(lambda conn: deletion.delete_run(conn, run_id, now_s=time.time()))
        wait_until(lambda: other.leads)
        wait_until(lambda: store.rows(models.deletions) == store.rows(models.steps) == [])
    finally:
        database.close()
