"""The user's own metrics by step, a validation loss say: exact values, or buckets with their extremes."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Integer, cast, func, literal_column, select

from gradsight_server.store import views
from gradsight_server.store.models import metrics, streams
from gradsight_server.store.views import Segment

MAX_METRICS = 32
MAX_SEGMENTS = 16
"""Of a run that was started again many times, metrics are those of its newest launches."""

Floats = NDArray[np.float64]
Key = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class MetricCurve:
    """A metric by rising step, over the finite values of each bucket (NaN where there are none)."""

    name: str
    bucket_steps: int
    step: NDArray[np.int64]
    min: Floats
    max: Floats
    mean: Floats
    num_nonfinite: NDArray[np.int64]


def metric_curves(
    conn: Connection,
    run_id: str,
    *,
    stream: str = "main",
    attempt: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = 500,
) -> list[MetricCurve]:
    """Each metric of the steps shown, by name, whichever stream it was sent with, in about `points` points at most.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    views.check_points(points)
    shown = views.show(conn, run_id, stream, attempt=attempt, first_step=first_step, last_step=last_step)
    if not shown:
        return []
    stream_keys = conn.scalars(select(streams.c.stream_key).where(streams.c.run_id == run_id)).all()
    places = [((run_id, key, s.attempt_key), s) for s, key in product(shown[-MAX_SEGMENTS:], stream_keys)]
    names = sorted({name for key, _ in places for name in _names(conn, key)})[:MAX_METRICS]
    return [_curve(conn, name, places, points) for name in names]


def _curve(conn: Connection, name: str, places: list[tuple[Key, Segment]], points: int) -> MetricCurve:
    num_values = sum(_num_values(conn, key, name, segment, points) for key, segment in places)
    size = 1 if num_values <= points else views.bucket_steps([segment for _, segment in places], points)
    rows = sorted(row for key, segment in places for row in _rows(conn, key, name, segment, size))
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 5)  # NULL becomes NaN
    return MetricCurve(
        name, size, table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3], table[:, 4].astype(np.int64)
    )


def _names(conn: Connection, key: Key) -> Iterator[str]:
    """From name to name through the key, not through a million rows."""
    query = select(func.min(metrics.c.name)).where(*_of(key))
    name: str | None = ""
    for _ in range(MAX_METRICS):
        name = conn.scalar(query.where(metrics.c.name > name))
        if name is None:
            return
        yield name


def _num_values(conn: Connection, key: Key, name: str, segment: Segment, points: int) -> int:
    """Not counted further than it must be."""
    some = select(metrics.c.step).where(*_of(key, name, segment)).limit(points + 1).subquery()
    return conn.scalar(select(func.count()).select_from(some)) or 0


def _rows(
    conn: Connection, key: Key, name: str, segment: Segment, size: int
) -> list[tuple[int, float | None, float | None, float | None, int]]:
    """(first step, smallest, largest, mean, how many not finite) of each bucket."""
    value = metrics.c.value
    is_odd = cast(metrics.c.nonfinite != 0, Integer)
    query = (
        select(func.min(metrics.c.step), func.min(value), func.max(value), func.avg(value), func.sum(is_odd))
        .where(*_of(key, name, segment))
        .group_by(metrics.c.step - metrics.c.step % literal_column(str(size)))
    )
    return [(*row,) for row in conn.execute(query)]


def _of(key: Key, name: str | None = None, segment: Segment | None = None) -> Iterator[ColumnElement[bool]]:
    """What says which rows."""
    run_id, stream_key, attempt_key = key
    yield from (metrics.c.run_id == run_id, metrics.c.stream_key == stream_key, metrics.c.attempt_key == attempt_key)
    if name is not None:
        yield metrics.c.name == name
    if segment is not None:
        yield metrics.c.step.between(segment.first_step, segment.last_step)
