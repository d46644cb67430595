"""What a diagnosis is made from, as the database has it: a stream's newest steps, its set-up, facts of the range."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, func, select

from gradsight import wire
from gradsight_server.diagnosis import Column, Context, LayerNorms, RangeFacts, StreamSteps
from gradsight_server.diagnosis.inputs import Integers
from gradsight_server.errors import RunNotFoundError
from gradsight_server.figures import display_name
from gradsight_server.store import layer_blocks
from gradsight_server.store.context import context_of
from gradsight_server.store.expressions import IS_CLIPPED, IS_SKIPPED, bound_segment, how_many, is_nonfinite
from gradsight_server.store.models import (
    NEGATIVE_INFINITY,
    POSITIVE_INFINITY,
    layer_sets,
    nonfinite_shift,
    runs,
    steps,
    streams,
)
from gradsight_server.store.norms import shown_segments
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
_NEWEST = select(*(steps.c[name] for name in _READ)).where(bound_segment(steps)).order_by(steps.c.step.desc())
_FACTS = select(
    func.min(steps.c.step),
    func.max(steps.c.step),
    func.count(),
    func.count(steps.c.grad_norm_before_clip),
    how_many(is_nonfinite("grad_norm_before_clip")),
    how_many(IS_SKIPPED),
    how_many(IS_CLIPPED),
    func.max(steps.c.grad_norm_before_clip),
    func.min(steps.c.loss_scale),
).where(bound_segment(steps))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What `diagnose` takes. `facts` are there where the steps are not all of the range."""

    steps: StreamSteps
    context: Context
    facts: RangeFacts | None


def evidence(
    conn: Connection,
    run_id: str,
    *,
    stream: str = "main",
    attempt: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
) -> Evidence:
    """All that is known of a stream between two steps, both included, as charts show it.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    shown = shown_segments(conn, run_id, stream, attempt=attempt, first_step=first_step, last_step=last_step)
    rows = _newest_rows(conn, shown)
    columns = list(zip(*rows, strict=True)) or [()] * len(_READ)
    named = dict(zip(_READ, columns, strict=True))
    step = np.array(named["step"], dtype=np.int64)
    found = StreamSteps.of(step, layers=_newest_layers(conn, run_id, shown, step), **_as_columns(named))
    facts = _range_facts(conn, shown) if len(step) == MAX_STEPS else None
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
        rows += conn.execute(_NEWEST.limit(MAX_STEPS - len(rows)), segment.parameters).all()
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


def _range_facts(conn: Connection, shown: Sequence[Segment]) -> RangeFacts:
    parts = [conn.execute(_FACTS, segment.parameters).one() for segment in shown]
    first, last, *counts, norms, scales = zip(*(part for part in parts if part[0] is not None), strict=True)
    num_steps, num_finite, num_nonfinite, num_skipped, num_clipped = (sum(count) for count in counts)
    return RangeFacts(
        first_step=min(first),
        last_step=max(last),
        num_steps=num_steps,
        num_finite=num_finite,
        num_nonfinite=num_nonfinite,
        num_skipped=num_skipped,
        num_clipped=num_clipped,
        largest_norm=max((norm for norm in norms if norm is not None), default=None),
        smallest_scale=min((scale for scale in scales if scale is not None), default=None),
    )


def _newest_layers(conn: Connection, run_id: str, shown: Sequence[Segment], step: Integers) -> LayerNorms | None:
    """The newest rows of the set of layers that was recorded last, of the steps that are judged."""
    if not len(step):
        return None
    first = int(step[0])
    parts: list[layer_blocks.LayerRows] = []
    layers_id, wanted = "", 0
    for segment in reversed(shown):
        if segment.last_step < first:
            break
        low = max(first, segment.first_step)
        if not parts:
            newest = layer_blocks.newest(conn, segment.key, low, segment.last_step)
            if newest is None:
                continue
            layers_id, wanted = newest.layers_id, _num_layer_rows(newest.norms.shape[1])
        missing = wanted - sum(len(part.step) for part in parts)
        if missing <= 0:
            break
        rows = layer_blocks.newest_rows(conn, segment.key, layers_id, low, segment.last_step, missing)
        parts += [rows] if rows is not None else []
    if not parts:
        return None
    of_set = (layer_sets.c.run_id == run_id, layer_sets.c.layers_id == layers_id)
    known = conn.execute(select(layer_sets.c.layers, layer_sets.c.num_layers).where(*of_set)).one()
    names = known.layers or [[f"layer {i}"] for i in range(known.num_layers)]
    return LayerNorms(
        np.concatenate([part.step for part in reversed(parts)]),
        tuple(display_name(layer) for layer in names),
        np.concatenate([part.norms for part in reversed(parts)]),
    )


def _num_layer_rows(num_layers: int) -> int:
    rows = min(MAX_LAYER_ROWS, max(MIN_LAYER_ROWS, MAX_LAYER_VALUES // max(num_layers, 1)))
    return max(1, min(rows, MOST_LAYER_VALUES // max(num_layers, 1)))
