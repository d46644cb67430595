"""What a chart reads: which attempt stands where, how many steps make a point, and which buckets give them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

from sqlalchemy import Connection, Table, and_, bindparam, func, literal, select

from gradsight import wire
from gradsight_server.errors import InvalidRequestError
from gradsight_server.store import attempts, rollup
from gradsight_server.store.expressions import bound_segment, segment_parameters
from gradsight_server.store.extents import AttemptKey
from gradsight_server.store.models import attempts as attempts_table
from gradsight_server.store.models import extents, steps
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.rollup import FANOUT, Piece

MAX_POINTS = 10_000

_ATTEMPTS = Prepared(
    select(attempts_table.c.attempt_key, extents.c.first_step, extents.c.last_step, extents.c.sealed_before)
    .select_from(
        attempts_table.outerjoin(
            extents,
            and_(
                extents.c.run_id == attempts_table.c.run_id,
                extents.c.stream_key == bindparam("of_stream"),
                extents.c.attempt_key == attempts_table.c.attempt_key,
            ),
        )
    )
    .where(attempts_table.c.run_id == bindparam("of_run"))
    .order_by(attempts_table.c.started_at_s, attempts_table.c.attempt_key)
)
_NUM_STEPS = Prepared(
    select(func.count()).select_from(
        select(literal(1).label("one")).where(bound_segment(steps)).limit(bindparam("at_most")).subquery()
    )
)


class Asked(TypedDict, total=False):
    """Which part of a stream is asked for: one attempt whole, or what is shown; between two steps, both included."""

    attempt: int | None
    first_step: int | None
    last_step: int | None


NumRows = Callable[[Connection, AttemptKey, int, int, int], int]
"""How many rows an attempt has between two steps; not counted far beyond the last argument."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The steps, both ends included, that one attempt stands for."""

    number: int
    key: AttemptKey
    first_step: int
    last_step: int
    is_first: bool
    """The attempt has nothing before `first_step`."""
    sealed_before: int
    """Before this step there are only rollups."""

    @property
    def attempt_key(self) -> int:
        return self.key[2]

    @property
    def parameters(self) -> dict[str, Any]:
        """What binds a `bound_segment`."""
        return segment_parameters(*self.key, self.first_step, self.last_step)

    @property
    def is_sealed(self) -> bool:
        """Whether some of it is only there as rollups."""
        return self.first_step < self.sealed_before

    def pieces(self, level: int) -> list[Piece]:
        """The segment by rising step, in as few buckets as there can be, none coarser than `level`.

        Where only rollups are left, buckets that reach over its ends are in it whole.
        """
        first, last = self.first_step, self.last_step
        if self.is_first:
            first -= first % rollup.bucket_size(level)
        if first < self.sealed_before:
            first -= first % FANOUT
        if last < self.sealed_before:
            last += FANOUT - 1 - last % FANOUT
        return rollup.cover(first, last, level)


@dataclass(frozen=True, slots=True)
class View:
    """Segments by rising step; `bucket_steps` 1 means that every step is a point of its own."""

    segments: tuple[Segment, ...] = ()
    bucket_steps: int = 1

    def pieces(self) -> Iterator[tuple[AttemptKey, Piece]]:
        """What to read, by rising step: each piece lies in one or more whole buckets of the view, or inside of one."""
        level = rollup.level_of(self.bucket_steps)
        return ((segment.key, piece) for segment in self.segments for piece in segment.pieces(level))


def choose(
    conn: Connection,
    shown: tuple[Segment, ...],
    *,
    points: int,
    num_rows: NumRows | None = None,
) -> View:
    """The view of these segments with at most so many points: exact if they fit, else buckets of 2^n steps."""
    num_rows = num_rows or num_steps
    return View(shown, 1 if fit(conn, shown, points, num_rows) else bucket_steps(shown, points))


def check_points(points: int) -> None:
    """
    Raises:
        InvalidRequestError
    """
    if not 1 <= points <= MAX_POINTS:
        raise InvalidRequestError(f"points must be from 1 to {MAX_POINTS}, got {points!r}.")


def check_range(first_step: int | None, last_step: int | None) -> tuple[int, int]:
    """The steps asked for, both ends included.

    Raises:
        InvalidRequestError: they are the wrong way round.
    """
    low, high = first_step or 0, wire.MAX_STEP if last_step is None else last_step
    if not 0 <= low <= high:
        raise InvalidRequestError(f"first_step must be from 0 to last_step, got {first_step!r} and {last_step!r}.")
    return low, high


def show(conn: Connection, run_id: str, stream: str, **asked: Unpack[Asked]) -> tuple[Segment, ...]:
    """What is shown of a stream between two steps, by its name.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    low, high = check_range(asked.get("first_step"), asked.get("last_step"))
    stream_key = attempts.stream_key_of(conn, run_id, stream)
    if stream_key is None:
        return ()
    return segments(conn, run_id, stream_key, attempt=asked.get("attempt"), low=low, high=high)


def segments(
    conn: Connection, run_id: str, stream_key: int, *, attempt: int | None, low: int, high: int
) -> tuple[Segment, ...]:
    """What is shown of a stream between two steps.

    Each attempt counts from its first step on, until the first step of any that started later. With `attempt`, that
    one whole.

    Raises:
        InvalidRequestError: there is no attempt of this number.
    """
    launches = _ATTEMPTS.rows(conn, {"of_run": run_id, "of_stream": stream_key})
    if attempt is not None and not 1 <= attempt <= len(launches):
        raise InvalidRequestError(f"attempt must be the number of one of {len(launches)} attempts, got {attempt!r}.")
    shown: list[Segment] = []
    for number, (attempt_key, first, last, sealed_before) in reversed(list(enumerate(launches, 1))):
        if first is None or attempt not in (None, number):
            continue
        begin, end = max(first, low), min(last, high)
        if begin <= end:
            key = (run_id, stream_key, attempt_key)
            shown.append(Segment(number, key, begin, end, begin == first, sealed_before))
        high = min(high, first - 1)
    return tuple(sorted(shown, key=lambda segment: segment.first_step))


def edge_step(conn: Connection, table: Table, segment: dict[str, Any], *, newest: bool = False) -> int | None:
    """The first step of a segment, or its last; None where it has none."""
    order = table.c.step.desc() if newest else table.c.step
    return conn.scalar(select(table.c.step).where(bound_segment(table)).order_by(order).limit(1), segment)


def fit(conn: Connection, shown: Sequence[Segment], points: int, num_rows: NumRows) -> bool:
    """Whether these are at most so many rows, all still there; counts no further than it must."""
    if any(segment.is_sealed for segment in shown):
        return False
    if sum(segment.last_step - segment.first_step + 1 for segment in shown) <= points:
        return True
    room = points
    for segment in shown:
        room -= num_rows(conn, segment.key, segment.first_step, segment.last_step, room + 1)
        if room < 0:
            return False
    return True


def bucket_steps(shown: Sequence[Segment], points: int) -> int:
    """The smallest power of two whose buckets are at most so many between the first step and the last."""
    first = min(segment.first_step for segment in shown)
    last = max(segment.last_step for segment in shown)
    size = FANOUT if any(segment.is_sealed for segment in shown) else 2
    while last // size - first // size >= points:
        size *= 2
    return size


def num_steps(conn: Connection, key: AttemptKey, first_step: int, last_step: int, at_most: int) -> int:
    """How many steps of rank 0 there are between two steps."""
    found: int = _NUM_STEPS.scalar(conn, segment_parameters(*key, first_step, last_step) | {"at_most": at_most})
    return found
