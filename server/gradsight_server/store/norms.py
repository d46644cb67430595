"""A stream's norms before clipping: the newest in order, and all of a range as a histogram."""

from typing import Unpack

import numpy as np
from sqlalchemy import Connection, bindparam, select

from gradsight_server.diagnosis.inputs import Floats, Histogram, Integers
from gradsight_server.store import histogram, views
from gradsight_server.store.distribution import norm_distribution
from gradsight_server.store.expressions import bound_segment, is_nonfinite
from gradsight_server.store.models import steps
from gradsight_server.store.prepared import Prepared

_NORM = steps.c.grad_norm_before_clip
_NEWEST = Prepared(
    select(steps.c.step, _NORM)
    .where(bound_segment(steps), _NORM.is_not(None) | is_nonfinite("grad_norm_before_clip"))
    .order_by(steps.c.step.desc())
    .limit(bindparam("at_most"))
)


def newest_norms(
    conn: Connection, run_id: str, *, stream: str = "main", limit: int, **asked: Unpack[views.Asked]
) -> tuple[Integers, Floats]:
    """Steps and norms, in order, of at most so many of the newest steps that recorded one; NaN where not finite.

    Args:
        asked: as for `views.show`.
    """
    rows: list[tuple[int, float | None]] = []
    for segment in reversed(views.show(conn, run_id, stream, **asked)):
        rows += _NEWEST.rows(conn, segment.parameters | {"at_most": limit - len(rows)})
        if len(rows) == limit:
            break
    table = np.array(rows[::-1], dtype=np.float64).reshape(-1, 2)  # NULL becomes NaN
    return table[:, 0].astype(np.int64), table[:, 1]


def norm_histogram(conn: Connection, run_id: str, *, stream: str = "main", **asked: Unpack[views.Asked]) -> Histogram:
    """How the finite norms of these steps are distributed; zeros have a bin of their own."""
    return as_edges(norm_distribution(conn, run_id, stream=stream, **asked).histogram)


def as_edges(found: histogram.Histogram) -> Histogram:
    """Bins side by side, also the empty ones."""
    is_zero = found.bins == histogram.NOT_POSITIVE
    bins, counts = found.bins[~is_zero], found.counts[~is_zero]
    first, last = (int(bins[0]), int(bins[-1])) if len(bins) else (0, -1)
    filled = np.zeros(last - first + 2, dtype=np.int64)
    filled[0] = found.counts[is_zero].sum()
    filled[bins - first + 1] = counts
    edges = [0.0, *(histogram.upper_edge(index) for index in range(first - 1, last + 1))]
    return Histogram(np.array(edges), filled)
