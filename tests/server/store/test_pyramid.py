"""Rollups follow from the steps alone: whatever came late, twice or in place of what was there, in whatever batches."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, delete

from gradsight import wire
from gradsight_server.store import counters, layer_rollup, models, pyramid, rollup
from gradsight_server.store.histogram import Histogram
from gradsight_server.store.ingest import ingest
from gradsight_server.store.rollup import NORM
from tests.server.store.kit import RUN, Store

ROLLUPS = (models.buckets, models.bucket_blobs)
LAYER_SETS = {"x": 1, "y": 2}
RUN_IDS = (f"{number:032x}" for number in itertools.count(1))

ODD = (None, "NaN", "Infinity", 0.0, 1e-300, 1e300)
NUMBERS = {
    "grad_norm_before_clip": st.one_of(st.sampled_from(ODD), st.floats(0.1, 10.0)),
    "loss": st.one_of(st.sampled_from([*ODD, "-Infinity"]), st.floats(-10.0, 10.0)),
    "clipped_layer_fraction": st.sampled_from([None, "NaN", 0.0, 0.5]),
}


@st.composite
def batches(draw: st.DrawFn) -> wire.Batch:
    """Some steps near a border of buckets, late or repeated as it happens, with or without layer norms."""
    first = draw(st.sampled_from([0, 3, 14, 250, 4085, 4500, 70_000]))
    step = draw(st.lists(st.integers(first, first + draw(st.sampled_from([3, 40]))), max_size=12))
    n = len(step)
    columns: dict[str, Any] = {"rank": [draw(st.sampled_from([0, 0, 0, 1]))] * n}
    for name, numbers in NUMBERS.items():
        if draw(st.booleans()):
            columns[name] = draw(st.lists(numbers, min_size=n, max_size=n))
    if draw(st.booleans()):
        columns["max_norm"] = [1.0] * n
        columns["skipped"] = draw(st.lists(st.sampled_from([True, False, None]), min_size=n, max_size=n))
    layer_step = draw(st.lists(st.integers(first, first + 20), max_size=6))
    if layer_step:
        layers_id = draw(st.sampled_from(sorted(LAYER_SETS)))
        norm = st.one_of(st.none(), st.sampled_from(["NaN", "Infinity", 0.0]), st.floats(0.1, 10.0))
        row = st.lists(norm, min_size=LAYER_SETS[layers_id], max_size=LAYER_SETS[layers_id])
        norms = draw(st.lists(row, min_size=len(layer_step), max_size=len(layer_step)))
        columns |= {"layers_id": layers_id, "layer_step": layer_step, "layer_norms": norms}
    return wire.Batch(step=step, attempt_id=draw(st.sampled_from(["a", "b"])), **columns)


def take_in(store: Store, run_id: str, group: list[wire.Batch]) -> None:
    """All of the group in one transaction."""
    store.write(lambda conn: [ingest(conn, run_id, "main", batch, now_s=1.0) for batch in group])


def dump(store: Store, run_id: str) -> list[list[dict[str, Any]]]:
    return [[row for row in store.rows(table) if row["run_id"] == run_id] for table in ROLLUPS]


def attempt_keys(store: Store, run_id: str) -> list[int]:
    return [row["attempt_key"] for row in store.rows(models.extents) if row["run_id"] == run_id]


def rebuild(conn: Connection, run_id: str, attempts: list[int]) -> None:
    for table in ROLLUPS:
        conn.execute(delete(table).where(table.c.run_id == run_id))
    for attempt_key in attempts:
        pyramid.rebuild(conn, (run_id, 1, attempt_key))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(batches(), min_size=1, max_size=3), min_size=1, max_size=5))
def test_rollups_after_any_batches_are_those_computed_from_scratch(
    store: Store, groups: list[list[wire.Batch]]
) -> None:
    run_id = next(RUN_IDS)
    store.put(run_id)
    for group in groups:
        take_in(store, run_id, group)
    kept = dump(store, run_id)
    check_against_steps(store, run_id)
    assert kept_counters(store, run_id) == counted(store, run_id)
    store.write(lambda conn: rebuild(conn, run_id, attempt_keys(store, run_id)))
    assert dump(store, run_id) == kept


def kept_counters(store: Store, run_id: str) -> list[int]:
    """What batches have moved the stream's counters to."""
    [stream] = [row for row in store.rows(models.streams) if row["run_id"] == run_id]
    return [stream[name] for name in counters.COUNTERS]


def counted(store: Store, run_id: str) -> list[int]:
    """What the steps say that they must be."""
    keys = [(run_id, 1, row["attempt_key"]) for row in store.rows(models.attempts) if row["run_id"] == run_id]
    found = [store.read(counters.count, key, [(0, wire.MAX_STEP)]) for key in keys]
    return [int(number) for number in np.sum(found, axis=0)]


def check_against_steps(store: Store, run_id: str) -> None:
    """Every bucket that must be there is, and says what the steps say; no other is."""
    for extent in store.rows(models.extents):
        key = (extent["run_id"], extent["stream_key"], extent["attempt_key"])
        if extent["run_id"] != run_id:
            continue
        steps = store.read(pyramid.read_steps, key, 0, wire.MAX_STEP)
        for level in range(1, 6):
            closed = rollup.num_closed(level, extent["last_step"])
            found = store.read(pyramid.read_buckets, key, level, 0, wire.MAX_STEP)
            numbers = np.empty(0, np.int64) if steps is None else steps.step // 16**level
            assert ([] if found is None else found.bucket.tolist()) == np.unique(numbers[numbers < closed]).tolist()
            if found is None:
                continue
            assert steps is not None
            histograms = dict(store.read(pyramid.read_histograms, key, level, 0, wire.MAX_STEP))
            for i, bucket in enumerate(found.bucket.tolist()):
                norms = steps.values[numbers == bucket, NORM]
                finite = norms[np.isfinite(norms)]
                assert found.num_steps[i] == len(norms)
                assert found.num_nonfinite[i, NORM] == steps.is_nonfinite[numbers == bucket, NORM].sum()
                assert histograms.get(bucket, Histogram.from_bytes(b"\1")).total == len(finite)
                if len(finite):
                    assert (found.min[i, NORM], found.max[i, NORM]) == (finite.min(), finite.max())


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_bucket_is_there_once_it_is_closed_and_right_when_its_steps_change(store: Store, level: int) -> None:
    size = 16**level
    batch: dict[str, Any] = {"layers_id": "x"}
    for first in range(0, size - 1, 1000):
        step = list(range(first, min(first + 1000, size - 1)))
        norms = np.ones((len(step), 1), "<f4").tobytes()
        store.send(step, grad_norm_before_clip=[1.0] * len(step), layer_step=step, layer_norms=norms, **batch)
    assert store.read(pyramid.read_buckets, (RUN, 1, 1), level, 0, 10) is None, "still open"
    store.send([size - 1], grad_norm_before_clip=[1.0], layer_step=[size - 1], layer_norms=[[1.0]], **batch)
    assert facts(store, level) == (size, 1.0, 1.0, 0, size, size, 1.0)
    store.send([7], grad_norm_before_clip=[1e6], max_norm=[1.0], layer_step=[7], layer_norms=[[4.0]], **batch)
    assert facts(store, level) == (size, 1e6, (size - 1 + 1e6) / size, 1, size, size, 4.0)
    store.send([7], grad_norm_before_clip=["NaN"], layer_step=[7], layer_norms=[["NaN"]], **batch)
    assert facts(store, level) == (size, 1.0, 1.0, 0, size - 1, size, 1.0)


def facts(store: Store, level: int) -> tuple[object, ...]:
    """Of bucket 0: steps, largest and mean norm, clipped; norms in the histogram; layer rows, the layer's largest."""
    key = (RUN, 1, 1)
    found = store.read(pyramid.read_buckets, key, level, 0, 0)
    assert found is not None
    ((_, histogram),) = store.read(pyramid.read_histograms, key, level, 0, 0)
    ((layers_id, numbers, blobs),) = store.read(lambda conn: list(pyramid.read_layer_blobs(conn, key, level, 0, 0)))
    peaks = layer_rollup.peaks_of_blobs(level, numbers, blobs)
    assert layers_id == "x"
    return (
        *(int(found.num_steps[0]), float(found.max[0, NORM]), pytest.approx(float(found.mean[0, NORM]))),
        *(int(found.num_clipped[0]), histogram.total, int(peaks.num_rows[0]), float(peaks.max[0, 0])),
    )


def test_open_buckets_are_not_written(store: Store) -> None:
    """Small batches must not pay for a bucket again and again."""
    for first in range(0, 14, 2):
        store.send([first, first + 1], loss=[1.0, 2.0], layers=["a"], layer_step=[first], layer_norms=[[1.0]])
    assert [store.rows(table) for table in ROLLUPS] == [[], []]
    store.send([14, 15], loss=[1.0, 2.0])
    assert [(row["level"], row["bucket"], row["num_steps"]) for row in store.rows(models.buckets)] == [(1, 0, 16)]


def test_a_far_step_closes_the_buckets_before_it(store: Store) -> None:
    store.send([3], grad_norm_before_clip=[1.0])
    store.send([5000], grad_norm_before_clip=[2.0])
    assert [(row["level"], row["bucket"]) for row in store.rows(models.buckets)] == [(1, 0), (2, 0), (3, 0)]
    store.send([5007], grad_norm_before_clip=[2.0])
    assert (1, 312) in [(row["level"], row["bucket"]) for row in store.rows(models.buckets)]


def test_a_batch_that_fails_leaves_no_trace_in_the_rollups_of_its_group(store: Store) -> None:
    def work(conn: Connection) -> None:
        ingest(conn, RUN, "main", wire.Batch(step=list(range(16)), loss=[1.0] * 16), now_s=1.0)
        raise ValueError("after the batch")

    with pytest.raises(ValueError, match="after"):
        store.write(work)
    assert [store.rows(table) for table in (models.steps, models.extents, *ROLLUPS)] == [[], [], [], []]
    store.send(list(range(16)), loss=[2.0] * 16)
    (bucket,) = store.rows(models.buckets)
    assert (bucket["num_steps"], bucket["loss_max"]) == (16, 2.0)


def test_the_newest_step_of_all_closes_every_level(store: Store) -> None:
    store.send([wire.MAX_STEP - 1, wire.MAX_STEP], loss=[1.0, 2.0])
    assert {row["level"] for row in store.rows(models.buckets)} == set(range(1, 14))
