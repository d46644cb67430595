"""Columns keep NaN and "not recorded" apart, and refuse what cannot be."""

import dataclasses

import numpy as np
import pytest

from gradsight import wire
from gradsight_server.diagnosis import Column, Histogram, LayerNorms, StreamSteps


def test_all_columns_of_the_wire_have_a_place() -> None:
    names = {field.name for field in dataclasses.fields(StreamSteps)}
    assert names == {"step", "layers", *wire.COLUMNS}


def test_nan_and_not_recorded_stay_apart() -> None:
    column = Column.of([1.0, None, float("nan"), "Infinity"])
    assert column.recorded.tolist() == [True, False, True, True]
    assert column.finite.tolist() == [True, False, False, False]
    assert column.nonfinite.tolist() == [False, False, True, True]


def test_yes_and_no_are_one_and_zero() -> None:
    assert Column.of([True, None, False]).values.tolist()[::2] == [1.0, 0.0]
    assert Column.of(np.array([True, False])).values.tolist() == [1.0, 0.0]


def test_columns_must_be_as_long_as_step_and_known() -> None:
    with pytest.raises(ValueError, match=r"loss must have as many values as step \(2\), got 3"):
        StreamSteps.of([0, 1], loss=[1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"columns must be among .*, got 'grad_norm'"):
        StreamSteps.of([0], grad_norm=[1.0])


def test_shapes_must_fit() -> None:
    with pytest.raises(ValueError, match="norms must have the shape"):
        LayerNorms(np.arange(2), ("a",), np.ones((2, 2)))
    with pytest.raises(ValueError, match="edges must be one more than counts"):
        Histogram(np.arange(2.0), np.arange(2))


def test_norms_are_taken_out_of_a_histogram_by_the_bins_upper_edge() -> None:
    histogram = Histogram(np.array([0.0, 0.5, 1.0, 2.0]), np.array([2, 3, 4]))
    left = histogram.without(np.array([0.0, 1.0, 1.0, 2.0, 1.5]))
    assert left.counts.tolist() == [1, 1, 2]
    assert left.median() == pytest.approx(2**0.5 / 2)
    assert left.median(above=1.0) == pytest.approx(2**0.5)
    assert left.median(above=3.0) is None
    assert Histogram(np.array([0.0]), np.empty(0, dtype=np.int64)).without(np.ones(3)).median() is None
