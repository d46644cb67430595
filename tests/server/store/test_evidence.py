"""What a diagnosis is made from: the newest steps of the attempt that is shown, and all beside them."""

import numpy as np
import pytest

from gradsight import wire
from gradsight_server.errors import InvalidRequestError, RunNotFoundError, StreamNotFoundError
from gradsight_server.store import evidence as room
from gradsight_server.store.evidence import Evidence, evidence, streams_with_steps
from gradsight_server.store.norms import newest_norms, norm_histogram
from tests.server.store.kit import RUN, Store


def found(store: Store, **options: object) -> Evidence:
    return store.read(evidence, RUN, **options)


def numbers(column: object) -> list[float | None]:
    """None where not recorded."""
    assert column is not None
    values, recorded = column.values.tolist(), column.recorded.tolist()  # type: ignore[attr-defined]
    return [value if there else None for value, there in zip(values, recorded, strict=True)]


def test_values_come_back_as_they_were_sent(store: Store) -> None:
    store.send(
        [3, 4, 5, 6],
        grad_norm_before_clip=["NaN", "Infinity", None, 1.5],
        loss=[1.0, "-Infinity", 2.0, None],
        skipped=[True, False, None, None],
        num_nonfinite_layers=[2, None, 0, 0],
        skip_reason=["overflow", None, None, None],
        first_nonfinite_layer=["head", None, None, None],
    )
    steps = found(store).steps
    assert steps.step.tolist() == [3, 4, 5, 6]
    norms = numbers(steps.grad_norm_before_clip)
    assert np.isnan(norms[0] or 0.0)
    assert norms[1:] == [np.inf, None, 1.5]
    assert numbers(steps.loss) == [1.0, -np.inf, 2.0, None]
    assert numbers(steps.skipped) == [1.0, 0.0, None, None]
    assert numbers(steps.num_nonfinite_layers) == [2.0, None, 0.0, 0.0]
    assert steps.skip_reason == ("overflow", None, None, None)
    assert steps.first_nonfinite_layer == ("head", None, None, None)
    assert (steps.max_norm, steps.clip_coef, steps.nonfinite_kind) == (None, None, None), "nobody recorded them"


def test_a_run_without_steps_has_no_evidence(store: Store) -> None:
    nothing = found(store)
    assert (len(nothing.steps.step), nothing.facts, nothing.steps.layers) == (0, None, None)
    assert store.read(streams_with_steps, RUN) == []


def test_what_is_not_there_is_said(store: Store) -> None:
    with pytest.raises(RunNotFoundError):
        store.read(evidence, "f" * 32)
    with pytest.raises(StreamNotFoundError):
        found(store, stream="critic")
    with pytest.raises(InvalidRequestError):
        found(store, first_step=3, last_step=2)


def test_the_attempt_that_started_last_is_judged_from_its_first_step_on(store: Store) -> None:
    store.send(list(range(10)), attempt_id="a", attempt_started_at_s=1.0, loss=[1.0] * 10, dropped={"full": 2})
    store.send([6, 7], attempt_id="b", attempt_started_at_s=2.0, loss=[2.0] * 2, dropped={"full": 3, "late": 1})
    both = found(store)
    assert both.steps.step.tolist() == list(range(8))
    assert numbers(both.steps.loss) == [1.0] * 6 + [2.0] * 2
    assert both.context.dropped == {"full": 5, "late": 1}
    first = found(store, attempt=1)
    assert first.steps.step.tolist() == list(range(10))
    assert first.context.dropped == {"full": 2}


def test_of_a_long_run_the_newest_steps_come_with_facts_of_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_STEPS", 5)
    norms: list[wire.Number] = [9.0, "NaN", 0.5, None, 3.0, 0.5, 0.5, 0.5, 0.5, 0.5]
    store.send(
        list(range(10)),
        attempt_id="a",
        attempt_started_at_s=1.0,
        grad_norm_before_clip=norms,
        max_norm=[1.0] * 10,
        loss_scale=[2.0**i for i in range(10)],
        skipped=[False, True, *[False] * 8],
    )
    store.send([8, 9], attempt_id="b", attempt_started_at_s=2.0, grad_norm_before_clip=[0.25, 0.25])
    long = found(store)
    assert long.steps.step.tolist() == [5, 6, 7, 8, 9]
    assert long.facts is not None
    assert (long.facts.first_step, long.facts.last_step, long.facts.num_steps) == (0, 9, 10)
    assert (long.facts.num_finite, long.facts.num_nonfinite) == (8, 1)
    assert (long.facts.num_skipped, long.facts.num_clipped) == (1, 2)
    assert (long.facts.largest_norm, long.facts.smallest_scale) == (9.0, 1.0)
    assert found(store, first_step=7).facts is None


def test_layers_are_the_newest_rows_of_the_newest_set(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAX_LAYER_ROWS", 3)
    store.send([0, 1], loss=[1.0] * 2, layers=["old"], layer_step=[0, 1], layer_norms=[[1.0], [2.0]])
    store.send(
        [2, 3, 4, 5], loss=[1.0] * 4, layers=["a", ["b", "c"]], layer_step=[2, 3, 4, 5],
        layer_norms=[[1, 1], [2, None], ["NaN", 3], [4, 5]],
    )  # fmt: skip
    layers = found(store).steps.layers
    assert layers is not None
    assert layers.names == ("a", "b = c")
    assert layers.step.tolist() == [3, 4, 5]
    assert np.array_equal(layers.norms, np.array([[2, -1], [np.nan, 3], [4, 5]]), equal_nan=True)
    before = found(store, last_step=1).steps.layers
    assert before is not None
    assert (before.names, before.step.tolist()) == (("old",), [0, 1])


@pytest.mark.parametrize(("num_layers", "rows"), [(1, 256), (400, 256), (2_000, 65), (20_000, 64), (100_000, 20)])
def test_very_many_layers_come_in_fewer_rows(num_layers: int, rows: int) -> None:
    assert room._num_layer_rows(num_layers) == rows


def test_other_ranks_and_metrics_are_heard(store: Store) -> None:
    store.send([0, 1, 2], grad_norm_before_clip=[1.0, 2.0, 3.0])
    store.send([1, 2, 7], rank=[3, 3, 3], grad_norm_before_clip=[9.0, "NaN", 9.0])
    store.send(metrics=[wire.Metric(step=step, name="val_loss", value=1.0 + step) for step in (2, 0)])
    store.send(stream="critic", metrics=[wire.Metric(step=1, name="acc", value="NaN"),
                                         wire.Metric(step=2, name="acc", value=0.5)])  # fmt: skip
    context = found(store).context
    (rank, norms), *rest = context.rank_norms.items()
    assert (rank, rest) == (3, [])
    assert np.array_equal(norms, [np.nan, 9.0, np.nan], equal_nan=True)
    assert {name: (m.step.tolist(), m.values.tolist()) for name, m in context.metrics.items()} == {
        "val_loss": ([0, 2], [1.0, 3.0]),
        "acc": ([2], [0.5]),
    }


def test_the_record_keeps_off_and_unknown_apart(store: Store) -> None:
    store.put(streams={"main": wire.StreamRecord(policy=None, precision="bf16")})
    store.send([0], loss=[1.0])
    context = found(store).context
    assert (context.record.policy, context.record.scaler, context.record.precision) == (None, wire.UNSET, "bf16")
    assert store.read(streams_with_steps, RUN) == ["main"]


def test_norms_are_the_newest_in_order_without_what_was_not_recorded(store: Store) -> None:
    store.send(list(range(6)), attempt_id="a", attempt_started_at_s=1.0,
               grad_norm_before_clip=[1.0, None, "NaN", 4.0, 5.0, 6.0])  # fmt: skip
    store.send([4, 5], attempt_id="b", attempt_started_at_s=2.0, grad_norm_before_clip=[0.0, 8.0])
    step, norms = store.read(newest_norms, RUN, limit=4)
    histogram = store.read(norm_histogram, RUN)
    assert step.tolist() == [2, 3, 4, 5]
    assert np.array_equal(norms, [np.nan, 4.0, 0.0, 8.0], equal_nan=True)
    assert histogram.counts.sum() == 4
    assert (histogram.edges[0], histogram.counts[0]) == (0.0, 1)
    assert histogram.counts[histogram.edges[:-1] > 3.5].sum() == 2
    assert np.all(np.diff(histogram.edges) > 0)


def test_a_histogram_of_nothing_is_empty(store: Store) -> None:
    store.send([0], grad_norm_before_clip=["NaN"])
    assert store.read(norm_histogram, RUN).counts.sum() == 0
