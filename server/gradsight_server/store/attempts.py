"""Names and numbers: a run's streams, and its attempts in the order they started."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from gradsight_server.errors import RunNotFoundError, StreamNotFoundError
from gradsight_server.store.models import attempts, runs, streams

_IN_ORDER = (
    select(attempts.c.attempt_key, attempts.c.attempt_id, attempts.c.started_at_s, attempts.c.dropped)
    .where(attempts.c.run_id == bindparam("of_run"))
    .order_by(attempts.c.started_at_s, attempts.c.attempt_key)
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch of a run; `number` is what people see."""

    number: int
    attempt_key: int
    attempt_id: str
    started_at_s: float
    dropped: dict[str, dict[str, int]]


def in_order(conn: Connection, run_id: str) -> list[Attempt]:
    """The run's attempts, in the order they started."""
    rows = conn.execute(_IN_ORDER, {"of_run": run_id})
    return [Attempt(number, *row) for number, row in enumerate(rows, 1)]


def numbers(conn: Connection, run_id: str) -> dict[int, int]:
    """attempt_key → display number."""
    return {attempt.attempt_key: attempt.number for attempt in in_order(conn, run_id)}


def numbers_of(conn: Connection, run_ids: Collection[str]) -> dict[str, dict[int, int]]:
    """Run → attempt_key → display number."""
    found: dict[str, dict[int, int]] = {run_id: {} for run_id in run_ids}
    query = select(attempts.c.run_id, attempts.c.attempt_key).where(attempts.c.run_id.in_(run_ids))
    for row in conn.execute(query.order_by(attempts.c.started_at_s, attempts.c.attempt_key)):
        found[row.run_id][row.attempt_key] = len(found[row.run_id]) + 1
    return found


def stream_key_of(conn: Connection, run_id: str, stream: str) -> int | None:
    """The stream's key; None for a `main` that has not begun.

    Raises:
        RunNotFoundError, StreamNotFoundError
    """
    rows = conn.execute(select(streams.c.stream, streams.c.stream_key).where(streams.c.run_id == run_id))
    names: dict[str, int] = {row.stream: row.stream_key for row in rows}
    if stream in names:
        return names[stream]
    if conn.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is None:
        raise RunNotFoundError(run_id)
    if stream == "main":
        return None
    raise StreamNotFoundError(f"The run has no stream {stream!r}; it has {', '.join(sorted(names)) or 'none yet'}.")
