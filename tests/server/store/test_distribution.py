"""Quantiles, clip fractions and layers' totals of any range, told from its buckets, are those of its steps."""

import numpy as np
import pytest

from gradsight import wire
from gradsight_server.errors import InvalidRequestError, RunNotFoundError
from gradsight_server.store.distribution import norm_distribution
from gradsight_server.store.layer_totals import layer_totals
from gradsight_server.store.retention import Keep, sweep
from tests.server.store.kit import RUN, Store

N = 6_000
RANGES = [(0, N - 1), (0, 10), (3, 3), (17, 5_000), (250, 263), (4_095, 4_096), (5_999, 7_000), (100, 1_123)]
NORMS = np.random.default_rng(7).lognormal(0.0, 1.0, N)
NORMS[77], NORMS[4_000] = 1e300, 1e-300
LAYERS = np.random.default_rng(8).lognormal(0.0, 1.0, (N, 2)).astype("<f4")
LAYERS[50, 0], LAYERS[51, 1], LAYERS[:, 1][5_000:5_100] = np.inf, wire.NO_GRADIENT, wire.NO_GRADIENT


@pytest.fixture
def filled(store: Store) -> Store:
    """N steps, every tenth of them NaN, and every hundredth skipped."""
    for first in range(0, N, 500):
        steps = list(range(first, first + 500))
        store.send(
            steps,
            grad_norm_before_clip=["NaN" if step % 10 == 5 else float(NORMS[step]) for step in steps],
            max_norm=[2.0] * 500,
            skipped=[step % 100 == 0 for step in steps],
            layers=["a", "b"],
            layer_step=steps,
            layer_norms=LAYERS[steps].tobytes(),
        )
    return store


@pytest.mark.parametrize("bounds", RANGES)
def test_the_distribution_of_a_range_is_that_of_its_steps(filled: Store, bounds: tuple[int, int]) -> None:
    found = filled.read(norm_distribution, RUN, first_step=bounds[0], last_step=bounds[1])
    steps = np.arange(bounds[0], min(bounds[1], N - 1) + 1)
    norms = np.sort(NORMS[steps[steps % 10 != 5]])
    assert (found.num_steps, found.num_finite, found.num_nonfinite) == (
        len(steps),
        len(norms),
        (steps % 10 == 5).sum(),
    )
    assert (found.num_skipped, found.num_clipped) == ((steps % 100 == 0).sum(), (norms > 2.0).sum())
    if not len(norms):
        assert (found.min, found.quantile(0.5), found.clip_fraction(1.0)) == (None, None, None)
        return
    assert (found.min, found.max) == (norms[0], norms[-1])
    for q in (0.0, 0.1, 0.5, 0.9, 0.99, 1.0):
        assert found.quantile(q) == pytest.approx(norms[int(q * (len(norms) - 1))], rel=0.02)
    for max_norm in (0.0, 0.3, 1.0, 2.0, 3.7, 1e301):
        bounds_of = found.clip_fraction(max_norm)
        assert bounds_of is not None
        assert bounds_of[0] <= (norms > max_norm).mean() <= bounds_of[1]
    exact = found.clip_fraction(2.0)
    assert exact == (found.num_clipped / found.num_finite,) * 2, "a power of two is counted exactly"


@pytest.mark.parametrize("bounds", RANGES)
def test_the_totals_of_layers_are_those_of_their_steps(filled: Store, bounds: tuple[int, int]) -> None:
    found = filled.read(layer_totals, RUN, first_step=bounds[0], last_step=bounds[1])
    rows = LAYERS[bounds[0] : bounds[1] + 1].astype(np.float64)
    assert found.layers == [["a"], ["b"]]
    assert found.num_nonfinite.tolist() == (~np.isfinite(rows)).sum(axis=0).tolist()
    assert found.num_without_grad.tolist() == (rows == wire.NO_GRADIENT).sum(axis=0).tolist()
    for layer in range(2):
        norms = rows[np.isfinite(rows[:, layer]) & (rows[:, layer] >= 0), layer]
        assert found.num_finite[layer] == len(norms)
        assert found.max[layer] == norms.max()
        assert found.min[layer] == pytest.approx(norms.min(), rel=0.006)
        assert found.mean[layer] == pytest.approx(norms.mean(), rel=0.006)


def test_sealed_steps_still_count(filled: Store) -> None:
    before = filled.read(norm_distribution, RUN)
    totals = filled.read(layer_totals, RUN)
    sweep(filled.db, Keep(steps=1), now_s=0.0)
    after = filled.read(norm_distribution, RUN)
    assert (after.num_steps, after.num_clipped, after.quantile(0.5)) == (N, before.num_clipped, before.quantile(0.5))
    np.testing.assert_array_equal(filled.read(layer_totals, RUN).mean, totals.mean)


def test_a_run_without_norms_has_no_quantiles(store: Store) -> None:
    empty = store.read(norm_distribution, RUN)
    assert (empty.num_steps, empty.max, empty.quantile(0.5), empty.clip_fraction(1.0)) == (0, None, None, None)
    assert store.read(layer_totals, RUN).layers == []
    with pytest.raises(RunNotFoundError):
        store.read(norm_distribution, "f" * 32)
    with pytest.raises(InvalidRequestError, match="first_step"):
        store.read(norm_distribution, RUN, first_step=3, last_step=2)
