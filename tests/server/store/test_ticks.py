"""Ticks tell, in the order of commits, what changed; events are listed newest first."""

import base64
from typing import Any

import numpy as np
import pytest

from gradsight import wire
from gradsight_server.errors import InvalidRequestError, RunNotFoundError
from gradsight_server.store import deletion, runs, ticks
from gradsight_server.store.events import events
from gradsight_server.store.ticks import (
    Standing,
    Tick,
    latest_position,
    oldest_position,
    standing,
    tick_payload,
    ticks_after,
)
from tests.server.store.kit import RUN, Store


def new_ticks(store: Store, position: int) -> list[Tick]:
    return store.read(ticks_after, position, limit=1000)


def newest(store: Store) -> Tick:
    return store.read(ticks_after, 0, limit=1000)[-1]


def test_every_change_is_a_tick_of_the_next_position(store: Store) -> None:
    start = store.read(latest_position)
    store.send([3, 1, 2], loss=[1.0] * 3)
    store.send(events=[wire.Event(kind="note")])
    store.send(metrics=[wire.Metric(step=0, name="val", value=1.0)])
    store.send(dropped={"queue": 1})
    store.write(lambda conn: runs.patch_run(conn, RUN, now_s=1.0, name="x"))
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=1.0))
    found = new_ticks(store, start)
    assert [tick.kind for tick in found] == ["steps", "run", "run", "run", "run", "deleted"]
    assert [tick.position for tick in found] == list(range(start + 1, start + 7))
    assert (found[0].first_step, found[0].last_step) == (1, 3)
    assert (store.read(oldest_position), store.read(latest_position)) == (1, start + 6)


def test_a_refused_batch_leaves_no_tick(store: Store) -> None:
    start = store.read(latest_position)
    with pytest.raises(RunNotFoundError):
        store.send([0], run_id="f" * 32)
    assert new_ticks(store, start) == []


def test_a_heartbeat_is_a_tick_only_after_silence(store: Store) -> None:
    store.send([0], loss=[1.0])
    start = store.read(latest_position)
    store.now_s += 10
    store.send()
    assert new_ticks(store, start) == []
    store.now_s += 40
    store.send()
    assert [tick.kind for tick in new_ticks(store, start)] == ["run"]


def test_old_ticks_go_and_the_newest_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticks, "KEPT_TICKS", 15)
    for _ in range(39):
        store.put()
    store.write(lambda conn: ticks.prune(conn, now_s=store.now_s))
    assert [tick.position for tick in new_ticks(store, 0)] == list(range(26, 41))
    store.now_s += 2 * ticks.KEPT_S
    store.put()
    store.write(lambda conn: ticks.prune(conn, now_s=store.now_s))
    assert (store.read(oldest_position), store.read(latest_position)) == (41, 41)
    store.write(lambda conn: ticks.prune(conn, now_s=store.now_s + 2 * ticks.KEPT_S))
    store.put()
    assert (store.read(oldest_position), store.read(latest_position)) == (41, 42)


def test_a_payload_carries_the_new_points_and_the_last_layers(store: Store) -> None:
    store.send(
        [0, 1, 2],
        stream="main",
        loss=[1.0, "NaN", None],
        grad_norm_before_clip=[2.0, "Infinity", 0.5],
        max_norm=[1.0, 1.0, 1.0],
        skipped=[False, True, None],
        layers=["a", "b"],
        layer_step=[0, 1],
        layer_norms=[[1.0, 2.0], [3.0, None]],
    )
    payload = store.read(tick_payload, newest(store), now_s=store.now_s)
    assert (payload["run_id"], payload["stream"], payload["attempt"]) == (RUN, "main", 1)
    found: dict[str, Any] = payload["steps"]
    assert set(found) == {"step", *wire.FLOAT_COLUMNS, "skipped", "clipped", "nonfinite"}
    assert (found["step"], found["loss"], found["lr"]) == ([0, 1, 2], [1.0, None, None], [None] * 3)
    assert found["grad_norm_before_clip"] == [2.0, None, 0.5]
    assert found["skipped"] == [False, True, False]
    assert found["clipped"] == [True, False, False]
    assert found["nonfinite"] == [False, True, False]
    assert payload["layers"]["step"] == 1
    assert np.frombuffer(base64.b64decode(payload["layers"]["norms"]), "<f4").tolist() == [3.0, -1.0]
    assert payload["layers"]["layers_id"] == wire.layers_id(["a", "b"])
    assert payload["summary"]["num_steps"] == 3


def test_a_payload_of_another_rank_or_of_no_steps_is_still_whole(store: Store) -> None:
    store.send([0], rank=[1], loss=[1.0])
    payload = store.read(tick_payload, newest(store), now_s=store.now_s)
    assert payload["steps"]["step"] == payload["steps"]["loss"] == []
    assert payload["layers"] is None
    store.put()
    payload = store.read(tick_payload, newest(store), now_s=store.now_s)
    assert (payload["steps"], payload["summary"]["id"]) == (None, RUN)


def test_a_payload_of_a_run_gone_by_now_is_not_found(store: Store) -> None:
    store.send([0], loss=[1.0])
    tick = newest(store)
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=1.0))
    with pytest.raises(RunNotFoundError):
        store.read(tick_payload, tick, now_s=1.0)


def test_where_a_tick_stands_among_attempts(store: Store) -> None:
    store.send([0, 1, 2, 3], attempt_id="a", attempt_started_at_s=1.0)
    assert store.read(standing, newest(store)) == Standing(is_shown=True, is_alone=True, newest_step=3)
    store.send([2, 3], attempt_id="b", attempt_started_at_s=2.0)
    assert store.read(standing, newest(store)) == Standing(is_shown=True, is_alone=True, newest_step=3)
    store.send([4, 5], attempt_id="a")
    assert store.read(standing, newest(store)) == Standing(is_shown=False, is_alone=False, newest_step=5)
    store.send([1], attempt_id="a")
    assert store.read(standing, newest(store)) == Standing(is_shown=True, is_alone=False, newest_step=5)


def test_events_are_listed_newest_first_and_paged(store: Store) -> None:
    for i in range(5):
        event = wire.Event(kind="note", step=i, message=f"<i>{i}</i>", wall_time_s=float(i // 2))
        store.send(attempt_id="x", stream="critic", events=[event])
    page = store.read(events, RUN, limit=3)
    rest = store.read(events, RUN, limit=3, cursor=page["next_cursor"])
    assert rest["next_cursor"] is None
    items = page["items"] + rest["items"]
    assert [item["wall_time_s"] for item in items] == [2.0, 1.0, 1.0, 0.0, 0.0]
    assert sorted(item["step"] for item in items) == [0, 1, 2, 3, 4]
    assert {key: items[0][key] for key in ("kind", "stream", "attempt", "step", "message")} == {
        "kind": "note",
        "stream": "critic",
        "attempt": 1,
        "step": 4,
        "message": "<i>4</i>",
    }


def test_events_asked_for_wrongly_are_refused(store: Store) -> None:
    with pytest.raises(InvalidRequestError, match="limit"):
        store.read(events, RUN, limit=0)
    with pytest.raises(InvalidRequestError, match="cursor"):
        store.read(events, RUN, cursor="x")
    with pytest.raises(RunNotFoundError):
        store.read(events, "f" * 32)
