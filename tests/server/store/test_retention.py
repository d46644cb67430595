"""Retention removes raw steps and nothing else: charts say the same, and what is sealed does not change any more."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from gradsight import wire
from gradsight_server.errors import StepNotFoundError
from gradsight_server.store import deletion, models, retention
from gradsight_server.store.events import events
from gradsight_server.store.extents import AttemptKey
from gradsight_server.store.layers import layer_matrix
from gradsight_server.store.one_step import one_step
from gradsight_server.store.retention import MIN_KEPT_STEPS, Keep, sweep
from gradsight_server.store.series import Series, series
from tests.server.store.kit import RUN, Store

NORM = "grad_norm_before_clip"
N = 10_000
DAY_S = 86_400.0
ROLLUPS = (models.buckets, models.bucket_blobs)


@pytest.fixture
def long(store: Store) -> Store:
    """N steps, a thousand a day, with a spike early on, and layer norms at each."""
    for first in range(0, N, 1000):
        send(store, list(range(first, first + 1000)))
    return store


def send(store: Store, steps: list[int], **batch: Any) -> wire.Answer:
    norms = [1e6 if step == 123 else 0.5 for step in steps]
    return store.send(
        steps,
        wall_time_s=[DAY_S * step / 1000 for step in steps],
        grad_norm_before_clip=norms,
        max_norm=[1.0] * len(steps),
        layers_id="x",
        layers=["a"],
        layer_step=steps,
        layer_norms=np.array(norms, "<f4").tobytes(),
        **batch,
    )


def raw_steps(store: Store) -> list[int]:
    with store.db.reading() as conn:
        return list(conn.scalars(select(models.steps.c.step).order_by(models.steps.c.step)))


def read(store: Store, **options: Any) -> Series:
    return store.read(series, RUN, columns=[NORM], **options)


def test_the_newest_steps_stay_and_the_rollups_of_all(long: Store) -> None:
    before = [long.rows(table) for table in ROLLUPS]
    assert sweep(long.db, Keep(steps=4_000), now_s=0.0) == 1
    assert raw_steps(long) == list(range(6_000, N))
    assert min(row["block"] for row in long.rows(models.layer_blocks)) == 6_000 // 16
    assert [long.rows(table) for table in ROLLUPS] == before
    assert sweep(long.db, Keep(steps=4_000), now_s=0.0) == 0


def test_steps_older_than_some_days_go(long: Store) -> None:
    assert sweep(long.db, Keep(days=5.5), now_s=N / 1000 * DAY_S) == 1
    assert raw_steps(long) == list(range(4_496, N)), "whole buckets with a step from 4,500 on"


def test_what_either_rule_removes_goes(long: Store) -> None:
    sweep(long.db, Keep(days=100.0, steps=3_000), now_s=N / 1000 * DAY_S)
    assert len(raw_steps(long)) == 3_008


def test_without_a_rule_nothing_goes(long: Store) -> None:
    assert sweep(long.db, Keep(), now_s=1e12) == 0
    assert len(raw_steps(long)) == N


def test_some_of_the_newest_always_stay(long: Store) -> None:
    run = long.run()
    sweep(long.db, Keep(days=0.001, steps=1), now_s=1e12)
    assert MIN_KEPT_STEPS <= len(raw_steps(long)) < MIN_KEPT_STEPS + 16
    assert long.run() == run


def test_charts_of_the_whole_run_say_the_same(long: Store) -> None:
    before = [read(long, points=points) for points in (10, 600)]
    matrix = long.read(layer_matrix, RUN, points=100)
    sweep(long.db, Keep(steps=3_000), now_s=0.0)
    for one, points in zip(before, (10, 600), strict=True):
        after = read(long, points=points)
        assert after.step.tolist() == one.step.tolist()
        assert after.num_clipped.tolist() == one.num_clipped.tolist()
        np.testing.assert_array_equal(after.columns[NORM].max, one.columns[NORM].max)
    np.testing.assert_array_equal(long.read(layer_matrix, RUN, points=100).max, matrix.max)


def test_a_close_look_at_sealed_steps_shows_their_smallest_buckets_whole(long: Store) -> None:
    sweep(long.db, Keep(steps=3_000), now_s=0.0)
    found = read(long, first_step=120, last_step=130, points=1000)
    assert (found.bucket_steps, found.step.tolist(), found.last_step.tolist()) == (16, [112, 128], [127, 143])
    assert found.columns[NORM].max.tolist() == [1e6, 0.5]
    across = read(long, first_step=6_980, last_step=7_020, points=1000)
    assert (across.bucket_steps, across.num_steps.sum()) == (16, 7_021 - 6_976)
    assert read(long, first_step=8_000, last_step=8_010).bucket_steps == 1
    matrix = long.read(layer_matrix, RUN, first_step=120, last_step=130)
    assert matrix.max.tolist() == [[1e6, 0.5]]


def test_one_sealed_step_is_told_from_one_that_never_was(long: Store) -> None:
    sweep(long.db, Keep(steps=3_000), now_s=0.0)
    with pytest.raises(StepNotFoundError, match="only rollups"):
        long.read(one_step, RUN, 123)
    with pytest.raises(StepNotFoundError, match="no step"):
        long.read(one_step, RUN, N)
    assert long.read(one_step, RUN, N - 1)["layers"][0]["norm"] == 0.5


def test_sealed_steps_sent_again_or_late_change_nothing_and_are_not_accepted(long: Store) -> None:
    sweep(long.db, Keep(steps=3_000), now_s=0.0)
    rows, run = [long.rows(table) for table in (models.steps, models.layer_blocks, *ROLLUPS)], long.run()
    answer = send(long, [5, 6, 123, 6_991])
    assert (answer.accepted_steps, answer.last_step) == (0, N - 1)
    assert [long.rows(table) for table in (models.steps, models.layer_blocks, *ROLLUPS)] == rows
    counted = ("num_steps", "num_clipped", "last", "last_step")
    assert {name: long.run()[name] for name in counted} == {name: run[name] for name in counted}


def test_of_a_batch_across_the_border_the_rest_is_taken(long: Store) -> None:
    sweep(long.db, Keep(steps=3_000), now_s=0.0)
    border = raw_steps(long)[0]
    event = wire.Event(kind="note", message="kept")
    answer = send(long, [border - 1, border, N], events=[event], rank=[0, 0, 0])
    assert answer.accepted_steps == 2
    assert raw_steps(long)[0] == border
    assert read(long, first_step=N).num_steps.tolist() == [1]
    nested: dict[str, Any] = {"layers_id": "x", "layer_step": [border - 2, N + 1], "layer_norms": [[7.0], [8.0]]}
    long.send([border - 2, N + 1], loss=[1.0, 2.0], skipped=[True, False], **nested)
    assert long.read(one_step, RUN, N + 1)["layers"][0]["norm"] == 8.0
    assert [item["message"] for item in long.read(events, RUN)["items"]] == ["kept"]


def test_a_bucket_over_the_border_is_still_computed_anew(long: Store) -> None:
    """Of level 2: some of its steps are gone, its children are not."""
    sweep(long.db, Keep(steps=3_000), now_s=0.0)
    border = raw_steps(long)[0]
    assert border % 256 != 0
    long.send([border], grad_norm_before_clip=[1e9])
    found = read(long, first_step=border // 256 * 256, last_step=border // 256 * 256 + 255, points=1)
    assert (found.num_steps.tolist(), found.columns[NORM].max.tolist()) == ([256], [1e9])


def test_a_sweep_that_was_interrupted_is_finished_by_the_next(long: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "SLICE_STEPS", 500)
    real, calls = retention._remove_slice, iter(range(3))

    def fail_later(*args: Any, **options: Any) -> bool:
        if next(calls, None) is None:
            raise RuntimeError("killed")
        return real(*args, **options)

    monkeypatch.setattr(retention, "_remove_slice", fail_later)
    with pytest.raises(RuntimeError, match="killed"):
        sweep(long.db, Keep(steps=3_000), now_s=0.0)
    assert len(raw_steps(long)) == N - 3 * 501
    assert read(long, points=1).num_steps.tolist() == [N], "what is left of the sealed steps is counted once"
    monkeypatch.setattr(retention, "_remove_slice", real)
    assert sweep(long.db, Keep(steps=3_000), now_s=0.0) == 1
    assert len(raw_steps(long)) == 3_008


def test_a_run_that_is_made_anew_during_a_sweep_keeps_its_steps(long: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def made_anew(found: Iterator[AttemptKey]) -> Iterator[AttemptKey]:
        yield from found
        long.write(lambda conn: deletion.delete_run(conn, RUN, now_s=0.0))
        deletion.finish(long.db, RUN, deadline_s=60.0)
        long.put()
        send(long, list(range(100)))

    due = retention._due
    monkeypatch.setattr(retention, "_due", lambda *args: made_anew(due(*args)))
    assert sweep(long.db, Keep(steps=3_000), now_s=0.0) == 1
    assert raw_steps(long) == list(range(100))
    send(long, [100])
    assert raw_steps(long) == list(range(101))


def test_every_rank_goes_and_each_attempt_keeps_its_newest(store: Store) -> None:
    steps = list(range(3_000))
    for attempt in ("a", "b"):
        for rank in (0, 1):
            store.send(
                steps,
                rank=[rank] * 3_000,
                attempt_id=attempt,
                attempt_started_at_s=float(ord(attempt)),
                loss=[1.0] * 3_000,
            )
    assert sweep(store.db, Keep(steps=1), now_s=0.0) == 2
    first = 3_000 - MIN_KEPT_STEPS - (3_000 - MIN_KEPT_STEPS) % 16
    assert len(raw_steps(store)) == 4 * (3_000 - first)
    assert read(store, points=2, attempt=1).num_steps.sum() == 3_000
