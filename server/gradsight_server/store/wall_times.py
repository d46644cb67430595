"""When steps were made, for series drawn by time."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from gradsight_server.store import rollup
from gradsight_server.store.expressions import bound_segment
from gradsight_server.store.models import buckets, steps
from gradsight_server.store.views import Segment, View

_AT_ONCE = 400


def wall_times(conn: Connection, view: View, firsts: Sequence[int]) -> list[float | None]:
    """The moment of each of these steps, the first of the view's points; None where nobody said."""
    found: dict[int, float] = {}
    for segment in view.segments:
        inside = [step for step in firsts if segment.first_step <= step <= segment.last_step]
        for start in range(0, len(inside), _AT_ONCE):
            chunk = inside[start : start + _AT_ONCE]
            found |= _of_steps(conn, segment, chunk)
            if segment.is_sealed:
                found = _of_buckets(conn, segment, rollup.level_of(view.bucket_steps), chunk) | found
    return [found.get(step) for step in firsts]


def _of_steps(conn: Connection, segment: Segment, wanted: Sequence[int]) -> dict[int, float]:
    query = select(steps.c.step, steps.c.wall_time_s).where(bound_segment(steps), steps.c.step.in_(wanted))
    return {step: at_s for step, at_s in conn.execute(query, segment.parameters) if at_s is not None}


def _of_buckets(conn: Connection, segment: Segment, level: int, wanted: Sequence[int]) -> dict[int, float]:
    run_id, stream_key, attempt_key = segment.key
    query = select(buckets.c.first_step, buckets.c.first_time_s).where(
        buckets.c.run_id == run_id,
        buckets.c.stream_key == stream_key,
        buckets.c.attempt_key == attempt_key,
        buckets.c.level == level,
        buckets.c.first_step.in_(wanted),
    )
    return {step: at_s for step, at_s in conn.execute(query) if at_s is not None}
