"""A stream's counters and newest values stay exact, whatever is sent late, twice or in place of what was there."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, func, select, update

from gradsight_server.store.expressions import (
    IS_CLIPPED,
    IS_SKIPPED,
    bound_segment,
    how_many,
    is_nonfinite,
    nonfinite_bits,
    segment_parameters,
)
from gradsight_server.store.models import attempts, extents, steps, streams
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.summaries import LAST_COLUMNS

RATE_STEPS = 32
"""How many of the newest steps `steps_per_s` is told from."""
SPAN_GAP = 64
"""Steps further apart than this are counted in ranges of their own."""
COUNTERS = ("num_steps", "num_skipped", "num_clipped", "num_nonfinite")
NOTHING: NDArray[np.int64] = np.zeros(len(COUNTERS), dtype=np.int64)
NOTHING.flags.writeable = False

_CLIPPED_BY = ("grad_norm_before_clip", "max_norm", "clipped_layer_fraction")
_NORM_BITS = nonfinite_bits("grad_norm_before_clip")
_COUNT = Prepared(
    select(func.count(), *map(how_many, (IS_SKIPPED, IS_CLIPPED, is_nonfinite("grad_norm_before_clip"))))
    .select_from(steps)
    .where(bound_segment(steps))
)
_NEWEST = Prepared(
    select(steps.c.step, steps.c.wall_time_s, *(steps.c[name] for name in LAST_COLUMNS), steps.c.nonfinite)
    .where(bound_segment(steps))
    .order_by(steps.c.step.desc())
    .limit(RATE_STEPS)
)
_OF_STREAM = (streams.c.run_id == bindparam("of_run"), streams.c.stream_key == bindparam("of_stream"))
_ATTEMPTS = Prepared(
    select(extents.c.attempt_key)
    .join(attempts, (attempts.c.run_id == extents.c.run_id) & (attempts.c.attempt_key == extents.c.attempt_key))
    .where(extents.c.run_id == bindparam("of_run"), extents.c.stream_key == bindparam("of_stream"))
    .order_by(attempts.c.started_at_s.desc(), attempts.c.attempt_key.desc())
)
_MOVE = Prepared(
    update(streams)
    .where(*_OF_STREAM)
    .values({name: streams.c[name] + bindparam(f"more_{name}") for name in COUNTERS})
    .values(last_step=bindparam("newest_step"), last=bindparam("newest"))
)


def spans(touched: Sequence[int] | NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges that hold these steps, and not many others."""
    if not len(touched):
        return []
    low, high = int(min(touched)), int(max(touched))
    if high - low < len(touched) + SPAN_GAP:
        return [(low, high)]
    ordered = np.unique(np.asarray(touched, dtype=np.int64))
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - SPAN_GAP - 1) > SPAN_GAP)
    ends = np.append(starts[1:] - 1, len(ordered) - 1)
    return list(zip(ordered[starts].tolist(), ordered[ends].tolist(), strict=True))


def count(conn: Connection, key: tuple[str, int, int], ranges: list[tuple[int, int]]) -> NDArray[np.int64]:
    """COUNTERS of rank 0 in these ranges."""
    total = np.zeros(len(COUNTERS), dtype=np.int64)
    for bounds in ranges:
        total += np.array(_COUNT.one(conn, segment_parameters(*key, *bounds)), dtype=np.int64)
    return total


def count_new(columns: Mapping[str, Sequence[Any]], masks: Sequence[int]) -> NDArray[np.int64]:
    """COUNTERS of a batch of rank 0's steps, each of them once and none there before: what `count` would find.

    Args:
        columns: as they are stored, None where not recorded or not finite.
        masks: each row's `nonfinite`.
    """
    nothing = (None,) * len(masks)
    norms, thresholds, clipped_layers = (columns.get(name, nothing) for name in _CLIPPED_BY)
    num_clipped = sum(
        (norm is not None and threshold is not None and norm > threshold) or (layers is not None and layers > 0)
        for norm, threshold, layers in zip(norms, thresholds, clipped_layers, strict=True)
    )
    num_nonfinite = sum(mask & _NORM_BITS != 0 for mask in masks) if any(masks) else 0
    num_skipped = sum(flag is True for flag in columns.get("skipped", nothing))
    return np.array((len(masks), num_skipped, num_clipped, num_nonfinite), dtype=np.int64)


def update_stream(conn: Connection, run_id: str, stream_key: int, more: NDArray[np.int64]) -> None:
    """Moves the counters, and shows the newest step of the attempt that started last."""
    changes: dict[str, Any] = {f"more_{name}": n for name, n in zip(COUNTERS, more.tolist(), strict=True)}
    changes |= {"newest_step": None, "newest": "{}"}
    for (attempt_key,) in _ATTEMPTS.rows(conn, {"of_run": run_id, "of_stream": stream_key}):
        rows = _NEWEST.rows(conn, segment_parameters(run_id, stream_key, attempt_key))
        if rows:
            changes |= {"newest_step": rows[0][0], "newest": msgspec.json.encode(_last(rows[0], rows[-1])).decode()}
            break
    _MOVE.run(conn, changes | {"of_run": run_id, "of_stream": stream_key})


def _last(newest: Sequence[Any], older: Sequence[Any]) -> dict[str, float | None]:
    num_steps, duration_s = newest[0] - older[0], newest[1] - older[1]
    values = dict(zip((*LAST_COLUMNS, "nonfinite"), newest[2:], strict=True))
    return values | {"steps_per_s": num_steps / duration_s if duration_s > 0 else None}
