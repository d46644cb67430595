"""Deleting a run: it is gone at once, its rows in the big tables go in slices with others' writes in between."""

import time
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, Table, delete, func, insert, literal, select, tuple_

from gradsight_server.errors import RunNotFoundError
from gradsight_server.store.database import Database
from gradsight_server.store.models import (
    alert_rules,
    bucket_blobs,
    buckets,
    deletions,
    extents,
    layer_blocks,
    metrics,
    outbox,
    runs,
    steps,
)
from gradsight_server.store.pending import pending_of

SLICE_ROWS = 5_000
SLICE_BYTES = 2**24
"""A slice should keep other writers waiting for some hundredths of a second."""
TIMEOUT_S = 600.0

BIG_TABLES: tuple[tuple[Table, Column[Any] | None], ...] = (
    (extents, None),
    (steps, None),
    (layer_blocks, layer_blocks.c.norms),
    (buckets, None),
    (bucket_blobs, bucket_blobs.c.blob),
    (metrics, None),
)
"""The tables that do not hang on `runs` by a foreign key, and what in their rows is large."""


def delete_run(conn: Connection, run_id: str, *, now_s: float) -> None:
    """Deletes a run and everything of it; only the news of it stays. What is large goes later: see `sweep`.

    Raises:
        RunNotFoundError
    """
    if not conn.execute(delete(runs).where(runs.c.run_id == run_id)).rowcount:
        raise RunNotFoundError(run_id)
    conn.execute(delete(outbox).where(outbox.c.run_id == run_id))
    conn.execute(delete(alert_rules).where(alert_rules.c.scope == "run", alert_rules.c.scope_id == run_id))
    conn.execute(insert(deletions), {"run_id": run_id, "deleted_at_s": now_s})
    remove_slice(conn, run_id)
    pending = pending_of(conn)
    pending.rule_book.forget()
    pending.tell(run_id, "deleted", now_s=now_s)


def is_going(conn: Connection, run_id: str, *, lock: bool = False) -> bool:
    """Whether a run of this id has been deleted, and not all of it is gone yet; with `lock` until this transaction
    ends."""
    query = select(deletions.c.run_id).where(deletions.c.run_id == run_id)
    return conn.scalar(query.with_for_update() if lock else query) is not None


def sweep(database: Database) -> int:
    """Removes what is left of deleted runs, slice by slice.

    Returns:
        How many runs it finished.
    """
    with database.reading() as conn:
        going = conn.scalars(select(deletions.c.run_id).order_by(deletions.c.deleted_at_s)).all()
    for run_id in going:
        while database.write(partial(remove_slice, run_id=run_id)).result(TIMEOUT_S):
            pass
    return len(going)


def finish(database: Database, run_id: str, *, deadline_s: float) -> None:
    """Removes what is left of one deleted run, as far as the deadline allows: somebody waits for its id."""
    with database.reading() as conn:
        going = is_going(conn, run_id)
    until_s = time.monotonic() + deadline_s
    while going and time.monotonic() < until_s:
        going = database.write(partial(remove_slice, run_id=run_id)).result(TIMEOUT_S)


def remove_slice(conn: Connection, run_id: str) -> bool:
    """Removes some rows of a deleted run; whether there may be more.

    Nothing of a run that isn't going: since somebody saw it go, another may have removed the rest, and what is there
    now is a new run's of the same id.

    A slice is the run's rows up to a key. Named row by row they would be joined with all of the run's: of a table that
    has no statistics yet PostgreSQL compares each with each.
    """
    if not is_going(conn, run_id, lock=True):
        return False
    for table, large in BIG_TABLES:
        limit = _slice_of(conn, table, large, run_id)
        key, of_run = tuple(table.primary_key), table.c.run_id == run_id
        last = conn.execute(select(*key).where(of_run).order_by(*key).offset(limit - 1).limit(1)).one_or_none()
        if last is None:
            conn.execute(delete(table).where(of_run))
            continue
        values = (literal(value, column.type) for value, column in zip(last, key, strict=True))
        conn.execute(delete(table).where(of_run, tuple_(*key) <= tuple_(*values)))
        return True
    conn.execute(delete(deletions).where(deletions.c.run_id == run_id))
    return False


def _slice_of(conn: Connection, table: Table, large: Column[Any] | None, run_id: str) -> int:
    """How many of the run's rows are not too many at once."""
    if large is None:
        return SLICE_ROWS
    size = conn.scalar(select(func.length(large)).where(table.c.run_id == run_id).limit(1))
    return max(1, min(SLICE_ROWS, SLICE_BYTES // (size or 1)))
