"""What is stored, as the wire messages that would bring it there again."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from gradsight import wire
from gradsight_server.exports.lines import FORMAT, BatchLine, Removed, RunLine
from gradsight_server.store.attempts import Attempt
from gradsight_server.store.export import Contents, Slice, StepRow
from gradsight_server.store.layer_blocks import LayerRows

MAX_STREAMS = 256
"""As many as one PUT may carry."""


def heads(contents: Contents, *, stream: str | None, now_s: float) -> Iterator[RunLine]:
    """The run's record, its streams in the order they were first seen."""
    removed = [
        Removed(stream=launch.stream, attempt=launch.attempt.number, before_step=launch.sealed_before)
        for launch in contents.launches
        if launch.sealed_before
    ]
    record = contents.record
    streams = [] if record.streams is UNSET else list(record.streams.items())
    for first in range(0, max(len(streams), 1), MAX_STREAMS):
        some = dict(streams[first : first + MAX_STREAMS])
        yield RunLine(
            format=FORMAT,
            run_id=contents.run_id,
            stream=stream,
            record=wire.RunRecord(streams=some) if first else replace(record, streams=some),
            notes=contents.notes,
            is_archived=contents.is_archived,
            exported_at_s=now_s,
            removed=removed,
        )


def introductions(contents: Contents) -> Iterator[BatchLine]:
    """The attempts, in the order they were first seen and with what they lost, and the names of the layers."""
    if not contents.streams:
        return
    stream = next(iter(contents.streams.values()))
    for attempt in contents.attempts:
        yield BatchLine(stream=stream, batch=_batch(attempt, dropped=attempt.dropped.get("0", {})))
    for layers_id, names in contents.layers.items():
        if names is not None:
            batch = _batch(contents.attempts[0], layers_id=layers_id, layers=names)
            yield BatchLine(stream=stream, batch=batch)


def batches(part: Slice, *, dropped: dict[str, dict[str, int]]) -> Iterator[BatchLine]:
    """A slice of steps: a batch for each rank, with its layer norms.

    Args:
        dropped: what the other ranks lost, by rank: taken from here with the first batch of that rank.
    """
    launch = part.launch
    rows_of: dict[int, list[StepRow]] = {}
    for row in part.rows:
        rows_of.setdefault(row[1], []).append(row)
    layers_of: dict[int, list[LayerRows]] = {}
    for rank, of_rank in part.layers:
        layers_of.setdefault(rank, []).append(of_rank)
    for rank in sorted(rows_of.keys() | layers_of.keys()):
        columns = _columns(rows_of.get(rank, []))
        some: Sequence[LayerRows | None] = layers_of.get(rank) or [None]
        for layers in some:
            if rank and not columns:  # else the layers would be taken for rank 0's
                if rank not in part.carriers:
                    continue
                step, time_s = part.carriers[rank]
                columns = {"step": [step], "wall_time_s": [time_s]}
            if rank and columns:
                columns["rank"] = [rank] * len(columns["step"])
            losses = dropped.pop(str(rank), {})
            yield BatchLine(
                stream=launch.stream, batch=_batch(launch.attempt, **columns, **_of_layers(layers), dropped=losses)
            )
            columns = {}


def _columns(rows: Sequence[StepRow]) -> dict[str, list[Any]]:
    """By name; a column that no row has is left out."""
    if not rows:
        return {}
    step, _, time_s, *values = map(list, zip(*rows, strict=True))
    columns = dict(zip(wire.COLUMNS, values, strict=True))
    kept = {name: column for name, column in columns.items() if any(value is not None for value in column)}
    return {"step": step, "wall_time_s": time_s} | kept


def _of_layers(layers: LayerRows | None) -> dict[str, Any]:
    if layers is None:
        return {}
    norms = layers.norms.astype("<f4", copy=False).tobytes()
    return {"layers_id": layers.layers_id, "layer_step": layers.step.tolist(), "layer_norms": norms}


def of_metrics(attempt: Attempt, stream: str, metrics: Sequence[wire.Metric]) -> Iterator[BatchLine]:
    """Metrics, no more different names in a batch than one may have."""
    names: set[str] = set()
    some: list[wire.Metric] = []
    for metric in metrics:
        if metric.name not in names and len(names) == wire.MAX_METRIC_NAMES:
            yield BatchLine(stream=stream, batch=_batch(attempt, metrics=some))
            names, some = set(), []
        names.add(metric.name)
        some.append(metric)
    if some:
        yield BatchLine(stream=stream, batch=_batch(attempt, metrics=some))


def of_events(attempt: Attempt, stream: str, events: list[wire.Event]) -> BatchLine:
    return BatchLine(stream=stream, batch=_batch(attempt, events=events))


def of_losses(attempt: Attempt, stream: str, dropped: dict[str, dict[str, int]]) -> BatchLine:
    """What ranks lost that have left no step: no batch can say that it is theirs, so it is added to rank 0's."""
    total = dict(attempt.dropped.get("0", {}))
    for reasons in dropped.values():
        for reason, lost in reasons.items():
            total[reason] = total.get(reason, 0) + lost
    return BatchLine(stream=stream, batch=_batch(attempt, dropped=total))


def _batch(attempt: Attempt, **rest: Any) -> wire.Batch:
    return wire.Batch(attempt_id=attempt.attempt_id, attempt_started_at_s=attempt.started_at_s, **rest)
