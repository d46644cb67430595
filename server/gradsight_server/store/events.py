"""The events of a run, newest first."""

from typing import Any

from sqlalchemy import Connection, and_, select

from gradsight_server.errors import InvalidRequestError, RunNotFoundError
from gradsight_server.store import attempts, cursors, models, views
from gradsight_server.store.models import runs, streams

MAX_LIMIT = 1000


def events(
    conn: Connection,
    run_id: str,
    *,
    kind: str | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> dict[str, Any]:
    """A page of the run's events, and the cursor of the next.

    Args:
        first_step, last_step: only events between these steps, both included; with either, none without a step.

    Raises:
        RunNotFoundError, InvalidRequestError
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequestError(f"limit must be from 1 to {MAX_LIMIT}, got {limit!r}.")
    views.check_range(first_step, last_step)
    if conn.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is None:
        raise RunNotFoundError(run_id)
    table = models.events
    of_stream = and_(streams.c.run_id == table.c.run_id, streams.c.stream_key == table.c.stream_key)
    order = (table.c.wall_time_s, table.c.event_id)
    query = select(table, streams.c.stream).select_from(table.join(streams, of_stream)).where(table.c.run_id == run_id)
    if kind is not None:
        query = query.where(table.c.kind == kind)
    if first_step is not None:
        query = query.where(table.c.step >= first_step)
    if last_step is not None:
        query = query.where(table.c.step <= last_step)
    if cursor is not None:
        query = query.where(cursors.after(order, cursors.decode(cursor, float, str), descending=True))
    rows = conn.execute(query.order_by(*(column.desc() for column in order)).limit(limit + 1)).all()
    numbers = attempts.numbers(conn, run_id)
    items = [
        {
            "id": row.event_id,
            "kind": row.kind,
            "stream": row.stream,
            "attempt": numbers[row.attempt_key],
            "step": row.step,
            "message": row.message,
            "wall_time_s": row.wall_time_s,
        }
        for row in rows[:limit]
    ]
    more = len(rows) > limit
    return {"items": items, "next_cursor": cursors.encode(items[-1]["wall_time_s"], items[-1]["id"]) if more else None}
