"""The hot upserts as driver-level SQL: their texts are built once per engine and columns present."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Table

from gradsight import wire
from gradsight_server.store.expressions import nonfinite_bits
from gradsight_server.store.models import (
    alert_states,
    bucket_blobs,
    buckets,
    events,
    extents,
    layer_blocks,
    metrics,
    steps,
    ticks,
)
from gradsight_server.store.prepared import execute, execute_many
from gradsight_server.store.rollup import BUCKET_COLUMNS

ALL_BITS = 4 ** len(wire.FLOAT_COLUMNS) - 1
Rows = list[tuple[Any, ...]]


def upsert_steps(conn: Connection, columns: tuple[str, ...], rows: Rows) -> None:
    """Writes rows of (run_id, stream_key, attempt_key, step, rank, wall_time_s, *columns, nonfinite).

    What is in `columns` overwrites, also with NULL; the rest of a row that is there already stays, and so does its
    wall_time_s where the new one is NULL.
    """
    present = sum(nonfinite_bits(name) for name in columns)
    sets = {
        "wall_time_s": "coalesce(excluded.wall_time_s, steps.wall_time_s)",
        "nonfinite": f"(steps.nonfinite & {ALL_BITS & ~present}) | excluded.nonfinite",
    }
    sets_of = tuple((name, sets.get(name, f"excluded.{name}")) for name in ("wall_time_s", *columns, "nonfinite"))
    execute_many(conn, _upsert(_mark(conn), steps, sets_of), rows)


def upsert_layer_blocks(conn: Connection, rows: Rows) -> None:
    """Writes rows of (run_id, stream_key, attempt_key, block, rank, layers_id, part, num_layers, present, norms)."""
    sets = _overwriting("num_layers", "present", "norms")
    execute_many(conn, _upsert(_mark(conn), layer_blocks, sets), rows)


def upsert_extent(conn: Connection, row: tuple[Any, ...]) -> None:
    """Writes (run_id, stream_key, attempt_key, first_step, last_step, sealed_before)."""
    sets = _overwriting("first_step", "last_step", "sealed_before")
    execute(conn, _upsert(_mark(conn), extents, sets), row)


def upsert_alert_state(conn: Connection, row: tuple[Any, ...]) -> None:
    """Writes (run_id, stream_key, state)."""
    execute(conn, _upsert(_mark(conn), alert_states, _overwriting("state")), row)


def upsert_buckets(conn: Connection, rows: Rows) -> None:
    """Writes rows of (run_id, stream_key, attempt_key, level, *BUCKET_COLUMNS)."""
    execute_many(conn, _upsert(_mark(conn), buckets, _overwriting(*BUCKET_COLUMNS[1:])), rows)


def upsert_bucket_blobs(conn: Connection, rows: Rows) -> None:
    """Writes rows of (run_id, stream_key, attempt_key, kind, level, bucket, layers_id, blob)."""
    execute_many(conn, _upsert(_mark(conn), bucket_blobs, _overwriting("blob")), rows)


def upsert_metrics(conn: Connection, rows: Rows) -> None:
    """Writes rows of (run_id, stream_key, attempt_key, name, step, value, nonfinite)."""
    execute_many(conn, _upsert(_mark(conn), metrics, _overwriting("value", "nonfinite")), rows)


def insert_events(conn: Connection, rows: Rows) -> int:
    """Writes rows of (run_id, event_id, stream_key, attempt_key, kind, step, wall_time_s, message) that are new.

    Returns:
        How many were.
    """
    columns = ("stream_key", "attempt_key", "kind", "step", "wall_time_s", "message")
    text = _upsert(_mark(conn), events, tuple((name, "") for name in columns), overwrite=False)
    return execute_many(conn, text, rows)


def insert_ticks(conn: Connection, rows: Rows) -> None:
    """Writes rows of (run_id, kind, stream_key, attempt_key, first_step, last_step, created_at_s, alert_id, change),
    in this order."""
    names = [column.name for column in ticks.c if column is not ticks.c.position]
    marks = ", ".join([_mark(conn)] * len(names))
    execute_many(conn, f"INSERT INTO ticks ({', '.join(names)}) VALUES ({marks})", rows)


@lru_cache(maxsize=64)
def _overwriting(*columns: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"excluded.{name}") for name in columns)


def _mark(conn: Connection) -> str:
    """How the driver writes a parameter."""
    return "?" if conn.dialect.paramstyle == "qmark" else "%s"


@lru_cache(maxsize=512)
def _upsert(mark: str, table: Table, sets: Sequence[tuple[str, str]], *, overwrite: bool = True) -> str:
    key = [column.name for column in table.primary_key]
    names = [*key, *(name for name, _ in sets)]
    action = "UPDATE SET " + ", ".join(f"{name} = {value}" for name, value in sets) if overwrite else "NOTHING"
    return (
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join([mark] * len(names))}) "
        f"ON CONFLICT ({', '.join(key)}) DO {action}"
    )
