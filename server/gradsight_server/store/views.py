"""What a chart reads: which attempt stands where, and how many steps make a point."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, literal, select

from gradsight import wire
from gradsight_server.errors import InvalidRequestError
from gradsight_server.store import attempts
from gradsight_server.store.expressions import bound_segment, segment_parameters
from gradsight_server.store.models import layer_rows, steps

MAX_POINTS = 10_000


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps, both ends included, that one attempt stands for."""

    number: int
    attempt_key: int
    first_step: int
    last_step: int
    parameters: dict[str, Any]
    """What binds a `bound_segment`."""


@dataclass(frozen=True, slots=True)
class View:
    """Segments by rising step; `bucket_steps` 1 means that every step is a point of its own."""

    segments: tuple[Segment, ...] = ()
    bucket_steps: int = 1


def choose(
    conn: Connection,
    table: Table,
    run_id: str,
    stream: str,
    *,
    attempt: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int,
) -> View:
    """The view of a table's rows with at most this many points: exact if they fit, else buckets of 2^n steps.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    if not 1 <= points <= MAX_POINTS:
        raise InvalidRequestError(f"points must be from 1 to {MAX_POINTS}, got {points!r}.")
    low, high = first_step or 0, wire.MAX_STEP if last_step is None else last_step
    if not 0 <= low <= high:
        raise InvalidRequestError(f"first_step must be from 0 to last_step, got {first_step!r} and {last_step!r}.")
    stream_key = attempts.stream_key_of(conn, run_id, stream)
    if stream_key is None:
        return View()
    shown = segments(conn, run_id, stream_key, attempt=attempt, low=low, high=high)
    if _fit(conn, table, shown, points):
        return View(shown)
    first = shown[0].first_step
    last = max(edge_step(conn, table, segment.parameters, newest=True) or 0 for segment in shown)
    bucket_steps = 2
    while last // bucket_steps - first // bucket_steps >= points:
        bucket_steps *= 2
    return View(shown, bucket_steps)


def segments(
    conn: Connection, run_id: str, stream_key: int, *, attempt: int | None, low: int, high: int
) -> tuple[Segment, ...]:
    """What is shown of a stream between two steps.

    Each attempt counts from its first step on, until the first step of any that started later. With `attempt`, that
    one whole.

    Raises:
        InvalidRequestError: there is no attempt of this number.
    """
    launches = attempts.in_order(conn, run_id)
    if attempt is not None and not 1 <= attempt <= len(launches):
        raise InvalidRequestError(f"attempt must be the number of one of {len(launches)} attempts, got {attempt!r}.")
    shown: list[Segment] = []
    for launch in reversed(launches):
        key = (run_id, stream_key, launch.attempt_key)
        edges = [edge_step(conn, table, segment_parameters(*key)) for table in (steps, layer_rows)]
        first = min((edge for edge in edges if edge is not None), default=None)
        if first is None or attempt not in (None, launch.number):
            continue
        begin = max(first, low)
        if begin <= high:
            shown.append(Segment(launch.number, launch.attempt_key, begin, high, segment_parameters(*key, begin, high)))
        high = min(high, first - 1)
    return tuple(sorted(shown, key=lambda segment: segment.first_step))


def edge_step(conn: Connection, table: Table, segment: dict[str, Any], *, newest: bool = False) -> int | None:
    """The first step of a segment, or its last; None where it has none."""
    order = table.c.step.desc() if newest else table.c.step
    return conn.scalar(select(table.c.step).where(bound_segment(table)).order_by(order).limit(1), segment)


def _fit(conn: Connection, table: Table, shown: tuple[Segment, ...], points: int) -> bool:
    """Whether these are at most so many rows; counts no further than it must."""
    some = select(literal(1).label("one")).where(bound_segment(table)).limit(bindparam("at_most")).subquery()
    query = select(func.count()).select_from(some)
    room = points
    for segment in shown:
        room -= conn.scalar(query, segment.parameters | {"at_most": room + 1}) or 0
        if room < 0:
            return False
    return True
