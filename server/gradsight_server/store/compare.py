"""Series of several runs over one step axis: their buckets begin at the same steps, so that curves can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from gradsight_server.errors import InvalidRequestError, StreamNotFoundError
from gradsight_server.store import series, views
from gradsight_server.store.views import Segment
from gradsight_server.store.wall_times import wall_times

MAX_RUNS = 50
MAX_POINTS = 2_000


@dataclass(frozen=True, slots=True)
class Compared:
    """One of the runs."""

    series: series.Series
    wall_time_s: list[float | None]
    """When the first step of each point was made."""


def compare(
    conn: Connection,
    run_ids: Sequence[str],
    *,
    columns: Sequence[str],
    stream: str = "main",
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = 500,
) -> dict[str, Compared]:
    """Each run's series, in at most `points` points from the first step of any to the last; empty without the stream.

    Raises:
        RunNotFoundError, InvalidRequestError
    """
    if not 1 <= len(run_ids) <= MAX_RUNS:
        raise InvalidRequestError(f"runs must be 1 to {MAX_RUNS} run ids, got {len(run_ids)}.")
    if not 1 <= points <= MAX_POINTS:
        raise InvalidRequestError(f"points must be from 1 to {MAX_POINTS}, got {points!r}.")
    series.check_columns(columns)
    shown = {run_id: _show(conn, run_id, stream, first_step, last_step) for run_id in dict.fromkeys(run_ids)}
    fit = all(views.fit(conn, segments, points, views.num_steps) for segments in shown.values())
    size = 1 if fit else views.bucket_steps([segment for segments in shown.values() for segment in segments], points)
    return {run_id: _read(conn, views.View(segments, size), columns, stream) for run_id, segments in shown.items()}


def _read(conn: Connection, view: views.View, columns: Sequence[str], stream: str) -> Compared:
    found = series.read(conn, view, columns, stream=stream, attempt=None)
    return Compared(found, wall_times(conn, view, found.step.tolist()))


def _show(
    conn: Connection, run_id: str, stream: str, first_step: int | None, last_step: int | None
) -> tuple[Segment, ...]:
    try:
        return views.show(conn, run_id, stream, first_step=first_step, last_step=last_step)
    except StreamNotFoundError:
        return ()
