"""What the queue between the training thread and the exporter carries, and how rows become wire batches. No torch."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from gradsight import wire

MAX_STEPS_PER_FRAME = 1_000
MAX_VALUES_PER_FRAME = 500_000
MAX_EXTRAS_PER_FRAME = wire.MAX_STEPS_PER_BATCH // 2
"""Metrics, or events: a step may bring as many again before the next one is looked at."""


class LayerSet:
    """Names of layers, in order, and the id that stands for them on the wire (worked out when first asked for)."""

    def __init__(self, names: Sequence[wire.LayerNames]) -> None:
        self.names = list(names)

    @cached_property
    def layers_id(self) -> str:
        return wire.layers_id(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        """One name of a layer: the first of several tied ones."""
        names = self.names[index]
        return names if isinstance(names, str) else names[0]


class StepRow(NamedTuple):
    """One optimizer step, ready for the wire."""

    step: int
    wall_time_s: float
    columns: dict[str, Any]
    layer_set: LayerSet | None = None
    layer_norms: Sequence[float] | None = None
    events: Sequence[wire.Event] = ()

    def resolve(self) -> "StepRow":
        return self


class Resolvable(Protocol):
    """A step whose row is worked out off the training thread."""

    def resolve(self) -> StepRow: ...


class Recorded(NamedTuple):
    """One entry of the queue. `sequence` counts the stream's steps; metrics and events carry None."""

    stream: str
    sequence: int | None
    what: Resolvable | wire.Metric | wire.Event


class Attempt(NamedTuple):
    """What every batch of one launch says of itself."""

    attempt_id: str
    started_at_s: float
    rank: int


class BatchBuilder:
    """Gathers what was recorded, in order, into batches of one stream and one set of columns each."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt

    def batches(self, entries: Iterable[Recorded]) -> Iterator[tuple[str, wire.Batch, LayerSet | None]]:
        """(stream, batch without the layers' names, layer set) for each; order is kept within a stream."""
        open_batches: dict[str, _OpenBatch] = {}
        for entry in entries:
            row = entry.what.resolve() if not isinstance(entry.what, wire.Metric | wire.Event) else None
            batch = open_batches.get(entry.stream)
            if batch is not None and row is not None and not batch.fits(row, entry.sequence):
                yield entry.stream, batch.build(self._attempt), batch.layer_set
                batch = None
            if batch is None:
                batch = open_batches[entry.stream] = _OpenBatch()
            if row is not None:
                batch.add(row, entry.sequence)
            elif isinstance(entry.what, wire.Metric):
                batch.metrics.append(entry.what)
            elif isinstance(entry.what, wire.Event):
                batch.events.append(entry.what)
        for stream, batch in open_batches.items():
            yield stream, batch.build(self._attempt), batch.layer_set


class _OpenBatch:
    def __init__(self) -> None:
        self.rows: list[StepRow] = []
        self.metrics: list[wire.Metric] = []
        self.events: list[wire.Event] = []
        self.layer_set: LayerSet | None = None
        self._sequence: int | None = None
        self._num_values = 0

    def fits(self, row: StepRow, sequence: int | None) -> bool:
        if not self.rows:
            return True
        same_layers = row.layer_set is None or self.layer_set is None or row.layer_set is self.layer_set
        follows = sequence is None or self._sequence is None or sequence == self._sequence + len(self.rows)
        fits = len(self.rows) < MAX_STEPS_PER_FRAME and self._num_values < MAX_VALUES_PER_FRAME
        fits = fits and max(len(self.metrics), len(self.events)) < MAX_EXTRAS_PER_FRAME
        return fits and same_layers and follows and row.columns.keys() == self.rows[0].columns.keys()

    def add(self, row: StepRow, sequence: int | None) -> None:
        if not self.rows:
            self._sequence = sequence
        self.rows.append(row)
        self.events += row.events
        self._num_values += len(row.layer_norms or ())
        self.layer_set = self.layer_set or row.layer_set

    def build(self, attempt: Attempt) -> wire.Batch:
        batch = wire.Batch(
            attempt_id=attempt.attempt_id,
            attempt_started_at_s=attempt.started_at_s,
            sequence=self._sequence,
            metrics=self.metrics,
            events=self.events,
        )
        if not self.rows:
            return batch
        batch.step = [row.step for row in self.rows]
        batch.wall_time_s = [row.wall_time_s for row in self.rows]
        if attempt.rank:
            batch.rank = [attempt.rank] * len(self.rows)
        for name in self.rows[0].columns:
            setattr(batch, name, [row.columns[name] for row in self.rows])
        with_layers = [row for row in self.rows if row.layer_norms is not None]
        if with_layers and self.layer_set is not None:
            batch.layers_id = self.layer_set.layers_id
            batch.layer_step = [row.step for row in with_layers]
            batch.layer_norms = wire.pack_norms(row.layer_norms or () for row in with_layers)
        return batch


class Merger:
    """Batches of one stream that follow one another, to be sent as one: no larger than the wire allows."""

    def __init__(self, first: wire.Batch) -> None:
        self._batches = [first]
        self._num_steps, self._num_metrics, self._num_events = len(first.step), len(first.metrics), len(first.events)

    def takes(self, following: wire.Batch) -> bool:
        """Whether it goes on where the last one ended, and there is room for it; then it is taken."""
        first = self._batches[0]
        num_steps = self._num_steps + len(following.step)
        num_metrics = self._num_metrics + len(following.metrics)
        num_events = self._num_events + len(following.events)
        fits = (
            bool(first.step)
            and bool(following.step)
            and num_steps <= MAX_STEPS_PER_FRAME
            and max(num_metrics, num_events) <= wire.MAX_STEPS_PER_BATCH
            and following.attempt_id == first.attempt_id
            and following.columns.keys() == first.columns.keys()
            and (following.rank is wire.UNSET) == (first.rank is wire.UNSET)
            and (following.layers_id == first.layers_id or None in (following.layers_id, first.layers_id))
            and (first.sequence is None or following.sequence == first.sequence + self._num_steps)
        )
        if fits:
            self._batches.append(following)
            self._num_steps, self._num_metrics, self._num_events = num_steps, num_metrics, num_events
        return fits

    def whole(self) -> wire.Batch:
        """All as one; called once."""
        whole = self._batches[0]
        for batch in self._batches[1:]:
            whole.step += batch.step
            for name in ("wall_time_s", "rank", *whole.columns):
                if getattr(whole, name) is not wire.UNSET:
                    getattr(whole, name).extend(getattr(batch, name))
            whole.layer_step += batch.layer_step
            whole.metrics += batch.metrics
            whole.events += batch.events
            whole.layers = whole.layers or batch.layers
            whole.layers_id = whole.layers_id or batch.layers_id
            whole.dropped |= batch.dropped
        parts = [batch.layer_norms for batch in self._batches if isinstance(batch.layer_norms, bytes)]
        if parts:
            whole.layer_norms = b"".join(parts)
        return whole
