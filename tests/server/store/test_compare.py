"""Several runs' series share their buckets."""

import numpy as np
import pytest

from gradsight_server.errors import InvalidRequestError, RunNotFoundError
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
    assert {one.bucket_steps for one in found.values()} == {16}
    assert found[OTHER].step.tolist() == [50, *range(64, 150, 16)]
    assert set(found[OTHER].step[1:].tolist()) < set(found[RUN].step.tolist())
    assert (found[RUN].num_steps.sum(), found[OTHER].num_steps.sum()) == (1000, 100)
    np.testing.assert_array_equal(found[OTHER].columns["loss"].mean, 2.0)


def test_runs_that_all_fit_are_exact(two: Store) -> None:
    found = two.read(compare, [RUN, OTHER, RUN], columns=["loss"], first_step=100, last_step=199, points=100)
    assert [one.bucket_steps for one in found.values()] == [1, 1]
    assert [len(one.step) for one in found.values()] == [100, 50]


def test_a_run_without_the_stream_is_empty(two: Store) -> None:
    two.send([3], run_id=OTHER, stream="critic", loss=[1.0])
    found = two.read(compare, [RUN, OTHER], columns=["loss"], stream="critic")
    assert [len(one.step) for one in found.values()] == [0, 1]


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
