"""A stream's norms before clipping, as they are shown: the newest in order, and all of a range as a histogram."""

import numpy as np
from sqlalchemy import Connection, select

from gradsight import wire
from gradsight_server.diagnosis.inputs import Floats, Histogram, Integers
from gradsight_server.errors import InvalidRequestError
from gradsight_server.store import attempts, views
from gradsight_server.store.expressions import bound_segment, is_nonfinite
from gradsight_server.store.models import steps

BINS_PER_OCTAVE = 20

_NORM = steps.c.grad_norm_before_clip
_IS_RECORDED = _NORM.is_not(None) | is_nonfinite("grad_norm_before_clip")
_NEWEST = select(steps.c.step, _NORM).where(bound_segment(steps), _IS_RECORDED).order_by(steps.c.step.desc())
_FINITE = select(_NORM).where(bound_segment(steps), _NORM >= 0)


def shown_segments(
    conn: Connection,
    run_id: str,
    stream: str,
    *,
    attempt: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
) -> tuple[views.Segment, ...]:
    """What is shown of a stream between two steps, both included; nothing of a `main` that has not begun.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    low, high = first_step or 0, wire.MAX_STEP if last_step is None else last_step
    if not 0 <= low <= high:
        raise InvalidRequestError(f"first_step must be from 0 to last_step, got {first_step!r} and {last_step!r}.")
    stream_key = attempts.stream_key_of(conn, run_id, stream)
    if stream_key is None:
        return ()
    return views.segments(conn, run_id, stream_key, attempt=attempt, low=low, high=high)


def newest_norms(
    conn: Connection, run_id: str, *, stream: str = "main", limit: int, **asked: int | None
) -> tuple[Integers, Floats]:
    """Steps and norms, in order, of at most so many of the newest steps that recorded one; NaN where not finite.

    Args:
        asked: attempt, first_step, last_step, as for `shown_segments`.
    """
    rows: list[tuple[int, float | None]] = []
    for segment in reversed(shown_segments(conn, run_id, stream, **asked)):
        found = conn.execute(_NEWEST.limit(limit - len(rows)), segment.parameters)
        rows += [tuple(row) for row in found]
        if len(rows) == limit:
            break
    table = np.array(rows[::-1], dtype=np.float64).reshape(-1, 2)  # NULL becomes NaN
    return table[:, 0].astype(np.int64), table[:, 1]


def norm_histogram(conn: Connection, run_id: str, *, stream: str = "main", **asked: int | None) -> Histogram:
    """How the finite norms of these steps are distributed: bins grow by a twentieth of an octave, zeros have their own.

    Powers of two are edges of bins, so that a threshold of 1.0 is counted exactly.
    """
    shown = shown_segments(conn, run_id, stream, **asked)
    rows = [value for segment in shown for (value,) in conn.execute(_FINITE, segment.parameters)]
    norms = np.array(rows, dtype=np.float64)
    positive = norms[norms > 0]
    num_zeros = len(norms) - len(positive)
    if len(positive) == 0:
        return Histogram(np.array([0.0, np.finfo(np.float64).tiny]), np.array([num_zeros]))
    bins = np.floor(np.log2(positive) * BINS_PER_OCTAVE).astype(np.int64)
    first = int(bins.min())
    counts = np.bincount(bins - first)
    edges = np.exp2(np.arange(first, first + len(counts) + 1) / BINS_PER_OCTAVE)
    return Histogram(np.concatenate([[0.0], edges]), np.concatenate([[num_zeros], counts]))
