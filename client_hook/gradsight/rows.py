"""What the queue between the training thread and the exporter carries, and how rows become wire batches. No torch."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from gradsight import wire

MAX_STEPS_PER_FRAME = 1_000
MAX_VALUES_PER_FRAME = 500_000


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


def merged(batches: Sequence[wire.Batch]) -> wire.Batch:
    """Batches of one stream that follow one another (see `can_follow`) as one."""
    whole = batches[0]
    for batch in batches[1:]:
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
    parts = [batch.layer_norms for batch in batches if isinstance(batch.layer_norms, bytes)]
    if parts:
        whole.layer_norms = b"".join(parts)
    return whole


def can_follow(batch: wire.Batch, following: wire.Batch, num_steps: int) -> bool:
    """Whether `following` can be merged behind `batch`, which has grown to `num_steps` steps."""
    return (
        bool(batch.step)
        and bool(following.step)
        and num_steps + len(following.step) <= MAX_STEPS_PER_FRAME
        and following.attempt_id == batch.attempt_id
        and following.columns.keys() == batch.columns.keys()
        and (following.rank is wire.UNSET) == (batch.rank is wire.UNSET)
        and (following.layers_id == batch.layers_id or None in (following.layers_id, batch.layers_id))
        and (batch.sequence is None or following.sequence == batch.sequence + num_steps)
    )
