"""Attempts in the order they started, and which of them a chart shows where."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, bindparam, select

from gradsight import wire
from gradsight_server.errors import InvalidRequestError, RunNotFoundError, StreamNotFoundError
from gradsight_server.store.expressions import bound_segment, segment_parameters
from gradsight_server.store.models import attempts, runs, steps, streams

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


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps, both ends included, that one attempt stands for."""

    number: int
    attempt_key: int
    first_step: int
    last_step: int


def in_order(conn: Connection, run_id: str) -> list[Attempt]:
    """The run's attempts, in the order they started."""
    rows = conn.execute(_IN_ORDER, {"of_run": run_id})
    return [Attempt(number, *row) for number, row in enumerate(rows, 1)]


def numbers(conn: Connection, run_id: str) -> dict[int, int]:
    """attempt_key → display number."""
    return {attempt.attempt_key: attempt.number for attempt in in_order(conn, run_id)}


def stream_key_of(conn: Connection, run_id: str, stream: str) -> int | None:
    """The stream's key; None for a `main` that has not begun.

    Raises:
        RunNotFoundError, StreamNotFoundError
    """
    names: dict[str, int] = dict(
        conn.execute(select(streams.c.stream, streams.c.stream_key).where(streams.c.run_id == run_id)).tuples().all()
    )
    if stream in names:
        return names[stream]
    if conn.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is None:
        raise RunNotFoundError(run_id)
    if stream == "main":
        return None
    raise StreamNotFoundError(f"The run has no stream {stream!r}; it has {', '.join(sorted(names)) or 'none yet'}.")


def edge_step(conn: Connection, table: Table, segment: dict[str, Any], *, newest: bool = False) -> int | None:
    """The first step of a segment (see `segment_parameters`), or the last; None where it has none."""
    order = table.c.step.desc() if newest else table.c.step
    return conn.scalar(select(table.c.step).where(bound_segment(table)).order_by(order).limit(1), segment)


def segments(
    conn: Connection,
    run_id: str,
    stream_key: int,
    *,
    attempt: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    table: Table = steps,
) -> list[Segment]:
    """What is shown of a stream, by rising step.

    Each attempt counts from its first step on, until the first step of any that started later. With `attempt`, that
    one whole.

    Raises:
        InvalidRequestError: there is no attempt of this number.
    """
    launches = in_order(conn, run_id)
    if attempt is not None and not 1 <= attempt <= len(launches):
        raise InvalidRequestError(f"attempt must be the number of one of {len(launches)} attempts, got {attempt!r}.")
    shown: list[Segment] = []
    ceiling = wire.MAX_STEP if last_step is None else last_step
    for launch in reversed(launches):
        first = edge_step(conn, table, segment_parameters(run_id, stream_key, launch.attempt_key))
        if first is None or attempt not in (None, launch.number):
            continue
        low = max(first, first_step or 0)
        if low <= ceiling:
            shown.append(Segment(launch.number, launch.attempt_key, low, ceiling))
        ceiling = min(ceiling, first - 1)
    return sorted(shown, key=lambda segment: segment.first_step)
