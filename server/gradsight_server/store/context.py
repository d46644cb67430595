"""What is known of a stream beside its steps: set-up, the user's own metrics, other ranks' norms, lost rows."""

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec
import numpy as np
from sqlalchemy import Connection, func, select

from gradsight import wire
from gradsight_server.diagnosis.inputs import Context, Floats, Integers, MetricSeries
from gradsight_server.store import attempts
from gradsight_server.store.expressions import bound_segment
from gradsight_server.store.models import metrics, steps, streams
from gradsight_server.store.views import Segment

MAX_RANK_STEPS = 500
MAX_RANK_ROWS = 20_000
MAX_METRICS = 64
MAX_METRIC_VALUES = 500
MAX_SEGMENTS = 16
"""Of a run that was started again many times, metrics are those of its newest launches."""

_OTHER_RANKS = (
    select(steps.c.step, steps.c.rank, steps.c.grad_norm_before_clip)
    .where(bound_segment(steps, any_rank=True), steps.c.rank > 0, steps.c.grad_norm_before_clip.is_not(None))
    .order_by(steps.c.step.desc())
    .limit(MAX_RANK_ROWS)
)


def context_of(conn: Connection, run_id: str, stream: str, shown: Sequence[Segment], step: Integers) -> Context:
    """What goes with these steps, which are the newest of what is shown."""
    of_stream = (streams.c.run_id == run_id, streams.c.stream == stream)
    record = conn.scalar(select(streams.c.record).where(*of_stream)) or {}
    return Context(
        record=msgspec.convert(record, wire.StreamRecord),
        metrics=_metrics(conn, run_id, shown),
        rank_norms=_rank_norms(conn, shown, step),
        dropped=_dropped(conn, run_id, shown),
    )


def _dropped(conn: Connection, run_id: str, shown: Sequence[Segment]) -> dict[str, int]:
    """Reason → rows lost by the launches that are shown, all ranks together."""
    keys = {segment.attempt_key for segment in shown}
    totals: dict[str, int] = {}
    for launch in attempts.in_order(conn, run_id):
        if launch.attempt_key in keys:
            for reasons in launch.dropped.values():
                for reason, lost in reasons.items():
                    totals[reason] = totals.get(reason, 0) + lost
    return totals


def _rank_norms(conn: Connection, shown: Sequence[Segment], step: Integers) -> dict[int, Floats]:
    """What other ranks recorded of the newest steps."""
    newest = step[-MAX_RANK_STEPS:].tolist()
    place = {number: i for i, number in enumerate(newest, len(step) - len(newest))}
    found: dict[int, Floats] = {}
    for segment in shown:
        if not newest or segment.last_step < newest[0]:
            continue
        bounds = {"segment_first_step": max(segment.first_step, newest[0])}
        for number, rank, norm in conn.execute(_OTHER_RANKS, segment.parameters | bounds):
            if number in place:
                found.setdefault(rank, np.full(len(step), np.nan))[place[number]] = norm
    return found


def _metrics(conn: Connection, run_id: str, shown: Sequence[Segment]) -> dict[str, MetricSeries]:
    """The newest values of each metric, by rising step, whichever stream they were sent with."""
    rows: dict[str, list[tuple[int, float]]] = {}
    keys = conn.scalars(select(streams.c.stream_key).where(streams.c.run_id == run_id)).all()
    for segment, stream_key in product(shown[-MAX_SEGMENTS:], keys):
        for name in _metric_names(conn, run_id, stream_key, segment.attempt_key):
            rows.setdefault(name, []).extend(_metric_rows(conn, run_id, stream_key, segment, name))
    return {name: _as_series(found) for name, found in rows.items()}


def _as_series(rows: list[tuple[int, float]]) -> MetricSeries:
    step, values = zip(*sorted(rows), strict=True) if rows else ((), ())
    return MetricSeries(np.array(step, dtype=np.int64), np.array(values, dtype=np.float64))


def _metric_names(conn: Connection, run_id: str, stream_key: int, attempt_key: int) -> Iterator[str]:
    """From name to name through the key, not through a million rows."""
    key = (metrics.c.run_id == run_id, metrics.c.stream_key == stream_key, metrics.c.attempt_key == attempt_key)
    query = select(func.min(metrics.c.name)).where(*key)
    name: str | None = ""
    for _ in range(MAX_METRICS):
        name = conn.scalar(query.where(metrics.c.name > name))
        if name is None:
            return
        yield name


def _metric_rows(
    conn: Connection, run_id: str, stream_key: int, segment: Segment, name: str
) -> list[tuple[int, float]]:
    """(step, value) of the newest."""
    query = select(metrics.c.step, metrics.c.value).where(
        metrics.c.run_id == run_id,
        metrics.c.stream_key == stream_key,
        metrics.c.attempt_key == segment.attempt_key,
        metrics.c.name == name,
        metrics.c.step.between(segment.first_step, segment.last_step),
        metrics.c.value.is_not(None),
    )
    found = conn.execute(query.order_by(metrics.c.step.desc()).limit(MAX_METRIC_VALUES))
    return [(row.step, row.value) for row in found]
