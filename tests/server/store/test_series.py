"""Series lose nothing by zooming out, and show the attempt that started last."""

from typing import Any

import numpy as np
import pytest

from gradsight import wire
from gradsight_server.errors import InvalidRequestError, RunNotFoundError, StepNotFoundError, StreamNotFoundError
from gradsight_server.store.one_step import one_step
from gradsight_server.store.series import Series, series
from tests.server.store.kit import RUN, Store

NORM = "grad_norm_before_clip"
N = 5000


def read(store: Store, *columns: str, **options: Any) -> Series:
    return store.read(series, RUN, columns=columns or ("loss",), **options)


@pytest.fixture
def eventful(store: Store) -> Store:
    """N quiet steps with one spike, one NaN, one infinity, one skip and one clip, each on its own."""
    norms: list[Any] = [0.5 + 0.001 * (step % 7) for step in range(N)]
    norms[1234], norms[2345], norms[2346] = 1e6, "NaN", "Infinity"
    max_norm: list[Any] = [None] * N
    norms[3456], max_norm[3456] = 0.5, 0.25
    skipped = [step == 4567 for step in range(N)]
    store.send(list(range(N)), grad_norm_before_clip=norms, max_norm=max_norm, skipped=skipped, loss=[2.0] * N)
    return store


def test_steps_that_fit_are_exact(store: Store) -> None:
    store.send([3, 1, 8], loss=[3.0, "NaN", None], skipped=[True, False, None], num_nonfinite_layers=[0, 2, None])
    found = read(store, "loss", "num_nonfinite_layers", points=3)
    assert found.bucket_steps == 1
    assert found.step.tolist() == found.last_step.tolist() == [1, 3, 8]
    loss = found.columns["loss"]
    for values in (loss.min, loss.max, loss.mean):
        np.testing.assert_array_equal(values, [np.nan, 3.0, np.nan])
    assert loss.num_nonfinite.tolist() == [1, 0, 0]
    assert found.num_skipped.tolist() == [0, 1, 0]
    assert found.num_steps.tolist() == [1, 1, 1]
    np.testing.assert_array_equal(found.columns["num_nonfinite_layers"].mean, [2.0, 0.0, np.nan])


@pytest.mark.parametrize("points", [1, 7, 100, 1000, N - 1])
def test_no_spike_nan_skip_or_clip_disappears_by_zooming_out(eventful: Store, points: int) -> None:
    found = read(eventful, NORM, "loss", points=points)
    assert len(found.step) <= points
    assert found.bucket_steps > 1
    assert np.log2(found.bucket_steps) % 1 == 0
    norm = found.columns[NORM]
    assert norm.max.max() == 1e6
    assert norm.min.min() == 0.5
    assert norm.num_nonfinite.sum() == 2
    assert (found.num_skipped.sum(), found.num_clipped.sum(), found.num_steps.sum()) == (1, 1, N)
    assert (found.step[0], found.last_step[-1]) == (0, N - 1)
    assert (found.columns["loss"].mean == 2.0).all()


def test_buckets_hold_extrema_and_mean_of_their_steps(store: Store) -> None:
    store.send(list(range(8)), loss=[1.0, 2.0, 3.0, None, "Infinity", "NaN", "NaN", None])
    found = read(store, points=2)
    loss = found.columns["loss"]
    assert found.bucket_steps == 4
    assert (found.step.tolist(), found.last_step.tolist()) == ([0, 4], [3, 7])
    np.testing.assert_array_equal(loss.min, [1.0, np.nan])
    np.testing.assert_array_equal(loss.max, [3.0, np.nan])
    np.testing.assert_array_equal(loss.mean, [2.0, np.nan])
    assert loss.num_nonfinite.tolist() == [0, 3]


def test_a_mean_of_huge_values_stays_finite(store: Store) -> None:
    store.send([0, 1], loss=[1.7e308, 1.7e308])
    assert read(store, points=1).columns["loss"].mean.tolist() == [1.7e308]


def test_a_range_holds_both_its_ends(store: Store) -> None:
    store.send(list(range(10)), loss=[1.0] * 10)
    assert read(store, first_step=3, last_step=5).step.tolist() == [3, 4, 5]
    assert read(store, first_step=8).step.tolist() == [8, 9]
    assert read(store, first_step=20).step.tolist() == []


def test_steps_at_the_very_end_are_still_exact_numbers(store: Store) -> None:
    store.send([wire.MAX_STEP - 1, wire.MAX_STEP], loss=[1.0, 2.0])
    assert read(store).step.tolist() == [wire.MAX_STEP - 1, wire.MAX_STEP]
    assert read(store, points=1).last_step.tolist() == [wire.MAX_STEP]


def test_late_steps_take_their_place(store: Store) -> None:
    store.send([10, 11], loss=[10.0, 11.0])
    store.send([5, 10], loss=[5.0, -10.0])
    found = read(store)
    assert found.step.tolist() == [5, 10, 11]
    assert found.columns["loss"].mean.tolist() == [5.0, -10.0, 11.0]


@pytest.fixture
def resumed(store: Store) -> Store:
    """Attempt 1 has steps 0 to 9; attempt 2, sent first, resumes at 6 and has steps 6 to 12."""
    store.send(list(range(6, 13)), attempt_id="b", attempt_started_at_s=20.0, loss=[2.0] * 7)
    store.send(list(range(10)), attempt_id="a", attempt_started_at_s=10.0, loss=[1.0] * 10, skipped=[True] * 10)
    return store


def test_from_its_first_step_on_the_attempt_that_started_last_is_shown(resumed: Store) -> None:
    found = read(resumed)
    assert found.step.tolist() == list(range(13))
    assert found.columns["loss"].mean.tolist() == [1.0] * 6 + [2.0] * 7
    assert [resumed.read(one_step, RUN, step)["attempt"] for step in (5, 6, 12)] == [1, 2, 2]
    run = resumed.run()
    assert (run["last_step"], run["last"]["loss"], run["num_steps"]) == (12, 2.0, 17)
    assert [attempt["attempt_id"] for attempt in run["attempts"]] == ["a", "b"]


def test_an_attempt_asked_for_is_shown_whole(resumed: Store) -> None:
    found = read(resumed, attempt=1)
    assert (found.attempt, found.step.tolist()) == (1, list(range(10)))
    assert read(resumed, attempt=2).step.tolist() == list(range(6, 13))
    assert resumed.read(one_step, RUN, 8, attempt=1)["loss"] == 1.0
    with pytest.raises(StepNotFoundError):
        resumed.read(one_step, RUN, 12, attempt=1)


def test_a_bucket_that_two_attempts_share_is_one_point(resumed: Store) -> None:
    found = read(resumed, points=4)
    assert found.bucket_steps == 4
    assert (found.step.tolist(), found.last_step.tolist()) == ([0, 4, 8, 12], [3, 7, 11, 12])
    assert found.num_steps.tolist() == [4, 4, 4, 1]
    assert found.num_skipped.tolist() == [4, 2, 0, 0]
    loss = found.columns["loss"]
    assert (loss.min.tolist(), loss.mean.tolist(), loss.max.tolist()) == (
        [1.0, 1.0, 2.0, 2.0],
        [1.0, 1.5, 2.0, 2.0],
        [1.0, 2.0, 2.0, 2.0],
    )


def test_an_attempt_that_starts_over_hides_the_older_one(store: Store) -> None:
    store.send([0, 1, 2], attempt_id="a", attempt_started_at_s=1.0, loss=[1.0] * 3)
    store.send([0, 1], attempt_id="b", attempt_started_at_s=2.0, loss=[2.0] * 2)
    assert read(store).columns["loss"].mean.tolist() == [2.0, 2.0]
    with pytest.raises(StepNotFoundError):
        store.read(one_step, RUN, 2)


def test_main_is_empty_before_its_first_batch_and_other_names_are_not_found(store: Store) -> None:
    assert read(store).step.tolist() == []
    with pytest.raises(StreamNotFoundError, match="'critic'"):
        read(store, stream="critic")
    with pytest.raises(RunNotFoundError):
        store.read(series, "f" * 32, columns=["loss"])
    with pytest.raises(StepNotFoundError):
        store.read(one_step, RUN, 0)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"points": 0}, "points"),
        ({"points": 10_001}, "points"),
        ({"attempt": 2}, "attempt"),
        ({"attempt": 0}, "attempt"),
    ],
)
def test_what_cannot_be_asked_for_is_named(store: Store, options: dict[str, int], named: str) -> None:
    store.send([0], loss=[1.0])
    with pytest.raises(InvalidRequestError, match=named):
        read(store, **options)


def test_unknown_columns_and_ranges_the_wrong_way_round_are_named(store: Store) -> None:
    with pytest.raises(InvalidRequestError, match="'grad_norm'"):
        read(store, "grad_norm")
    with pytest.raises(InvalidRequestError, match="first_step"):
        read(store, first_step=5, last_step=4)


def test_one_step_says_everything_of_it(store: Store) -> None:
    norms = [[0.5, None, "Infinity"]]
    layers = ["a", ["b", "c"], "d"]
    store.send([4], wall_time_s=[9.0], loss=[1.5], lr=["NaN"], layers=layers, layer_step=[4], layer_norms=norms)
    found = store.read(one_step, RUN, 4)
    assert set(found) == {"step", "attempt", "wall_time_s", *wire.COLUMNS, "nonfinite", "layers"}
    assert (found["step"], found["attempt"], found["wall_time_s"], found["loss"]) == (4, 1, 9.0, 1.5)
    assert (found["lr"], found["nonfinite"]) == (None, {"lr": "NaN"})
    assert found["layers"] == [
        {"names": ["a"], "norm": 0.5, "nonfinite": None},
        {"names": ["b", "c"], "norm": None, "nonfinite": None},
        {"names": ["d"], "norm": None, "nonfinite": "Infinity"},
    ]
