"""A run that one replica deletes while another writes to it: the write finds it or does not, and never half of it."""

import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select

from gradsight import wire
from gradsight_server.alerts import store as alerts_store
from gradsight_server.errors import (
    AlertNotFoundError,
    ControlRefusedError,
    GradsightServerError,
    RunNotFoundError,
    ServerBusyError,
)
from gradsight_server.store import control, deletion, keys, models, places, runs, sparklines
from gradsight_server.store.database import Database
from gradsight_server.store.rule_changes import put_rules
from tests.server.store.kit import RUN, TIMEOUT_S, Store

pytestmark = pytest.mark.postgresql
Replicas = tuple[Store, Store]
EXPECTED = (RunNotFoundError, ServerBusyError, AlertNotFoundError, ControlRefusedError)


@pytest.fixture
def replicas(postgresql_url: str) -> Iterator[Replicas]:
    both = Store(Database(postgresql_url)), Store(Database(postgresql_url))
    yield both
    for store in both:
        store.db.close()


def delete(store: Store) -> None:
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=store.now_s))


def test_a_run_that_is_made_and_deleted_by_another_while_it_is_put_is_made_again(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = replicas
    create, times = runs._create, iter((True, False))

    def overtaken(*args: Any) -> None:
        if is_first := next(times):
            monkeypatch.setattr(runs, "_create", create)
            there.put(config={"from": "there"})
            monkeypatch.setattr(runs, "_create", overtaken)
        create(*args)
        if is_first:
            delete(there)

    monkeypatch.setattr(runs, "_create", overtaken)
    here.put(name="here", streams={})
    assert (here.run()["name"], here.run()["config"]) == ("here", {})


def test_a_batch_of_a_run_that_was_not_there_to_be_locked_is_refused(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be written with nobody kept from the run."""
    here, there = replicas
    lock = places.lock

    def overtaken(conn: Connection, run_id: str) -> bool:
        is_locked = lock(conn, run_id)
        there.put()
        return is_locked

    monkeypatch.setattr(places, "lock", overtaken)
    with pytest.raises(RunNotFoundError):
        here.send([0], loss=[1.0])


def add_stream(conn: Connection) -> None:
    keys.new_stream(conn, RUN, "main")


def add_attempt(conn: Connection) -> None:
    keys.new_attempt(conn, RUN, "one", 0.0)


def add_layers(conn: Connection) -> None:
    conn.execute(insert(models.layer_sets), {"run_id": RUN, "layers_id": "a", "num_layers": 1})


@pytest.mark.parametrize("add", [add_stream, add_attempt, add_layers])
def test_what_hangs_on_a_run_that_has_gone_since_is_tried_again_and_finds_no_run(
    replicas: Replicas, add: Callable[[Connection], None]
) -> None:
    here, there = replicas
    here.put()

    def work(conn: Connection) -> None:
        if conn.scalar(select(models.runs.c.run_id)) is None:
            raise RunNotFoundError(RUN)
        delete(there)
        add(conn)

    with pytest.raises(RunNotFoundError):
        here.write(work)


def test_the_same_row_made_by_both_is_tried_again_and_the_later_one_holds(replicas: Replicas) -> None:
    here, there = replicas
    tries = 0

    def rule(severity: str) -> Callable[[Connection], None]:
        return partial(put_rules, given=[("dead_run", {"severity": severity})], now_s=0.0)

    def work(conn: Connection) -> None:
        nonlocal tries
        tries += 1
        if tries > 1:
            return rule("info")(conn)
        there.write(rule("warning"))
        row = {"scope": "global", "scope_id": "", "kind": "dead_run", "settings": {}, "updated_at_s": 0.0}
        conn.execute(insert(models.alert_rules), row)

    here.write(work)
    assert tries == 2
    assert [row["severity"] for row in here.rows(models.alert_rules)] == ["info"]


def test_whatever_is_written_while_the_run_is_put_and_deleted_is_stored_or_refused(replicas: Replicas) -> None:
    failures: list[BaseException] = []

    def works(store: Store, chance: random.Random) -> list[Callable[[], object]]:
        def send() -> None:
            steps = list(range(chance.randrange(50), 60))
            norms: dict[str, Any] = {"layers": ["a"], "layer_step": steps, "layer_norms": [[1.0]] * len(steps)}
            store.send(
                steps,
                stream=chance.choice("ab"),
                attempt_id=chance.choice("xy"),
                loss=[float("nan")] * len(steps),
                grad_norm_before_clip=[float("nan")] * len(steps),
                metrics=[wire.Metric(step=1, name="val", value=1.0)],
                events=[wire.Event(kind=chance.choice(("note", "failed")), step=1)],
                **norms,
            )

        def write(work: Callable[..., object], *args: Any, **options: Any) -> Callable[[], object]:
            return lambda: store.write(lambda conn: work(conn, RUN, *args, **options))

        return [
            store.put,
            lambda: store.put(streams={chance.choice("ab"): wire.StreamRecord(allow_control=True)}, config={"lr": 1.0}),
            lambda: delete(store),
            send,
            send,
            send,
            write(runs.patch_run, name="n", notes="x", now_s=0.0),
            write(control.ask, max_norm=1.0, stream="a", by=None, now_s=0.0),
            write(alerts_store.acknowledge, 1, by=None, now_s=0.0),
            lambda: store.write(partial(put_rules, given=[("dead_run", {"enabled": False})], run_id=RUN, now_s=0.0)),
            lambda: sparklines.refresh(store.db, now_s=1e9),
            lambda: deletion.sweep(store.db),
        ]

    def go_on(store: Store, seed: int) -> None:
        chance = random.Random(seed)
        todo = works(store, chance)
        for _ in range(40):
            try:
                chance.choice(todo)()
            except GradsightServerError as error:
                if not isinstance(error, EXPECTED):
                    failures.append(error)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=go_on, args=(store, seed)) for seed, store in enumerate(replicas * 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(6 * TIMEOUT_S)
    assert not failures
    replicas[0].put()
    assert replicas[0].send([7], loss=[1.0]).last_step is not None
