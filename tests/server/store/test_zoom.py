"""At any zoom a chart says what the steps say: each bucket, against the rows themselves."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gradsight import wire
from gradsight_server.store import rollup, views
from gradsight_server.store.database import Database
from gradsight_server.store.layers import layer_matrix
from gradsight_server.store.series import series
from tests.postgres import NewDatabase
from tests.server.store.kit import RUN, Store

NORM = "grad_norm_before_clip"
FIRST_OF_SECOND, LAST = 3_333, 9_999
RARE = 10
"""Layer norms are recorded every so many steps."""


@pytest.fixture(scope="module")
def resumed(new_database: NewDatabase) -> Iterator[Store]:
    """Attempt a has steps 0 to 5,999, b steps 3,333 to 9,999 with a gap and, at its end, every tenth."""
    with new_database("tables") as url:
        yield from filled(url)


def filled(url: str) -> Iterator[Store]:
    db = Database(url)
    db.migrate()
    store = Store(db)
    store.put()
    after_the_gap = [*range(FIRST_OF_SECOND, 6_000), *range(6_100, 8_000), *range(8_000, LAST + 1, RARE)]
    for attempt, started, steps in (("a", 1.0, list(range(6_000))), ("b", 2.0, after_the_gap)):
        for i in range(0, len(steps), 777):
            send(store, steps[i : i + 777], attempt_id=attempt, attempt_started_at_s=started)
    yield store
    db.close()


def norms_of(steps: NDArray[np.int64]) -> NDArray[np.float64]:
    norms = 0.5 + steps % 13 / 10.0
    norms[steps % 1_001 == 17] = 1e6
    norms[steps % 507 == 3] = np.nan
    norms[steps % 713 == 5] = np.inf
    return norms


def layer_norms_of(steps: NDArray[np.int64]) -> NDArray[np.float32]:
    norms = np.stack([norms_of(steps), norms_of(steps + 1), 1.0 + steps % 7], axis=1)
    norms[steps % 90 == 20, 2] = wire.NO_GRADIENT
    return norms.astype(np.float32)


def send(store: Store, steps: list[int], **batch: Any) -> None:
    numbers = np.array(steps)
    with_layers = numbers[numbers % RARE == 0]
    store.send(
        steps,
        grad_norm_before_clip=norms_of(numbers).tolist(),
        max_norm=[1.5] * len(steps),
        skipped=(numbers % 611 == 9).tolist(),
        layers_id="x",
        layers=["a", "b", "c"],
        layer_step=with_layers.tolist(),
        layer_norms=layer_norms_of(with_layers).tobytes(),
        **batch,
    )


def shown(first: int, last: int, attempt: int | None) -> NDArray[np.int64]:
    """The steps that a chart of this range stands for."""
    steps = np.arange(LAST + 1)
    of_second = (steps >= FIRST_OF_SECOND) & ((steps < 6_000) | ((steps >= 6_100) & (steps < 8_000)) | (steps >= 8_000))
    of_second &= (steps < 8_000) | (steps % RARE == 0)
    of_first = steps < (6_000 if attempt == 1 else FIRST_OF_SECOND)
    there = {None: of_first | of_second, 1: of_first, 2: of_second}[attempt]
    return steps[there & (steps >= first) & (steps <= last)]


EDGE = st.one_of(
    st.integers(0, LAST + 50), st.sampled_from([0, 15, 16, 255, 256, 3_332, 3_333, 4_095, 4_096, 6_050, LAST])
)
POINTS = st.one_of(st.integers(1, 40), st.integers(1, 10_000))


@settings(max_examples=150, deadline=None)
@given(EDGE, EDGE, POINTS, st.sampled_from([None, None, 1, 2]))
def test_each_bucket_of_a_series_says_what_its_steps_say(
    resumed: Store, one: int, other: int, points: int, attempt: int | None
) -> None:
    first, last = min(one, other), max(one, other)
    found = resumed.read(
        series, RUN, columns=[NORM, "loss"], first_step=first, last_step=last, points=points, attempt=attempt
    )
    steps = shown(first, last, attempt)
    assert len(found.step) <= points
    assert found.bucket_steps == 1 or len(steps) > points
    bucket = steps // found.bucket_steps
    assert found.num_steps.sum() == len(steps)
    assert len(found.step) == len(np.unique(bucket))
    norm, skipped = norms_of(steps), steps % 611 == 9
    for i, number in enumerate(np.unique(bucket)):
        of_bucket = bucket == number
        finite = norm[of_bucket][np.isfinite(norm[of_bucket])]
        assert (found.step[i], found.last_step[i]) == (steps[of_bucket][0], steps[of_bucket][-1])
        assert found.num_skipped[i] == skipped[of_bucket].sum()
        assert found.num_clipped[i] == (finite > 1.5).sum()
        column = found.columns[NORM]
        assert column.num_nonfinite[i] == (~np.isfinite(norm[of_bucket])).sum()
        if len(finite):
            assert (column.min[i], column.max[i]) == (finite.min(), finite.max())
            assert column.mean[i] == pytest.approx(finite.mean(), rel=1e-9)
        else:
            assert np.isnan([column.min[i], column.max[i], column.mean[i]]).all()
    assert np.isnan(found.columns["loss"].max).all()


@settings(max_examples=100, deadline=None)
@given(EDGE, EDGE, POINTS, st.sampled_from([None, None, 1, 2]))
def test_each_column_of_the_layer_matrix_says_what_its_steps_say(
    resumed: Store, one: int, other: int, points: int, attempt: int | None
) -> None:
    first, last = min(one, other), max(one, other)
    found = resumed.read(layer_matrix, RUN, first_step=first, last_step=last, points=points, attempt=attempt)
    steps = shown(first, last, attempt)
    steps = steps[steps % RARE == 0]
    norms = layer_norms_of(steps)
    assert len(found.step) <= points
    bucket = steps // found.bucket_steps
    assert found.layers == ([["a"], ["b"], ["c"]] if len(steps) else [])
    assert len(found.step) == len(np.unique(bucket))
    for i, number in enumerate(np.unique(bucket)):
        inside = norms[bucket == number]
        assert (found.step[i], found.last_step[i]) == (steps[bucket == number][0], steps[bucket == number][-1])
        assert found.num_nonfinite[:, i].tolist() == (~np.isfinite(inside)).sum(axis=0).tolist()
        assert found.num_without_grad[:, i].tolist() == (inside == wire.NO_GRADIENT).sum(axis=0).tolist()
        is_norm = np.isfinite(inside) & (inside >= 0)
        highest = np.where(is_norm.any(axis=0), np.where(is_norm, inside, -1).max(axis=0), np.nan)
        np.testing.assert_array_equal(found.max[:, i], highest)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**10), st.integers(0, 10**10), st.integers(1, 10_000))
def test_what_a_chart_reads_does_not_grow_with_the_run(one: int, other: int, points: int) -> None:
    first, last = min(one, other), max(one, other)
    whole = views.Segment(1, (RUN, 1, 1), first, last, is_first=False, sealed_before=0)
    view = views.View((whole,), views.bucket_steps([whole], points))
    num_read = sum(piece.last - piece.first + 1 for _, piece in view.pieces())
    assert num_read <= 8 * (points + 1) + 30 * rollup.level_of(view.bucket_steps)


@pytest.mark.parametrize("points", [1, 2, 10, 100, 1000, 10_000])
def test_nothing_that_happened_disappears_at_any_zoom(resumed: Store, points: int) -> None:
    found = resumed.read(series, RUN, columns=[NORM], points=points)
    steps = shown(0, LAST, None)
    norm = norms_of(steps)
    assert np.nanmax(found.columns[NORM].max) == 1e6
    assert found.columns[NORM].num_nonfinite.sum() == (~np.isfinite(norm)).sum()
    assert found.num_skipped.sum() == (steps % 611 == 9).sum()
    assert found.num_clipped.sum() == (np.isfinite(norm) & (norm > 1.5)).sum()
