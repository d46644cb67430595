"""Retention: old raw steps go, in slices; their rollups, and what happened, stay for good.

The steps that go are sealed first: from then on nothing before that step changes any more. A batch that brings them
again, or late, is taken without them (`sealed`), so that re-sending still changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, bindparam, delete, select

from gradsight_server.store import extents, places, rollup
from gradsight_server.store.database import Database
from gradsight_server.store.expressions import bound_segment, segment_parameters
from gradsight_server.store.extents import AttemptKey, Extent
from gradsight_server.store.models import buckets, layer_blocks, steps
from gradsight_server.store.models import extents as extents_table
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.rollup import FANOUT

MIN_KEPT_STEPS = 2_048
"""So many of the newest steps of an attempt stay, whatever is asked: its state and its diagnosis are told by them."""
SLICE_STEPS = 10_000
TIMEOUT_S = 600.0
DAY_S = 86_400.0

_NTH_NEWEST = Prepared(
    select(steps.c.step).where(bound_segment(steps)).order_by(steps.c.step.desc()).limit(1).offset(bindparam("skip"))
)
_NTH_OLDEST = Prepared(
    select(steps.c.step)
    .where(bound_segment(steps, any_rank=True))
    .order_by(steps.c.step)
    .limit(1)
    .offset(bindparam("skip"))
)
_FIRST_YOUNG = Prepared(
    select(buckets.c.bucket)
    .where(
        buckets.c.run_id == bindparam("of_run"),
        buckets.c.stream_key == bindparam("of_stream"),
        buckets.c.attempt_key == bindparam("of_attempt"),
        buckets.c.level == 1,
        buckets.c.bucket >= bindparam("first_bucket"),
        buckets.c.last_time_s >= bindparam("since_s"),
    )
    .order_by(buckets.c.bucket)
    .limit(1)
)
_DELETE_STEPS = Prepared(delete(steps).where(bound_segment(steps, any_rank=True)))
_DELETE_BLOCKS = Prepared(
    delete(layer_blocks).where(
        layer_blocks.c.run_id == bindparam("of_run"),
        layer_blocks.c.stream_key == bindparam("of_stream"),
        layer_blocks.c.attempt_key == bindparam("of_attempt"),
        layer_blocks.c.block < bindparam("before_block"),
    )
)


@dataclass(frozen=True, slots=True)
class Keep:
    """What of an attempt's raw steps is kept; None keeps all. What one of the two would remove goes."""

    days: float | None = None
    steps: int | None = None


def sweep(database: Database, keep: Keep, *, now_s: float) -> int:
    """Removes the raw steps that need not be kept, slice by slice with others' writes in between.

    Returns:
        How many attempts at a stream it removed steps of.
    """
    if keep == Keep():
        return 0
    with database.reading() as conn:
        due = list(_due(conn, keep, now_s))
    for key in due:
        database.write(partial(_seal, key=key, keep=keep, now_s=now_s)).result(TIMEOUT_S)
        while database.write(partial(_remove_slice, key=key)).result(TIMEOUT_S):
            pass
    return len(due)


def _due(conn: Connection, keep: Keep, now_s: float) -> Iterator[AttemptKey]:
    """Each attempt that has raw steps to remove."""
    for row in conn.execute(select(extents_table)).all():
        key: AttemptKey = (row.run_id, row.stream_key, row.attempt_key)
        extent = Extent(row.first_step, row.last_step, row.sealed_before)
        before = max(extent.sealed_before, _horizon(conn, key, extent, keep, now_s))
        oldest = _NTH_OLDEST.scalar(conn, segment_parameters(*key) | {"skip": 0})
        if oldest is not None and oldest < before:
            yield key


def _horizon(conn: Connection, key: AttemptKey, extent: Extent, keep: Keep, now_s: float) -> int:
    """The first step that stays: the beginning of a bucket, behind which are only closed ones."""
    horizons = [0]
    if keep.steps is not None:
        horizons.append(_before_newest(conn, key, keep.steps))
    if keep.days is not None:
        asked = _named(key) | {"first_bucket": extent.sealed_before // FANOUT, "since_s": now_s - keep.days * DAY_S}
        young: int | None = _FIRST_YOUNG.scalar(conn, asked)
        closed = rollup.num_closed(1, extent.last_step)
        horizons.append(FANOUT * (closed if young is None else young))
    return min(max(horizons), _before_newest(conn, key, MIN_KEPT_STEPS))


def _before_newest(conn: Connection, key: AttemptKey, num_kept: int) -> int:
    """The last beginning of a bucket with so many steps behind it; 0 where there are no more than that."""
    newest_gone: int | None = _NTH_NEWEST.scalar(conn, segment_parameters(*key) | {"skip": num_kept})
    return 0 if newest_gone is None else (newest_gone + 1) // FANOUT * FANOUT


def _seal(conn: Connection, key: AttemptKey, keep: Keep, now_s: float) -> None:
    """Seals what need not be kept by now: since somebody looked, the run may be gone, and be there anew."""
    places.lock(conn, key[0])
    extent = extents.extent_of(conn, key)
    if extent is not None and (before := _horizon(conn, key, extent, keep, now_s)) > extent.sealed_before:
        extents.seal(conn, key, before)


def _remove_slice(conn: Connection, key: AttemptKey) -> bool:
    """Removes some of the sealed steps, the oldest first; whether there are more."""
    extent = extents.extent_of(conn, key)
    if extent is None:
        return False
    before = extent.sealed_before
    next_step: int | None = _NTH_OLDEST.scalar(conn, segment_parameters(*key) | {"skip": SLICE_STEPS})
    bound = before if next_step is None else min(before, next_step + 1)
    _DELETE_STEPS.run(conn, segment_parameters(*key, 0, bound - 1))
    _DELETE_BLOCKS.run(conn, _named(key) | {"before_block": bound // FANOUT})
    return bound < before


def _named(key: AttemptKey) -> dict[str, str | int]:
    return dict(zip(("of_run", "of_stream", "of_attempt"), key, strict=True))
