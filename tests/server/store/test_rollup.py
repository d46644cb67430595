"""The pyramid's arithmetic: ranges are covered exactly, and buckets of buckets are buckets of their steps."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradsight_server.store import rollup
from gradsight_server.store.rollup import COLUMNS, NORM, Buckets, Steps

STEP = st.integers(0, 2**53 - 1)
HUGE = 1.7e308


def steps(step: list[int], norm: list[float | None], **columns: list[float]) -> Steps:
    """Steps with this norm before clipping; NaN and infinities are what was not finite."""
    n = len(step)
    values = np.full((n, len(COLUMNS)), np.nan)
    values[:, NORM] = np.array(norm, dtype=np.float64)
    for name, column in columns.items():
        values[:, COLUMNS.index(name)] = column
    is_nonfinite = np.zeros((n, 13), dtype=bool)
    is_nonfinite[:, NORM] = [value is not None and not math.isfinite(value) for value in norm]
    values[~np.isfinite(values)] = np.nan
    return Steps(
        np.array(step), 0.5 * np.arange(n, dtype=np.float64), np.array([s % 7 == 3 for s in step]), values, is_nonfinite
    )


@given(STEP, STEP, st.integers(0, 14))
def test_a_range_is_covered_without_gap_or_overlap_by_few_pieces(one: int, other: int, level: int) -> None:
    first, last = min(one, other), max(one, other)
    pieces = rollup.cover(first, last, level)
    at = first
    for piece in pieces:
        size = rollup.bucket_size(piece.level)
        assert piece.level <= level
        assert piece.first * size == at
        at = (piece.last + 1) * size
    assert at == last + 1
    middle = max(piece.level for piece in pieces)
    assert all(piece.last - piece.first < 30 for piece in pieces if piece.level < middle)
    assert len(pieces) <= 2 * level + 1


def test_a_bucket_is_closed_by_a_step_at_its_end() -> None:
    assert [rollup.num_closed(1, last) for last in (14, 15, 16, 31)] == [0, 1, 1, 2]
    assert [rollup.num_closed(2, last) for last in (254, 255)] == [0, 1]
    assert rollup.num_closed(13, 2**53 - 1) == 2
    assert rollup.num_closed(14, 2**53 - 1) == 0


def test_the_level_of_a_bucket_size_divides_it() -> None:
    for exponent in range(53):
        level = rollup.level_of(2**exponent)
        factor, rest = divmod(2**exponent, rollup.bucket_size(level))
        assert rest == 0
        assert factor in (1, 2, 4, 8)


def test_a_bucket_knows_its_steps() -> None:
    found = rollup.of_steps(
        steps(
            [3, 4, 5, 40],
            [2.0, math.nan, math.inf, None],
            max_norm=[1.0, 1.0, 1.0, 1.0],
            clipped_layer_fraction=[math.nan, 0.5, 0.0, math.nan],
        )
    )
    assert found.bucket.tolist() == [0, 2]
    assert (found.first_step.tolist(), found.last_step.tolist()) == ([3, 40], [5, 40])
    assert (found.num_steps.tolist(), found.num_skipped.tolist(), found.num_clipped.tolist()) == (
        [3, 1],
        [1, 0],
        [2, 0],
    )
    assert (found.first_time_s.tolist(), found.last_time_s.tolist()) == ([0.0, 1.5], [1.0, 1.5])
    assert (found.count[:, NORM].tolist(), found.num_nonfinite[:, NORM].tolist()) == ([1, 0], [2, 0])
    np.testing.assert_array_equal(found.mean[:, NORM], [2.0, np.nan])
    np.testing.assert_array_equal(found.max[:, NORM], [2.0, np.nan])


def test_means_of_huge_values_stay_finite_at_every_level() -> None:
    found = rollup.of_steps(steps(list(range(32)), [HUGE] * 32))
    assert found.mean[:, NORM].tolist() == [HUGE] * 2
    assert rollup.of_buckets(found).mean[:, NORM].tolist() == [HUGE]


NORMS = st.lists(st.one_of(st.none(), st.floats(allow_subnormal=False), st.floats(0.1, 10.0)), min_size=1, max_size=60)


@given(NORMS, st.integers(1, 97))
def test_buckets_of_buckets_are_buckets_of_their_steps(norms: list[float | None], stride: int) -> None:
    taken = steps([stride * i for i in range(len(norms))], norms)
    fine = rollup.of_steps(taken)
    coarse = rollup.of_buckets(fine)
    for i, bucket in enumerate(coarse.bucket.tolist()):
        inside = taken.step // 256 == bucket
        values = taken.values[inside, NORM]
        finite = values[np.isfinite(values)]
        assert coarse.num_steps[i] == inside.sum()
        assert coarse.num_skipped[i] == taken.is_skipped[inside].sum()
        assert coarse.num_nonfinite[i, NORM] == taken.is_nonfinite[inside, NORM].sum()
        assert coarse.count[i, NORM] == len(finite)
        assert (coarse.first_step[i], coarse.last_step[i]) == (taken.step[inside][0], taken.step[inside][-1])
        if len(finite):
            assert (coarse.min[i, NORM], coarse.max[i, NORM]) == (finite.min(), finite.max())
            scale = np.abs(finite).max()
            mean = scale * np.mean(finite / scale) if scale else 0.0
            np.testing.assert_allclose(coarse.mean[i, NORM], mean, rtol=1e-12, atol=1e-14 * scale)
        else:
            assert np.isnan([coarse.min[i, NORM], coarse.max[i, NORM], coarse.mean[i, NORM]]).all()


@given(NORMS)
def test_rows_bring_buckets_back(norms: list[float | None]) -> None:
    made = rollup.of_steps(steps(list(range(len(norms))), norms))
    found = Buckets.of_rows(made.rows())
    for name in Buckets.__slots__:
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    assert {type(value) for row in made.rows() for value in row} <= {int, float, type(None)}
