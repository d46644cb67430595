"""All of a run that is kept, slice by slice, for writing it out; each slice may be read in a session of its own.

Read by key and not by one long cursor: neither the answer nor the snapshot it needs grows with the run.
"""

from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec
from sqlalchemy import Connection, bindparam, select, tuple_

from gradsight import wire
from gradsight_server.errors import RunNotFoundError, StreamNotFoundError
from gradsight_server.store import attempts, layer_blocks
from gradsight_server.store.attempts import Attempt
from gradsight_server.store.expressions import WORDS, bound_segment, nonfinite_words, segment_parameters
from gradsight_server.store.extents import AttemptKey, extent_of
from gradsight_server.store.layer_blocks import BLOCK_STEPS, LayerRows
from gradsight_server.store.models import events, layer_sets, metrics, run_details, runs, steps, streams
from gradsight_server.store.prepared import Prepared

SLICE_ROWS = 2_000
SLICE_BYTES = 2**22
"""About how much of layer norms is read at once."""
PAGE_ROWS = 2_000
"""Metrics and events read at once."""
NO_LIMIT = 2**31 - 1

_ROW = (steps.c.step, steps.c.rank, steps.c.wall_time_s, *(steps.c[name] for name in wire.COLUMNS), steps.c.nonfinite)
_STEPS = Prepared(
    select(*_ROW)
    .where(bound_segment(steps, any_rank=True))
    .order_by(steps.c.step, steps.c.rank)
    .limit(bindparam("at_most"))
)
_LAST_STEP = Prepared(
    select(steps.c.step).where(bound_segment(steps, any_rank=True)).order_by(steps.c.step.desc()).limit(1)
)
_OF_RANK = Prepared(
    select(steps.c.step, steps.c.wall_time_s)
    .where(bound_segment(steps, any_rank=True), steps.c.rank == bindparam("of_rank"))
    .order_by(steps.c.step)
    .limit(1)
)
_PLACES = {name: 3 + i for i, name in enumerate(wire.COLUMNS)}
_SKIPPED = _PLACES["skipped"]

StepRow = tuple[Any, ...]
"""(step, rank, wall_time_s, *wire.COLUMNS): None where not recorded, the wire's words where not finite."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What one attempt did on one stream."""

    key: AttemptKey
    stream: str
    attempt: Attempt
    last_step: int
    """Of any rank; −1 where there is no step."""
    sealed_before: int
    """Of rank 0's steps before this one only rollups are left."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A run without its steps: what says how to read the rest."""

    run_id: str
    record: wire.RunRecord
    notes: str
    is_archived: bool
    streams: dict[int, str]
    """By key, in the order they were first seen."""
    attempts: list[Attempt]
    """In the order they were first seen."""
    layers: dict[str, list[list[str]] | None]
    """layers_id → each layer's names; None where no client has sent them."""
    max_layers: int
    launches: list[Launch]


@dataclass(frozen=True, slots=True)
class Slice:
    """Some steps of a launch, all ranks."""

    launch: Launch
    rows: list[StepRow]
    """By rising step, then rank."""
    layers: list[tuple[int, LayerRows]]
    """(rank, layer norms)"""
    carriers: dict[int, tuple[int, float | None]]
    """Rank → (a step of its, when that was), for ranks whose layers are here without any of their steps."""
    next_step: int | None
    """Where to go on; None at the end."""


def contents(conn: Connection, run_id: str, *, stream: str | None = None) -> Contents:
    """What there is of a run, or of one stream of it.

    Raises:
        RunNotFoundError, StreamNotFoundError
    """
    run = conn.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
    if run is None:
        raise RunNotFoundError(run_id)
    details = conn.execute(select(run_details).where(run_details.c.run_id == run_id)).one()
    rows = conn.execute(select(streams).where(streams.c.run_id == run_id).order_by(streams.c.stream_key)).all()
    found = [row for row in rows if stream in (None, row.stream)]
    if stream is not None and not found:
        raise StreamNotFoundError(f"The run has no stream {stream!r}; it has {', '.join(row.stream for row in rows)}.")
    known = {name: getattr(run, name) for name in ("project", "name", "tags", "started_at_s")}
    known |= {name: value for name in ("total_steps", "world_size") if (value := getattr(run, name)) is not None}
    record = wire.RunRecord(
        **known,
        config=details.config,
        frameworks=details.frameworks,
        streams={row.stream: msgspec.convert(row.record, wire.StreamRecord) for row in found},
    )
    names = {row.stream_key: row.stream for row in found}
    launched = sorted(attempts.in_order(conn, run_id), key=lambda attempt: attempt.attempt_key)
    sets = conn.execute(select(layer_sets).where(layer_sets.c.run_id == run_id)).all()
    return Contents(
        run_id=run_id,
        record=record,
        notes=details.notes,
        is_archived=run.archived_at_s is not None,
        streams=names,
        attempts=launched,
        layers={row.layers_id: row.layers for row in sets},
        max_layers=max((row.num_layers for row in sets), default=1),
        launches=[_launch(conn, run_id, *pair) for pair in product(launched, names.items())],
    )


def _launch(conn: Connection, run_id: str, attempt: Attempt, stream: tuple[int, str]) -> Launch:
    key = (run_id, stream[0], attempt.attempt_key)
    last_step: int | None = _LAST_STEP.scalar(conn, segment_parameters(*key))
    last_block = layer_blocks.last_block(conn, key)
    ends = [-1 if last_step is None else last_step, -1 if last_block is None else (last_block + 1) * BLOCK_STEPS - 1]
    extent = extent_of(conn, key)
    return Launch(key, stream[1], attempt, max(ends), 0 if extent is None else extent.sealed_before)


def next_slice(conn: Connection, launch: Launch, first_step: int, *, max_layers: int) -> Slice:
    """What comes from a step on: about so much as can be held at once, whole steps only.

    Args:
        max_layers: how wide layer norms may be; 0 leaves them out.
    """
    rows, last = _whole_steps(conn, launch, first_step)
    layers: list[tuple[int, LayerRows]] = []
    if max_layers:
        at_most = 1 + SLICE_BYTES // (4 * BLOCK_STEPS * max_layers)
        layers, last = layer_blocks.read_first(conn, launch.key, first_step, last, at_most)
        rows = [row for row in rows if row[0] <= last]
    here = {row[1] for row in rows}
    carriers = {}
    for rank in {rank for rank, _ in layers if rank and rank not in here}:
        found = _OF_RANK.one(conn, segment_parameters(*launch.key) | {"of_rank": rank})
        if found is not None:
            carriers[rank] = (found[0], found[1])
    next_step = last + 1 if last < launch.last_step else None
    return Slice(launch, list(map(_as_on_the_wire, rows)), layers, carriers, next_step)


def _whole_steps(conn: Connection, launch: Launch, first_step: int) -> tuple[list[StepRow], int]:
    """The next rows, and the last step up to which these are all; where it can be, the last of a block."""
    asked = segment_parameters(*launch.key, first_step, launch.last_step)
    rows = _STEPS.rows(conn, asked | {"at_most": SLICE_ROWS})
    if len(rows) < SLICE_ROWS:
        return rows, launch.last_step
    last: int = rows[-1][0]
    if rows[0][0] == last:  # more ranks than a slice has rows
        return _STEPS.rows(conn, segment_parameters(*launch.key, last, last) | {"at_most": NO_LIMIT}), last
    end_of_block = last // BLOCK_STEPS * BLOCK_STEPS - 1
    last = end_of_block if end_of_block >= rows[0][0] else last - 1
    return [row for row in rows if row[0] <= last], last


def _as_on_the_wire(row: StepRow) -> StepRow:
    *values, mask = row
    if values[_SKIPPED] is not None:
        values[_SKIPPED] = bool(values[_SKIPPED])
    if mask:
        for name, word in nonfinite_words(mask).items():
            values[_PLACES[name]] = word
    return tuple(values)


def next_metrics(conn: Connection, key: AttemptKey, after: tuple[str, int] | None) -> list[wire.Metric]:
    """The next metrics of a launch, by name and step."""
    of_launch = zip(("run_id", "stream_key", "attempt_key"), key, strict=True)
    query = select(metrics).where(*(metrics.c[name] == value for name, value in of_launch))
    if after is not None:
        query = query.where(tuple_(metrics.c.name, metrics.c.step) > tuple_(*after))
    rows = conn.execute(query.order_by(metrics.c.name, metrics.c.step).limit(PAGE_ROWS))
    return [
        wire.Metric(step=row.step, name=row.name, value=WORDS[row.nonfinite] if row.nonfinite else row.value)
        for row in rows
    ]


def next_events(conn: Connection, run_id: str, after: str) -> list[tuple[str, int, int, wire.Event]]:
    """The next events of a run: (event_id, stream_key, attempt_key, event), by event_id."""
    query = select(events).where(events.c.run_id == run_id, events.c.event_id > after)
    rows = conn.execute(query.order_by(events.c.event_id).limit(PAGE_ROWS))
    return [
        (
            row.event_id,
            row.stream_key,
            row.attempt_key,
            wire.Event(kind=row.kind, step=row.step, message=row.message, wall_time_s=row.wall_time_s),
        )
        for row in rows
    ]
