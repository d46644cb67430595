"""What a diagnosis is made from, as the database has it: a stream's newest steps, its set-up, facts of the range."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
from sqlalchemy import Connection, bindparam, func, select

from gradsight import wire
from gradsight_server.diagnosis import Column, Context, LayerNorms, RangeFacts, StreamSteps
from gradsight_server.diagnosis.inputs import Integers
from gradsight_server.errors import RunNotFoundError
from gradsight_server.figures import display_name
from gradsight_server.store import layer_blocks, views
from gradsight_server.store.context import context_of
from gradsight_server.store.distribution import MAX_LEVEL, norm_distribution
from gradsight_server.store.expressions import bound_segment, segment_parameters
from gradsight_server.store.extents import AttemptKey
from gradsight_server.store.models import (
    NEGATIVE_INFINITY,
    POSITIVE_INFINITY,
    buckets,
    layer_sets,
    nonfinite_shift,
    runs,
    steps,
    streams,
)
from gradsight_server.store.norms import as_edges
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.rollup import Piece
from gradsight_server.store.views import Segment

MAX_STEPS = 5_000
"""The newest steps that are handed over one by one: the 2,000 that are judged, and enough before them to compare."""
MAX_LAYER_ROWS = 256
MIN_LAYER_ROWS = 64
MAX_LAYER_VALUES = 2**17
"""About as many layer norms are read; of very many layers as many rows as a verdict on layers needs…"""
MOST_LAYER_VALUES = 2**21
"""…as long as they are not more than this."""

_NUMBERS = (*wire.FLOAT_COLUMNS, "skipped", *wire.INTEGER_COLUMNS)
_READ = ("step", *_NUMBERS, *wire.TEXT_COLUMNS, "nonfinite")
_NEWEST = Prepared(
    select(*(steps.c[name] for name in _READ))
    .where(bound_segment(steps))
    .order_by(steps.c.step.desc())
    .limit(bindparam("at_most"))
)
_SCALES = Prepared(select(func.min(steps.c.loss_scale)).where(bound_segment(steps)))
_SCALES_OF_BUCKETS = Prepared(
    select(func.min(buckets.c.loss_scale_min)).where(
        buckets.c.run_id == bindparam("of_run"),
        buckets.c.stream_key == bindparam("of_stream"),
        buckets.c.attempt_key == bindparam("of_attempt"),
        buckets.c.level == bindparam("at_level"),
        buckets.c.bucket.between(bindparam("first_bucket"), bindparam("last_bucket")),
    )
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What `diagnose` takes. `facts` are there where the steps are not all of the range."""

    steps: StreamSteps
    context: Context
    facts: RangeFacts | None


def evidence(conn: Connection, run_id: str, *, stream: str = "main", **asked: Unpack[views.Asked]) -> Evidence:
    """All that is known of a part of a stream, as charts show it.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    shown = views.show(conn, run_id, stream, **asked)
    rows = _newest_rows(conn, shown)
    columns = list(zip(*rows, strict=True)) or [()] * len(_READ)
    named = dict(zip(_READ, columns, strict=True))
    step = np.array(named["step"], dtype=np.int64)
    found = StreamSteps.of(step, layers=_newest_layers(conn, run_id, shown, step), **_as_columns(named))
    facts = _range_facts(conn, run_id, shown, stream=stream, **asked) if len(step) == MAX_STEPS else None
    return Evidence(found, context_of(conn, run_id, stream, shown, step), facts)


def run_stamp(conn: Connection, run_id: str) -> tuple[float, float]:
    """What changes with every batch and every change of the record.

    Raises:
        RunNotFoundError
    """
    row = conn.execute(select(runs.c.last_seen_s, runs.c.updated_at_s).where(runs.c.run_id == run_id)).one_or_none()
    if row is None:
        raise RunNotFoundError(run_id)
    return row.last_seen_s, row.updated_at_s


def streams_with_steps(conn: Connection, run_id: str) -> list[str]:
    """The run's streams that there is something to judge of; none where there is no such run."""
    query = select(streams.c.stream).where(streams.c.run_id == run_id, streams.c.num_steps > 0)
    return list(conn.scalars(query.order_by(streams.c.stream_key)))


def _newest_rows(conn: Connection, shown: Sequence[Segment]) -> list[Any]:
    rows: list[Any] = []
    for segment in reversed(shown):
        rows += _NEWEST.rows(conn, segment.parameters | {"at_most": MAX_STEPS - len(rows)})
        if len(rows) == MAX_STEPS:
            break
    return rows[::-1]


def _as_columns(named: dict[str, tuple[Any, ...]]) -> dict[str, Column | tuple[str | None, ...] | None]:
    """Columns by name; what no step recorded is absent."""
    mask = np.array(named["nonfinite"], dtype=np.int64)
    found: dict[str, Column | tuple[str | None, ...] | None] = {}
    for name in _NUMBERS:
        values = np.array(named[name], dtype=np.float64)  # NULL becomes NaN
        recorded = ~np.isnan(values)
        if name in wire.FLOAT_COLUMNS:
            code = mask >> nonfinite_shift(name) & 3
            recorded |= code != 0
            values[code == POSITIVE_INFINITY], values[code == NEGATIVE_INFINITY] = np.inf, -np.inf
        found[name] = Column(values, recorded) if recorded.any() else None
    for name in wire.TEXT_COLUMNS:
        found[name] = named[name] if any(named[name]) else None
    return found


def _range_facts(conn: Connection, run_id: str, shown: Sequence[Segment], **asked: Any) -> RangeFacts:
    found = norm_distribution(conn, run_id, **asked)
    scales = [
        scale
        for segment in shown
        for piece in segment.pieces(MAX_LEVEL)
        if (scale := _smallest_scale(conn, segment.key, piece)) is not None
    ]
    return RangeFacts(
        first_step=shown[0].first_step,
        last_step=shown[-1].last_step,
        num_steps=found.num_steps,
        num_finite=found.num_finite,
        num_nonfinite=found.num_nonfinite,
        num_skipped=found.num_skipped,
        num_clipped=found.num_clipped,
        largest_norm=found.max,
        smallest_scale=min(scales, default=None),
        histogram=as_edges(found.histogram),
    )


def _smallest_scale(conn: Connection, key: AttemptKey, piece: Piece) -> float | None:
    if piece.level == 0:
        found = _SCALES.scalar(conn, segment_parameters(*key, piece.first, piece.last))
    else:
        names = ("of_run", "of_stream", "of_attempt", "at_level", "first_bucket", "last_bucket")
        found = _SCALES_OF_BUCKETS.scalar(conn, dict(zip(names, (*key, *piece), strict=True)))
    return None if found is None else float(found)


def _newest_layers(conn: Connection, run_id: str, shown: Sequence[Segment], step: Integers) -> LayerNorms | None:
    """The newest rows of the set of layers that was recorded last, of the steps that are judged."""
    rows = _layer_rows(conn, shown, int(step[0])) if len(step) else []
    if not rows:
        return None
    of_set = (layer_sets.c.run_id == run_id, layer_sets.c.layers_id == rows[0].layers_id)
    known = conn.execute(select(layer_sets.c.layers, layer_sets.c.num_layers).where(*of_set)).one()
    names = known.layers or [[f"layer {i}"] for i in range(known.num_layers)]
    most = _num_layer_rows(known.num_layers)
    return LayerNorms(
        np.concatenate([part.step for part in reversed(rows)])[-most:],
        tuple(display_name(layer) for layer in names),
        np.concatenate([part.norms for part in reversed(rows)])[-most:],
    )


def _layer_rows(conn: Connection, shown: Sequence[Segment], first_step: int) -> list[layer_blocks.LayerRows]:
    """Rows of the set of layers that was recorded last, the newest first: about as many as their width allows."""
    found: list[layer_blocks.LayerRows] = []
    wanted = MAX_LAYER_ROWS
    for segment in reversed(shown):
        last = segment.last_step
        while wanted > 0 and last >= max(segment.first_step, first_step):
            newest = layer_blocks.newest(conn, segment.key, max(segment.first_step, first_step), last)
            if newest is None or (found and newest.layers_id != found[0].layers_id):
                break
            if not found:
                wanted = _num_layer_rows(newest.norms.shape[1])
            first = max(segment.first_step, first_step, int(newest.step[-1]) - wanted + 1)
            parts = [
                part
                for part in layer_blocks.read(conn, segment.key, first, int(newest.step[-1]))
                if part.layers_id == newest.layers_id
            ]
            found += reversed(parts)
            wanted -= sum(len(part.step) for part in parts)
            last = first - 1
    return found


def _num_layer_rows(num_layers: int) -> int:
    rows = min(MAX_LAYER_ROWS, max(MIN_LAYER_ROWS, MAX_LAYER_VALUES // max(num_layers, 1)))
    return max(1, min(rows, MOST_LAYER_VALUES // max(num_layers, 1)))
