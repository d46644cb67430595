"""Where a batch belongs: the keys of its run, stream and attempt, and what is known there before it is taken in."""

from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, bindparam, func, select

from gradsight import wire
from gradsight_server.errors import RunNotFoundError
from gradsight_server.store import keys
from gradsight_server.store.extents import AttemptKey, Extent
from gradsight_server.store.models import alerts, attempts, extents, layer_sets, runs, streams
from gradsight_server.store.prepared import Prepared

_LOCK = Prepared(select(runs.c.run_id).where(runs.c.run_id == bindparam("of_run")).with_for_update())
_OF_ANY = streams.alias("any_stream")
_FIND = Prepared(
    select(
        runs.c.status,
        runs.c.last_seen_s,
        streams.c.stream_key,
        attempts.c.attempt_key,
        attempts.c.dropped,
        attempts.c.sequences,
        extents.c.first_step,
        extents.c.last_step,
        extents.c.sealed_before,
        layer_sets.c.num_layers,
        layer_sets.c.layers.is_not(None),
        runs.c.last_step_at_s,
        select(func.max(alerts.c.updated_at_s)).where(alerts.c.run_id == bindparam("of_run")).scalar_subquery(),
        select(func.count())
        .select_from(_OF_ANY)
        .where(_OF_ANY.c.run_id == bindparam("of_run"), _OF_ANY.c.control.is_not(None))
        .scalar_subquery(),
    )
    .select_from(
        runs.outerjoin(streams, and_(streams.c.run_id == runs.c.run_id, streams.c.stream == bindparam("of_stream")))
        .outerjoin(attempts, and_(attempts.c.run_id == runs.c.run_id, attempts.c.attempt_id == bindparam("of_attempt")))
        .outerjoin(
            extents,
            and_(
                extents.c.run_id == runs.c.run_id,
                extents.c.stream_key == streams.c.stream_key,
                extents.c.attempt_key == attempts.c.attempt_key,
            ),
        )
        .outerjoin(
            layer_sets, and_(layer_sets.c.run_id == runs.c.run_id, layer_sets.c.layers_id == bindparam("of_layers"))
        )
    )
    .where(runs.c.run_id == bindparam("of_run"))
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch belongs, and what is known there."""

    run_id: str
    stream_key: int
    attempt_key: int
    is_new: bool
    """The run had no such stream or attempt yet."""
    status: str
    last_seen_s: float
    dropped: dict[str, dict[str, int]]
    sequences: dict[str, dict[str, int]]
    extent: Extent | None
    layers_id: str | None
    num_layers: int | None
    """Of the batch's set of layers, where the run has it already."""
    has_layer_names: bool
    last_step_at_s: float | None
    alerted_at_s: float | None
    """The newest change of any of the run's alerts."""
    has_wishes: bool
    """People at the screen have asked something of one of the run's streams: see control.py."""

    @property
    def key(self) -> AttemptKey:
        return self.run_id, self.stream_key, self.attempt_key


def lock(conn: Connection, run_id: str) -> bool:
    """Lets nobody else write to the run until this transaction ends; on SQLite nobody can anyway.

    A statement by itself: one that had to wait for the lock has read the other tables before it got it.

    Returns:
        False where there was no such run to lock: one that is found later has been made since, and is not locked.
    """
    return conn.dialect.name != "postgresql" or _LOCK.one(conn, {"of_run": run_id}) is not None


def find(conn: Connection, run_id: str, stream: str, batch: wire.Batch, *, now_s: float) -> Place:
    """Locks the run, so that replicas take turns, and gives stream and attempt keys at first sight.

    Raises:
        RunNotFoundError: runs are created by PUT.
    """
    is_locked = lock(conn, run_id)
    layers_id = batch.layers_id or (wire.layers_id(batch.layers) if batch.layers else None)
    names = {"of_run": run_id, "of_stream": stream, "of_attempt": batch.attempt_id, "of_layers": layers_id}
    row = _FIND.one(conn, names) if is_locked else None
    if row is None:
        raise RunNotFoundError(run_id)
    status, last_seen_s, stream_key, attempt_key, dropped, sequences, first, last, sealed, num_layers, named = row[:11]
    last_step_at_s, alerted_at_s, num_with_wishes = row[11:]
    is_new = stream_key is None or attempt_key is None
    if stream_key is None:
        stream_key = keys.new_stream(conn, run_id, stream)
    if attempt_key is None:
        started_at_s = now_s if batch.attempt_started_at_s is None else batch.attempt_started_at_s
        attempt_key = keys.new_attempt(conn, run_id, batch.attempt_id, started_at_s)
    return Place(
        run_id,
        stream_key,
        attempt_key,
        is_new=is_new,
        status=status,
        last_seen_s=last_seen_s,
        dropped=_from_json(dropped),
        sequences=_from_json(sequences),
        extent=None if first is None else Extent(first, last, sealed),
        layers_id=layers_id,
        num_layers=num_layers,
        has_layer_names=bool(named),
        last_step_at_s=last_step_at_s,
        alerted_at_s=alerted_at_s,
        has_wishes=num_with_wishes > 0,
    )


def _from_json(value: Any) -> dict[str, Any]:
    """What PostgreSQL's driver has read already, and SQLite's gives as text."""
    found: dict[str, Any] = msgspec.json.decode(value) if isinstance(value, str) else value or {}
    return found
