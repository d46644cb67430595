"""The histogram of norms: quantiles within 2 %, bounds that hold, and merging that loses nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsight_server.store import histogram
from gradsight_server.store.histogram import RELATIVE_ERROR, Histogram

NORM = st.one_of(st.floats(0, 1e300, allow_subnormal=False), st.floats(0.01, 100.0), st.just(0.0))
NORMS = st.lists(NORM, min_size=1, max_size=200)


def made(values: list[float]) -> Histogram:
    return histogram.of_values(np.array(values, dtype=np.float64))


def equal(one: Histogram, other: Histogram) -> bool:
    return bool(np.array_equal(one.bins, other.bins) and np.array_equal(one.counts, other.counts))


def test_the_error_is_below_two_percent() -> None:
    assert RELATIVE_ERROR < 0.02


@pytest.mark.parametrize("value", [5e-324, 1e-300, 1e-10, 0.999, 1.0, 1.001, 65504.0, 1e300, 1.7976931348623157e308])
def test_one_value_is_found_again(value: float) -> None:
    relative_error = 0.02 if value > 1e-307 else 1.0  # the smallest of all floats have no 2 % between them
    assert made([value]).quantile(0.5) == pytest.approx(value, rel=relative_error)


@given(NORMS, st.floats(0, 1))
def test_a_quantile_is_within_two_percent_of_the_value_it_stands_for(values: list[float], q: float) -> None:
    exact = sorted(values)[math.floor(q * (len(values) - 1))]
    assert made(values).quantile(q) == pytest.approx(exact, rel=0.02, abs=0.0)


@given(NORMS, st.one_of(NORM, st.sampled_from([0.25, 0.5, 1.0, 2.0, 1024.0])))
def test_what_lies_above_a_threshold_is_within_its_bounds(values: list[float], threshold: float) -> None:
    above = sum(value > threshold for value in values)
    at_least, at_most = made(values).num_above(threshold)
    assert at_least <= above <= at_most
    near = sum(abs(value - threshold) <= 0.04 * threshold for value in values)
    assert at_most - at_least <= near


@given(NORMS, NORMS, st.sampled_from([2.0**k for k in range(-20, 20)]))
def test_a_threshold_that_is_a_power_of_two_is_counted_exactly(
    values: list[float], others: list[float], threshold: float
) -> None:
    values = [*values, threshold, np.nextafter(threshold, 0.0), np.nextafter(threshold, np.inf)]
    merged = histogram.merged([made(values), made(others)])
    above = sum(value > threshold for value in values + others)
    assert merged.num_above(threshold) == (above, above)


@given(st.lists(NORMS, max_size=5))
def test_merging_is_the_histogram_of_all(parts: list[list[float]]) -> None:
    assert equal(histogram.merged(map(made, parts)), made([value for part in parts for value in part]))


@given(NORMS, st.sampled_from([1, 300, 70_000, 2**40]))
def test_bytes_bring_a_histogram_back(values: list[float], factor: int) -> None:
    some = made(values)
    large = Histogram(some.bins, some.counts * factor)
    assert equal(Histogram.from_bytes(large.to_bytes()), large)


def test_sixteen_norms_take_few_bytes() -> None:
    assert len(made([0.9 + 0.01 * i for i in range(16)]).to_bytes()) <= 1 + 3 * 16


def test_what_is_not_finite_is_left_out_and_what_is_not_positive_is_one_bin() -> None:
    found = made([math.nan, math.inf, -math.inf, 0.0, -1.0, 2.0])
    assert found.total == 3
    assert found.num_above(0.0) == (1, 1)
    assert found.num_above(math.inf) == (0, 0)
    assert found.num_above(-math.inf) == (3, 3)
    assert found.quantile(0.0) == 0.0


def test_the_histogram_of_nothing_has_no_quantile() -> None:
    empty = made([])
    assert (empty.total, empty.quantile(0.5), empty.num_above(1.0)) == (0, None, (0, 0))
    assert equal(Histogram.from_bytes(empty.to_bytes()), empty)
    assert equal(histogram.merged([]), empty)
