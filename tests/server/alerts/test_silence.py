"""Silence is told of: a stalled run by its heartbeats, a crashed one by their end, a finished one not at all."""

from typing import Any

import pytest

from gradsight import wire
from gradsight_server.store import models, runs, silence
from tests.server.store.kit import RUN, Store

START_S = 1000.0


def train(store: Store, *, pace_s: float = 1.0, num: int = 40, first: int = 0, pause_s: float = 0.0) -> None:
    """Sends steps one by one, and leaves the clock at the newest; with a pause in the middle."""
    for step in range(first, first + num):
        store.now_s += pace_s + (pause_s if step == first + num // 2 else 0.0)
        store.send([step], loss=[1.0], wall_time_s=[store.now_s])


def wait(store: Store, duration_s: float, *, heartbeats: bool = True) -> int:
    """Lets time pass; what the sweep at its end did."""
    store.now_s += duration_s
    if heartbeats:
        store.send()
    return silence.sweep(store.db, now_s=store.now_s, started_at_s=START_S - 1000)


def alert(store: Store) -> dict[str, Any]:
    (found,) = store.rows(models.alerts)
    return found


def test_no_steps_but_heartbeats_is_a_stall_told_once_and_over_with_the_next_step(store: Store) -> None:
    train(store)
    assert wait(store, 29) == 0
    assert wait(store, 2) == 1
    assert wait(store, 20) == 0
    found = alert(store)
    assert (found["kind"], found["severity"], found["state"], found["last_step"]) == (
        "silent_run",
        "warning",
        "open",
        39,
    )
    assert "alive" in found["title"]
    assert store.send().alerts[0].kind == "silent_run"
    train(store, first=40, num=1)
    assert alert(store)["state"] == "resolved"
    assert len(store.rows(models.outbox)) == 1


def test_a_run_that_was_history_when_it_came_is_no_silence(store: Store) -> None:
    """An import of what another server had, of a run that never said that it ended."""
    store.now_s += 10 * 86_400.0
    store.send(list(range(40)), loss=[1.0] * 40, wall_time_s=[START_S + step for step in range(40)])
    assert wait(store, 120, heartbeats=False) == 0


def test_neither_steps_nor_heartbeats_is_a_crash(store: Store) -> None:
    train(store)
    assert wait(store, 35, heartbeats=False) == 1
    assert (alert(store)["severity"], alert(store)["evidence"]["is_crashed"]) == ("critical", 1)
    assert "crashed" in store.rows(models.outbox)[0]["payload"]["title"]


def test_a_stalled_run_that_then_dies_is_told_of_again_as_crashed(store: Store) -> None:
    train(store)
    wait(store, 31)
    assert wait(store, 31, heartbeats=False) == 1
    assert wait(store, 31, heartbeats=False) == 0
    assert alert(store)["severity"] == "critical"
    assert [row["payload"]["change"] for row in store.rows(models.outbox)] == ["opened", "reminded"]


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_a_run_that_has_ended_is_silent_by_right(store: Store, status: str) -> None:
    train(store)
    store.send(events=[wire.Event(kind=status)])
    assert wait(store, 1000, heartbeats=False) == 0


def test_an_end_that_comes_late_ends_the_alert_too(store: Store) -> None:
    train(store)
    wait(store, 100, heartbeats=False)
    store.send(events=[wire.Event(kind="failed")])
    assert alert(store)["state"] == "resolved"


def test_a_slow_run_has_five_of_its_own_intervals(store: Store) -> None:
    train(store, pace_s=20.0)
    assert wait(store, 99) == 0
    assert wait(store, 2) == 1


def test_a_run_that_pauses_now_and_then_may_pause_twice_as_long(store: Store) -> None:
    train(store, pause_s=60.0)
    assert wait(store, 110) == 0
    assert wait(store, 15) == 1


def test_a_run_of_unknown_pace_has_ten_minutes(store: Store) -> None:
    train(store, num=1)
    assert wait(store, 590) == 0
    assert wait(store, 20) == 1


def test_runs_without_steps_archived_and_forgotten_ones_are_left_alone(store: Store) -> None:
    assert wait(store, 500) == 0
    train(store)
    assert wait(store, 90_000, heartbeats=False) == 0
    train(store, first=40)
    store.write(lambda conn: runs.patch_run(conn, RUN, now_s=1.0, archived=True))
    assert wait(store, 500) == 0


def test_a_server_that_has_just_started_waits_for_trainings_to_come_back(store: Store) -> None:
    train(store)
    store.now_s += 3600
    assert silence.sweep(store.db, now_s=store.now_s, started_at_s=store.now_s - 59) == 0
    assert silence.sweep(store.db, now_s=store.now_s, started_at_s=store.now_s - 61) == 1


def test_silence_again_within_the_cool_down_is_counted(store: Store) -> None:
    train(store)
    wait(store, 35)
    train(store, first=40)
    assert wait(store, 75) == 1  # twice the pause it has made
    assert (alert(store)["state"], alert(store)["num_repeats"]) == ("open", 1)
    assert len(store.rows(models.outbox)) == 1
