"""A batch becomes rows, counters and a tick, in the caller's transaction; the same batch again changes nothing."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from msgspec import UNSET
from sqlalchemy import Connection, and_, bindparam, func, select, update

from gradsight import wire
from gradsight_server.errors import RunNotFoundError
from gradsight_server.store import attempts, keys, layer_ingest, statements, ticks
from gradsight_server.store.counters import count, spans, update_stream
from gradsight_server.store.expressions import bound_segment, nonfinite_code, segment_parameters
from gradsight_server.store.models import attempts as attempts_table
from gradsight_server.store.models import events, nonfinite_shift, runs, steps, streams
from gradsight_server.store.summaries import SILENT_AFTER_S

_OF_STREAM = and_(streams.c.run_id == runs.c.run_id, streams.c.stream == bindparam("of_stream"))
_OF_ATTEMPT = and_(attempts_table.c.run_id == runs.c.run_id, attempts_table.c.attempt_id == bindparam("of_attempt"))
_PLACE = (
    select(
        runs.c.status,
        runs.c.last_seen_s,
        streams.c.stream_key,
        attempts_table.c.attempt_key,
        attempts_table.c.dropped,
        attempts_table.c.sequences,
    )
    .select_from(runs.outerjoin(streams, _OF_STREAM).outerjoin(attempts_table, _OF_ATTEMPT))
    .where(runs.c.run_id == bindparam("of_run"))
    .with_for_update(of=runs)
)
_LAST_STEP = select(func.max(steps.c.step)).where(bound_segment(steps, any_rank=True))
END_KINDS = ("finished", "failed")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a batch belongs, and what is known there."""

    run_id: str
    stream_key: int
    attempt_key: int
    is_new: bool
    status: str
    last_seen_s: float
    dropped: dict[str, dict[str, int]]
    sequences: dict[str, dict[str, int]]

    @property
    def key(self) -> tuple[str, int, int]:
        return self.run_id, self.stream_key, self.attempt_key


def ingest(
    conn: Connection, run_id: str, stream: str, batch: wire.Batch, *, now_s: float, flush_after_s: float = 0.25
) -> wire.Answer:
    """Takes a batch in and answers it.

    Raises:
        RunNotFoundError: runs are created by PUT.
        WireError: `layer_norms` does not fit its layers; nothing is stored then.
    """
    place = _find_place(conn, run_id, stream, batch, now_s)
    layers_needed = layer_ingest.take_in(conn, place.key, batch, _rank_of_step(batch))
    if batch.step:
        _write_steps(conn, place, batch, now_s)
    _write_metrics(conn, place, batch)
    num_events = _write_events(conn, place, stream, batch, now_s)
    noted = _note_losses(conn, place, batch)
    _touch_run(conn, place, batch, now_s)
    if batch.step or batch.layer_step:
        touched = batch.step or batch.layer_step
        edges = {"first_step": min(touched), "last_step": max(touched)}
        ticks.append(
            conn, run_id, "steps", now_s=now_s, stream_key=place.stream_key, attempt_key=place.attempt_key, **edges
        )
    elif place.is_new or num_events or batch.metrics or noted or now_s - place.last_seen_s > SILENT_AFTER_S:
        ticks.append(conn, run_id, "run", now_s=now_s)
    return wire.Answer(
        accepted_steps=len(batch.step),
        last_step=_last_step(conn, place),
        flush_after_s=flush_after_s,
        layers_needed=layers_needed,
    )


def _find_place(conn: Connection, run_id: str, stream: str, batch: wire.Batch, now_s: float) -> _Place:
    """The run's row, locked so that replicas take turns, and the keys of stream and attempt, given at first sight."""
    names = {"of_run": run_id, "of_stream": stream, "of_attempt": batch.attempt_id}
    row = conn.execute(_PLACE, names).one_or_none()
    if row is None:
        raise RunNotFoundError(run_id)
    stream_key, attempt_key = row.stream_key, row.attempt_key
    if stream_key is None:
        stream_key = keys.new_stream(conn, run_id, stream)
    if attempt_key is None:
        started_at_s = now_s if batch.attempt_started_at_s is None else batch.attempt_started_at_s
        attempt_key = keys.new_attempt(conn, run_id, batch.attempt_id, started_at_s)
    return _Place(
        run_id,
        stream_key,
        attempt_key,
        is_new=None in (row.stream_key, row.attempt_key),
        status=row.status,
        last_seen_s=row.last_seen_s,
        dropped=row.dropped or {},
        sequences=row.sequences or {},
    )


def _ranks(batch: wire.Batch) -> list[int]:
    return [0] * len(batch.step) if batch.rank is UNSET else batch.rank


def _rank_of_step(batch: wire.Batch) -> dict[int, int]:
    return {} if batch.rank is UNSET else dict(zip(batch.step, batch.rank, strict=True))


def _write_steps(conn: Connection, place: _Place, batch: wire.Batch, now_s: float) -> None:
    ranks = _ranks(batch)
    counted = spans([step for step, rank in zip(batch.step, ranks, strict=True) if rank == 0])
    before = count(conn, place.key, counted)
    _upsert_steps(conn, place, batch, ranks)
    times = batch.wall_time_s
    if times is UNSET or None in times:
        _date_steps(conn, place, batch.step, now_s)
    if counted:
        update_stream(conn, place.run_id, place.stream_key, count(conn, place.key, counted) - before)


def _upsert_steps(conn: Connection, place: _Place, batch: wire.Batch, ranks: list[int]) -> None:
    columns = batch.columns
    masks = [0] * len(batch.step)
    for name in columns.keys() & set(wire.FLOAT_COLUMNS):
        columns[name], codes = _without_nonfinite(columns[name])
        for i, code in codes.items():
            masks[i] |= code << nonfinite_shift(name)
    times = repeat(None) if batch.wall_time_s is UNSET else batch.wall_time_s
    rows = list(zip(*map(repeat, place.key), batch.step, ranks, times, *columns.values(), masks, strict=False))
    statements.upsert_steps(conn, tuple(columns), rows)


def _without_nonfinite(values: list[wire.Number]) -> tuple[list[wire.Number], dict[int, int]]:
    """The column with None for what is not finite, and the code of each of those, by index."""
    numbers = np.array(values, dtype=np.float64)  # reads the wire's words too; None becomes NaN
    odd = [i for i in np.flatnonzero(~np.isfinite(numbers)).tolist() if values[i] is not None]
    if not odd:
        return values, {}
    values = list(values)
    for i in odd:
        values[i] = None
    return values, {i: nonfinite_code(float(numbers[i])) for i in odd}


def _date_steps(conn: Connection, place: _Place, touched: Sequence[int], now_s: float) -> None:
    """Steps that came without a time are of now, once: sent again, they keep it."""
    undated = (bound_segment(steps, any_rank=True), steps.c.wall_time_s.is_(None))
    for bounds in spans(touched):
        segment = segment_parameters(*place.key, *bounds)
        conn.execute(update(steps).where(*undated).values(wall_time_s=now_s), segment)


def _write_metrics(conn: Connection, place: _Place, batch: wire.Batch) -> None:
    rows = []
    for metric in batch.metrics:
        value = float(metric.value)
        code = nonfinite_code(value)
        rows.append((*place.key, metric.name, metric.step, None if code else value, code))
    if rows:
        statements.upsert_metrics(conn, rows)


def _write_events(conn: Connection, place: _Place, stream: str, batch: wire.Batch, now_s: float) -> int:
    rows: statements.Rows = []
    for event in batch.events:
        sent = (stream, batch.attempt_id, event.kind, event.step, event.wall_time_s, event.message)
        event_id = hashlib.blake2b(repr(sent).encode(), digest_size=8).hexdigest()
        time_s = now_s if event.wall_time_s is None else event.wall_time_s
        where = (place.run_id, event_id, place.stream_key, place.attempt_key)
        rows.append((*where, event.kind, event.step, time_s, event.message))
    return statements.insert_events(conn, rows) if rows else 0


def _note_losses(conn: Connection, place: _Place, batch: wire.Batch) -> bool:
    """Keeps what this process says it lost, and how many rows it counts, as running maxima; whether a loss is news."""
    rank = str(batch.rank[0] if batch.rank is not UNSET and batch.rank else 0)
    dropped = _raised(place.dropped, rank, batch.dropped)
    following = {} if batch.sequence is None else {rank: batch.sequence + len(batch.step)}
    sequences = _raised(place.sequences, str(place.stream_key), following)
    if dropped != place.dropped or sequences != place.sequences:
        of_attempt = and_(attempts_table.c.run_id == place.run_id, attempts_table.c.attempt_key == place.attempt_key)
        conn.execute(update(attempts_table).where(of_attempt).values(dropped=dropped, sequences=sequences))
    return dropped != place.dropped


def _raised(known: dict[str, dict[str, int]], owner: str, numbers: dict[str, int]) -> dict[str, dict[str, int]]:
    if not numbers:
        return known
    mine = known.get(owner, {})
    return known | {owner: mine | {name: max(value, mine.get(name, 0)) for name, value in numbers.items()}}


def _touch_run(conn: Connection, place: _Place, batch: wire.Batch, now_s: float) -> None:
    changes: dict[str, Any] = {"last_seen_s": now_s}
    if batch.step:
        changes["last_step_at_s"] = now_s
    ends = any(event.kind in END_KINDS for event in batch.events)
    if ends or (batch.step and place.status != "running"):
        changes["status"] = _status(conn, place.run_id)
    conn.execute(update(runs).where(runs.c.run_id == place.run_id).values(changes))


def _status(conn: Connection, run_id: str) -> str:
    """How the attempt that started last ended; running while it has not."""
    newest = attempts.in_order(conn, run_id)[-1].attempt_key
    of_end = (events.c.run_id == run_id, events.c.attempt_key == newest, events.c.kind.in_(END_KINDS))
    order = (events.c.wall_time_s.desc(), events.c.event_id)
    return conn.scalar(select(events.c.kind).where(*of_end).order_by(*order).limit(1)) or "running"


def _last_step(conn: Connection, place: _Place) -> int | None:
    last_step: int | None = conn.scalar(_LAST_STEP, segment_parameters(*place.key))
    return last_step
