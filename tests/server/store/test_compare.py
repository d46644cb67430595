"""Several runs' series share their buckets."""

import numpy as np
import pytest

from gradsight_server.errors import InvalidRequestError, RunNotFoundError
from gradsight_server.store import retention
from gradsight_server.store.compare import compare
from tests.server.store.kit import RUN, Store

OTHER = "f" * 32


@pytest.fixture
def two(store: Store) -> Store:
    """One run of 1,000 steps, one of 100 that begins at 50."""
    store.put(OTHER)
    store.send(list(range(1000)), loss=[1.0] * 1000)
    store.send(list(range(50, 150)), run_id=OTHER, loss=[2.0] * 100, stream="main")
    return store


def test_buckets_begin_at_the_same_steps(two: Store) -> None:
    found = two.read(compare, [OTHER, RUN], columns=["loss"], points=100)
    assert list(found) == [OTHER, RUN]
    assert {one.series.bucket_steps for one in found.values()} == {16}
    assert found[OTHER].series.step.tolist() == [50, *range(64, 150, 16)]
    assert set(found[OTHER].series.step[1:].tolist()) < set(found[RUN].series.step.tolist())
    assert (found[RUN].series.num_steps.sum(), found[OTHER].series.num_steps.sum()) == (1000, 100)
    np.testing.assert_array_equal(found[OTHER].series.columns["loss"].mean, 2.0)


def test_runs_that_all_fit_are_exact(two: Store) -> None:
    found = two.read(compare, [RUN, OTHER, RUN], columns=["loss"], first_step=100, last_step=199, points=100)
    assert [one.series.bucket_steps for one in found.values()] == [1, 1]
    assert [len(one.series.step) for one in found.values()] == [100, 50]


def test_a_run_without_the_stream_is_empty(two: Store) -> None:
    two.send([3], run_id=OTHER, stream="critic", loss=[1.0])
    found = two.read(compare, [RUN, OTHER], columns=["loss"], stream="critic")
    assert [len(one.series.step) for one in found.values()] == [0, 1]


def test_what_cannot_be_compared_is_named(two: Store) -> None:
    with pytest.raises(RunNotFoundError, match="e" * 32):
        two.read(compare, [RUN, "e" * 32], columns=["loss"])
    with pytest.raises(InvalidRequestError, match="grad_norm_before_clip"):
        two.read(compare, [RUN], columns=["grad_norm"])
    for runs, points, named in (
        ([], 10, "runs"),
        ([RUN] * 51, 10, "runs"),
        ([RUN], 0, "points"),
        ([RUN], 2001, "points"),
    ):
        with pytest.raises(InvalidRequestError, match=named):
            two.read(compare, runs, columns=["loss"], points=points)


def test_each_point_says_when_its_first_step_was_made(two: Store) -> None:
    two.send(list(range(1000)), wall_time_s=[5000.0 + step for step in range(1000)])
    for points in (2000, 100):
        found = two.read(compare, [RUN], columns=["loss"], points=points)[RUN]
        assert found.wall_time_s == [5000.0 + step for step in found.series.step.tolist()]


def test_times_are_told_from_rollups_where_raw_steps_are_gone(two: Store) -> None:
    two.send(list(range(1000, 5000)), wall_time_s=[5000.0 + step for step in range(1000, 5000)])
    assert retention.sweep(two.db, retention.Keep(steps=2048), now_s=two.now_s)
    found = two.read(compare, [RUN], columns=["loss"], points=100)[RUN]
    times = dict(zip(found.series.step.tolist(), found.wall_time_s, strict=True))
    assert found.series.step[0] == 0
    assert times[2048] == 7048.0
