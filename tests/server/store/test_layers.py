"""The layer matrix loses nothing by zooming out, whichever layers come and go."""

from typing import Any

import numpy as np
import pytest

from gradsight import wire
from gradsight_server.store.layers import LayerMatrix, layer_matrix
from tests.server.store.kit import RUN, Store

N = 5000


def matrix(store: Store, **options: Any) -> LayerMatrix:
    return store.read(layer_matrix, RUN, **options)


def test_the_matrix_of_a_run_without_layers_is_empty(store: Store) -> None:
    assert matrix(store).max.shape == (0, 0)
    store.send([0], loss=[1.0])
    assert matrix(store).max.shape == (0, 0)


def test_the_layer_matrix_is_exact_where_it_fits(store: Store) -> None:
    store.send(layers=["a", "b"], layer_step=[0, 2], layer_norms=[[1.0, None], ["NaN", 4.0]])
    found = matrix(store)
    assert (found.bucket_steps, found.step.tolist(), found.layers) == (1, [0, 2], [["a"], ["b"]])
    np.testing.assert_array_equal(found.max, [[1.0, np.nan], [np.nan, 4.0]])
    assert found.num_nonfinite.tolist() == [[0, 1], [0, 0]]
    assert found.num_without_grad.tolist() == [[0, 0], [1, 0]]


@pytest.mark.parametrize("points", [1, 3, 500])
def test_no_spike_or_nan_of_a_layer_disappears_by_zooming_out(store: Store, points: int) -> None:
    norms = np.ones((N, 2), dtype="<f4")
    norms[1234, 0], norms[2345, 1], norms[3456, 0] = 1e6, np.nan, wire.NO_GRADIENT
    batch: dict[str, Any] = {"layers_id": "x", "layers": ["a", "b"]}
    store.send(layer_step=list(range(N)), layer_norms=norms.tobytes(), **batch)
    found = matrix(store, points=points)
    assert len(found.step) <= points
    assert (found.step[0], found.last_step[-1]) == (0, N - 1)
    np.testing.assert_array_equal(np.nanmax(found.max, axis=1), [1e6, 1.0])
    assert found.num_nonfinite.sum(axis=1).tolist() == [0, 1]
    assert found.num_without_grad.sum(axis=1).tolist() == [1, 0]


def test_layers_that_come_and_go_share_one_matrix(store: Store) -> None:
    store.send(layers=["a", "b"], layer_step=[0, 1], layer_norms=[[1.0, 2.0], [3.0, 4.0]])
    store.send(layers=["b", "c"], layer_step=[2, 3], layer_norms=[[5.0, 6.0], [7.0, 8.0]])
    found = matrix(store, points=1)
    assert found.layers == [["a"], ["b"], ["c"]]
    assert found.max.tolist() == [[3.0], [7.0], [8.0]]
    np.testing.assert_array_equal(matrix(store).max[0], [1.0, 3.0, np.nan, np.nan])


def test_layers_without_names_are_numbered(store: Store) -> None:
    store.send(layers_id="x", layer_step=[0], layer_norms=np.ones(2, "<f4").tobytes())
    assert matrix(store).layers == [["layer 0"], ["layer 1"]]


def test_layers_and_series_show_the_same_attempt_where_layers_are_rarer(store: Store) -> None:
    rare: dict[str, Any] = {"layers": ["a"], "layer_step": [0, 4], "layer_norms": [[1.0], [1.0]]}
    store.send(list(range(6)), attempt_id="a", attempt_started_at_s=1.0, **rare)
    store.send([3, 4, 5], attempt_id="b", attempt_started_at_s=2.0, layers=["a"], layer_step=[5], layer_norms=[[2.0]])
    found = matrix(store)
    assert (found.step.tolist(), found.max.tolist()) == ([0, 5], [[1.0, 2.0]])


def test_the_matrix_shows_the_attempt_that_started_last(store: Store) -> None:
    for attempt, started, first in (("a", 1.0, 0), ("b", 2.0, 2)):
        steps = list(range(first, first + 4))
        norms = [[started]] * 4
        store.send(attempt_id=attempt, attempt_started_at_s=started, layers=["a"], layer_step=steps, layer_norms=norms)
    assert matrix(store).max.tolist() == [[1.0, 1.0, 2.0, 2.0, 2.0, 2.0]]
    assert matrix(store, attempt=1).step.tolist() == [0, 1, 2, 3]
    assert matrix(store, points=2).max.tolist() == [[2.0, 2.0]]
