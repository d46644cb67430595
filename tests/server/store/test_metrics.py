"""The user's own metrics by step: exact, in buckets with their extremes, of the attempts that are shown."""

import numpy as np

from gradsight import wire
from gradsight_server.store.metrics import MetricCurve, metric_curves
from tests.server.store.kit import RUN, Store


def metric(step: int, value: float | str, name: str = "val_loss") -> wire.Metric:
    return wire.Metric(step=step, name=name, value=value)  # type: ignore[arg-type]


def curves(store: Store, **query: object) -> dict[str, MetricCurve]:
    return {curve.name: curve for curve in store.read(metric_curves, RUN, **query)}


def test_each_metric_is_a_curve_of_its_own(store: Store) -> None:
    store.send([0, 9], loss=[1.0, 1.0], metrics=[metric(0, 3.0), metric(9, 2.0), metric(9, 0.5, "accuracy")])
    found = curves(store)
    assert list(found) == ["accuracy", "val_loss"]
    assert found["val_loss"].step.tolist() == [0, 9]
    assert found["val_loss"].mean.tolist() == [3.0, 2.0]


def test_many_values_come_in_buckets_that_keep_the_extremes(store: Store) -> None:
    values = [metric(step, 50.0 if step == 77 else 1.0) for step in range(100)]
    store.send(list(range(100)), loss=[1.0] * 100, metrics=values)
    found = curves(store, points=10)["val_loss"]
    assert len(found.step) <= 10
    assert found.max.max() == 50.0
    assert found.min.min() == 1.0


def test_a_value_that_is_not_finite_is_counted(store: Store) -> None:
    store.send([0, 1], loss=[1.0, 1.0], metrics=[metric(0, 2.0), metric(1, "NaN")])
    found = curves(store)["val_loss"]
    assert found.num_nonfinite.tolist() == [0, 1]
    assert np.isnan(found.mean[1])


def test_where_a_newer_attempt_stands_the_older_ones_values_are_not_shown(store: Store) -> None:
    for attempt_id, started_at_s, value in (("a", 1.0, 1.0), ("b", 2.0, 2.0)):
        steps = list(range(10)) if attempt_id == "a" else list(range(5, 10))
        metrics = [metric(step, value) for step in steps]
        store.send(
            steps, attempt_id=attempt_id, attempt_started_at_s=started_at_s, loss=[1.0] * len(steps), metrics=metrics
        )
    assert curves(store)["val_loss"].mean.tolist() == [1.0] * 5 + [2.0] * 5
    assert curves(store, attempt=1)["val_loss"].mean.tolist() == [1.0] * 10
    assert curves(store, first_step=8)["val_loss"].step.tolist() == [8, 9]


def test_a_run_without_metrics_has_none(store: Store) -> None:
    assert curves(store) == {}
    store.send([0], loss=[1.0])
    assert curves(store) == {}
