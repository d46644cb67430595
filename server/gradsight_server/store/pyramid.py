"""Keeps the pyramid right: closed buckets whose steps have changed are computed anew, from the level below.

Called once for each attempt at a stream before a transaction commits, however many batches it took in. The run is
locked by then (`places.find`), so nobody else writes what is read here.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Table, bindparam, delete, select

from gradsight import wire
from gradsight_server.store import histogram, layer_blocks, layer_rollup, rollup, statements
from gradsight_server.store.expressions import bound_segment, segment_parameters
from gradsight_server.store.extents import AttemptKey, Extent, extent_of
from gradsight_server.store.histogram import Histogram
from gradsight_server.store.layer_blocks import CHUNK_BYTES
from gradsight_server.store.layer_rollup import LayerBuckets
from gradsight_server.store.models import bucket_blobs, buckets, nonfinite_shift, steps
from gradsight_server.store.models import layer_blocks as layer_blocks_table
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.rollup import BUCKET_COLUMNS, COLUMNS, FANOUT, NORM, Buckets, Steps

HISTOGRAM, LAYERS = "histogram", "layers"
MAX_BUCKETS_AT_ONCE = 32

Integers = NDArray[np.int64]

_SHIFTS = np.array([nonfinite_shift(name) for name in wire.FLOAT_COLUMNS])
_STEPS = Prepared(
    select(steps.c.step, steps.c.wall_time_s, steps.c.skipped, steps.c.nonfinite, *(steps.c[name] for name in COLUMNS))
    .where(bound_segment(steps))
    .order_by(steps.c.step)
)


def _of_attempt(table: Table) -> tuple[ColumnElement[bool], ...]:
    return (
        table.c.run_id == bindparam("of_run"),
        table.c.stream_key == bindparam("of_stream"),
        table.c.attempt_key == bindparam("of_attempt"),
    )


def _in_range(table: Table) -> tuple[ColumnElement[bool], ...]:
    return (
        *_of_attempt(table),
        table.c.level == bindparam("at_level"),
        table.c.bucket.between(bindparam("first_bucket"), bindparam("last_bucket")),
    )


_BUCKETS = Prepared(
    select(*(buckets.c[name] for name in BUCKET_COLUMNS)).where(*_in_range(buckets)).order_by(buckets.c.bucket)
)
_STEP_BUCKETS = Prepared(select(steps.c.step // FANOUT).where(*_of_attempt(steps), steps.c.rank == 0).distinct())
_BLOCKS = Prepared(select(layer_blocks_table.c.block).where(*_of_attempt(layer_blocks_table)).distinct())
_IN_BLOB_RANGE = (*_in_range(bucket_blobs), bucket_blobs.c.kind == bindparam("of_kind"))
_BLOBS = Prepared(
    select(bucket_blobs.c.bucket, bucket_blobs.c.layers_id, bucket_blobs.c.blob)
    .where(*_IN_BLOB_RANGE)
    .order_by(bucket_blobs.c.bucket)
)
_DELETE_BLOBS = Prepared(delete(bucket_blobs).where(*_IN_BLOB_RANGE))


def roll_up(conn: Connection, key: AttemptKey, touched: Integers, *, last_before: int | None, extent: Extent) -> None:
    """Computes the buckets anew that are closed now and whose steps have changed, or that were not closed before.

    Args:
        touched: the steps that were written.
        last_before: the attempt's newest step before they were, if it had any.
    """
    num_closed = 0 if last_before is None else rollup.num_closed(1, last_before)
    if num_closed == rollup.num_closed(1, extent.last_step) and touched.min() >= num_closed * FANOUT:
        return  # all in the newest bucket, which is still open
    dirty = np.unique(touched if last_before is None else np.append(touched, last_before)) // FANOUT
    dirty = np.unique(dirty[dirty >= extent.sealed_before // FANOUT])
    level = 1
    while True:
        dirty = dirty[dirty < rollup.num_closed(level, extent.last_step)]
        if not len(dirty):
            return
        num_there = 0 if last_before is None else rollup.num_closed(level, last_before)
        for first, last in _runs(dirty):
            if first < num_there:
                _clear_blobs(conn, key, level, first, min(last, num_there - 1))
            if level == 1:
                _from_steps(conn, key, first, last)
            else:
                _from_buckets(conn, key, level, first, last)
        dirty = np.unique(dirty // FANOUT)
        level += 1


def rebuild(conn: Connection, key: AttemptKey) -> None:
    """Computes all buckets of an attempt anew that are not sealed: after steps were written past `ingest`."""
    extent = extent_of(conn, key)
    if extent is None:
        return
    known = [np.array(query.rows(conn, _named(key)), dtype=np.int64).ravel() for query in (_STEP_BUCKETS, _BLOCKS)]
    roll_up(conn, key, FANOUT * np.concatenate(known), last_before=extent.last_step, extent=extent)


def read_buckets(conn: Connection, key: AttemptKey, level: int, first: int, last: int) -> Buckets | None:
    """The buckets that have steps, from the first to the last of a level; None where none has."""
    rows = _BUCKETS.rows(conn, _range(key, level, first, last))
    return Buckets.of_rows(rows) if rows else None


def read_histograms(
    conn: Connection, key: AttemptKey, level: int, first: int, last: int
) -> list[tuple[int, Histogram]]:
    """(bucket, histogram of its finite norms) by rising bucket."""
    rows = _BLOBS.rows(conn, _range(key, level, first, last) | {"of_kind": HISTOGRAM})
    return [(bucket, Histogram.from_bytes(blob)) for bucket, _, blob in rows]


def read_layer_blobs(
    conn: Connection, key: AttemptKey, level: int, first: int, last: int
) -> Iterator[tuple[str, list[int], list[bytes]]]:
    """(layers_id, buckets, their blobs for `layer_rollup`) in chunks, the buckets of each set of layers rising."""
    asked = _range(key, level, first, last) | {"of_kind": LAYERS}
    for chunk in _BLOBS.chunks(conn, asked, lambda row: 1 + CHUNK_BYTES // len(row[2])):
        by_layers: dict[str, tuple[list[int], list[bytes]]] = {}
        for bucket, layers_id, blob in chunk:
            numbers, blobs = by_layers.setdefault(layers_id, ([], []))
            numbers.append(bucket)
            blobs.append(blob)
        for layers_id, found in by_layers.items():
            yield layers_id, *found


def read_steps(conn: Connection, key: AttemptKey, first_step: int, last_step: int) -> Steps | None:
    """Rank 0's steps between two, both included; None where there are none."""
    rows = _STEPS.rows(conn, segment_parameters(*key, first_step, last_step))
    if not rows:
        return None
    table = np.array(rows, dtype=np.float64)  # NULL becomes NaN
    mask = table[:, 3].astype(np.int64)
    return Steps(
        step=table[:, 0].astype(np.int64),
        time_s=table[:, 1],
        is_skipped=table[:, 2] == 1,
        values=table[:, 4:],
        is_nonfinite=(mask[:, None] >> _SHIFTS & 3) != 0,
    )


def _from_steps(conn: Connection, key: AttemptKey, first: int, last: int) -> None:
    bounds = (first * FANOUT, last * FANOUT + FANOUT - 1)
    found = read_steps(conn, key, *bounds)
    if found is not None:
        _write_buckets(conn, key, 1, rollup.of_steps(found))
        numbers = found.step // FANOUT
        starts = rollup.starts_of(numbers)
        parts = np.split(found.values[:, NORM], starts[1:])
        histograms = [(int(numbers[i]), histogram.of_values(part)) for i, part in zip(starts, parts, strict=True)]
        _write_histograms(conn, key, 1, histograms)
    layer_blocks.trim(conn, key, first, last)
    for rows in layer_blocks.read(conn, key, *bounds):
        _write_layers(conn, key, 1, rows.layers_id, layer_rollup.of_rows(rows.step, rows.norms))


def _from_buckets(conn: Connection, key: AttemptKey, level: int, first: int, last: int) -> None:
    below = (level - 1, first * FANOUT, last * FANOUT + FANOUT - 1)
    children = read_buckets(conn, key, *below)
    if children is not None:
        _write_buckets(conn, key, level, rollup.of_buckets(children))
        of_parent: dict[int, list[Histogram]] = {}
        for bucket, part in read_histograms(conn, key, *below):
            of_parent.setdefault(bucket // FANOUT, []).append(part)
        merged = [(bucket, histogram.merged(parts)) for bucket, parts in of_parent.items()]
        _write_histograms(conn, key, level, merged)
    by_layers: dict[str, tuple[list[int], list[bytes]]] = {}
    for layers_id, numbers, blobs in read_layer_blobs(conn, key, *below):
        all_numbers, all_blobs = by_layers.setdefault(layers_id, ([], []))
        all_numbers += numbers
        all_blobs += blobs
    for layers_id, found in by_layers.items():
        _write_layers(conn, key, level, layers_id, layer_rollup.of_blobs(level - 1, *found).merged())


def _write_buckets(conn: Connection, key: AttemptKey, level: int, found: Buckets) -> None:
    statements.upsert_buckets(conn, [(*key, level, *row) for row in found.rows()])


def _write_histograms(conn: Connection, key: AttemptKey, level: int, found: Iterable[tuple[int, Histogram]]) -> None:
    rows = [(*key, HISTOGRAM, level, bucket, "", part.to_bytes()) for bucket, part in found if len(part.bins)]
    if rows:
        statements.upsert_bucket_blobs(conn, rows)


def _write_layers(conn: Connection, key: AttemptKey, level: int, layers_id: str, found: LayerBuckets) -> None:
    pairs = zip(found.peaks.bucket.tolist(), found.blobs(level), strict=True)
    statements.upsert_bucket_blobs(conn, [(*key, LAYERS, level, bucket, layers_id, blob) for bucket, blob in pairs])


def _clear_blobs(conn: Connection, key: AttemptKey, level: int, first: int, last: int) -> None:
    """A norm may have been taken back, or a step's layers be of another set: what is computed anew begins empty."""
    for kind in (HISTOGRAM, LAYERS):
        _DELETE_BLOBS.run(conn, _range(key, level, first, last) | {"of_kind": kind})


def _runs(numbers: Integers) -> Iterator[tuple[int, int]]:
    """Ranges of neighbouring buckets, short enough to be held in memory."""
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
        for i in range(0, len(run), MAX_BUCKETS_AT_ONCE):
            part = run[i : i + MAX_BUCKETS_AT_ONCE]
            yield int(part[0]), int(part[-1])


def _range(key: AttemptKey, level: int, first: int, last: int) -> dict[str, Any]:
    return _named(key) | {"at_level": level, "first_bucket": first, "last_bucket": last}


def _named(key: AttemptKey) -> dict[str, Any]:
    return dict(zip(("of_run", "of_stream", "of_attempt"), key, strict=True))
