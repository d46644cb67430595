"""Rows become batches that keep order, and batches that follow one another can be sent as one."""

import pytest

from gradsight import wire
from gradsight.rows import Attempt, BatchBuilder, LayerSet, Merger, Recorded, StepRow

ATTEMPT = Attempt("a" * 32, 1.0, 0)


def row(step: int, layer_set: LayerSet | None = None, **columns: float) -> StepRow:
    norms = None if layer_set is None else [float(step)] * len(layer_set)
    return StepRow(step, float(step), columns, layer_set, norms)


def build(*entries: Recorded, attempt: Attempt = ATTEMPT) -> list[tuple[str, wire.Batch]]:
    return [(stream, batch) for stream, batch, _ in BatchBuilder(attempt).batches(entries)]


def test_rows_of_one_shape_are_one_batch() -> None:
    layer_set = LayerSet(["a", "b"])
    ((stream, batch),) = build(*(Recorded("main", i, row(i, layer_set, loss=1.0 + i)) for i in range(3)))
    assert (stream, batch.step, batch.loss, batch.sequence) == ("main", [0, 1, 2], [1.0, 2.0, 3.0], 0)
    assert batch.layers_id == layer_set.layers_id
    assert batch.layer_norms == wire.pack_norms([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    assert batch.rank is wire.UNSET


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(Recorded("main", 1, row(1, loss=1.0, lr=1.0)), id="other columns"),
        pytest.param(Recorded("main", 5, row(1, loss=1.0)), id="a gap"),
        pytest.param(Recorded("main", 1, row(1, LayerSet(["c"]), loss=1.0)), id="other layers"),
    ],
)
def test_what_does_not_fit_begins_a_batch_of_its_own(second: Recorded) -> None:
    batches = build(Recorded("main", 0, row(0, LayerSet(["a"]), loss=1.0)), second)
    assert [batch.step for _, batch in batches] == [[0], [1]]


def test_streams_are_kept_apart_and_in_order() -> None:
    entries = [Recorded(("main", "other")[i % 2], i // 2, row(i // 2, loss=1.0)) for i in range(6)]
    assert {stream: batch.step for stream, batch in build(*entries)} == {"main": [0, 1, 2], "other": [0, 1, 2]}


def test_metrics_and_events_go_along() -> None:
    metric = wire.Metric(step=0, name="val_loss", value=1.0)
    event = wire.Event(kind="note", step=0)
    ((_, batch),) = build(Recorded("main", None, metric), Recorded("main", 0, row(0)), Recorded("main", None, event))
    assert (batch.step, batch.metrics, batch.events) == ([0], [metric], [event])


def test_ranks_beyond_zero_say_so() -> None:
    ((_, batch),) = build(Recorded("main", 0, row(0)), attempt=Attempt("a", 1.0, 3))
    assert batch.rank == [3]


def test_merging_gives_what_one_batch_would_have_been() -> None:
    layer_set = LayerSet(["a", "b"])
    entries = [Recorded("main", i, row(i, layer_set, loss=1.0 + i)) for i in range(6)]
    ((_, whole),) = build(*entries)
    parts = [build(*entries[start : start + 2])[0][1] for start in (0, 2, 4)]
    merger = Merger(parts[0])
    assert not merger.takes(parts[2])  # a gap must stay visible
    assert merger.takes(parts[1])
    assert merger.takes(parts[2])
    assert wire.encode(merger.whole()) == wire.encode(whole)


def test_batches_of_other_shapes_are_not_merged() -> None:
    ((_, one),) = build(Recorded("main", 0, row(0, loss=1.0)))
    ((_, other),) = build(Recorded("main", 1, row(1, lr=1.0)))
    ((_, another_attempt),) = build(Recorded("main", 1, row(1, loss=1.0)), attempt=Attempt("b", 2.0, 0))
    merger = Merger(one)
    assert not any(map(merger.takes, (other, another_attempt, wire.Batch())))


@pytest.mark.parametrize("extra", ["metrics", "events"])
def test_no_message_has_more_metrics_or_events_than_the_wire_allows(extra: str) -> None:
    many = 30
    things: list[wire.Metric | wire.Event] = [wire.Metric(step=0, name=f"m{i}", value=1.0) for i in range(many)]
    if extra == "events":
        things = [wire.Event(kind=f"e{i}") for i in range(many)]
    entries = [
        entry
        for i in range(1000)
        for entry in (Recorded("main", i, row(i)), *(Recorded("main", None, thing) for thing in things))
    ]
    batches = [batch for _, batch in build(*entries)]
    assert [step for batch in batches for step in batch.step] == list(range(1000))
    assert sum(len(getattr(batch, extra)) for batch in batches) == 1000 * many
    for batch in batches:
        wire.decode(wire.encode(batch), wire.Batch)
    parts = [build(*entries[start : start + 31 * 100])[0][1] for start in range(0, len(entries), 31 * 100)]
    merger = Merger(parts[0])
    taken = [merger.takes(part) for part in parts[1:]]
    assert taken == [True] * 5 + [False] * 4, "20,000 at most"
    assert len(wire.decode(wire.encode(merger.whole()), wire.Batch).step) == 600
