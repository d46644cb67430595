"""A batch becomes rows in the caller's transaction; the same batch again changes nothing.

What can be done once for all batches of a transaction (rollups, counters, ticks) is left to its end: see `pending`.
"""

import hashlib
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, func, select, update

from gradsight import wire
from gradsight.errors import WireError
from gradsight_server.alerts.columns import Columns
from gradsight_server.store import attempts, control, counters, extents, layer_ingest, places, statements
from gradsight_server.store.alerting import Taken
from gradsight_server.store.expressions import bound_segment, nonfinite_code, segment_parameters
from gradsight_server.store.extents import Extent
from gradsight_server.store.judged import judged_columns
from gradsight_server.store.models import attempts as attempts_table
from gradsight_server.store.models import events, nonfinite_shift, runs, steps
from gradsight_server.store.pending import Change, pending_of
from gradsight_server.store.places import Place
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.sealed import without_sealed
from gradsight_server.store.summaries import SILENT_AFTER_S

NORM = "grad_norm_before_clip"
IMPORTED = "import-"
"""Launches that importers make of logs."""
MIN_SILENCE_S = 1.0
"""No rule takes less for silence."""
END_KINDS = ("finished", "failed")

Integers = NDArray[np.int64]

_LAST_STEP = Prepared(select(func.max(steps.c.step)).where(bound_segment(steps, any_rank=True)))
_DATE = Prepared(
    update(steps)
    .where(bound_segment(steps, any_rank=True), steps.c.wall_time_s.is_(None))
    .values(wall_time_s=bindparam("now_s"))
)
_NOTE_LOSSES = Prepared(
    update(attempts_table)
    .where(attempts_table.c.run_id == bindparam("of_run"), attempts_table.c.attempt_key == bindparam("of_attempt"))
    .values(dropped=bindparam("lost"), sequences=bindparam("following"))
)
_OF_RUN = runs.c.run_id == bindparam("of_run")
_SEEN = Prepared(update(runs).where(_OF_RUN).values(last_seen_s=bindparam("now_s")))
_STEPPED = Prepared(
    update(runs).where(_OF_RUN).values(last_seen_s=bindparam("now_s"), last_step_at_s=bindparam("now_s"))
)


def ingest(
    conn: Connection, run_id: str, stream: str, batch: wire.Batch, *, now_s: float, flush_after_s: float = 0.25
) -> wire.Answer:
    """Takes a batch in and answers it. Steps that retention has sealed are left out, and not among those accepted.

    Raises:
        RunNotFoundError: runs are created by PUT.
        WireError: `layer_norms` does not fit its layers, or a norm is negative; nothing is stored then.
    """
    place = places.find(conn, run_id, stream, batch, now_s=now_s)
    if place.extent is not None:
        batch = without_sealed(batch, place.extent.sealed_before)
    layer_rank = _layer_ranks(batch)
    layers_needed = layer_ingest.take_in(conn, place, batch, layer_rank)
    counted = _of_rank_0(batch.step, None if batch.rank is UNSET else batch.rank)
    moved, judged = _write_steps(conn, place, batch, counted, now_s) if batch.step else (counters.NOTHING, None)
    _write_metrics(conn, place, batch)
    num_events = _write_events(conn, place, stream, batch, now_s)
    if place.has_wishes:
        control.settle(conn, place.run_id, batch.events, now_s=now_s)
    num_lost = _note_losses(conn, place, batch)
    ends = _touch_run(conn, place, batch, now_s)
    answer = wire.Answer(
        accepted_steps=len(batch.step),
        last_step=_last_step(conn, place),
        flush_after_s=flush_after_s,
        layers_needed=layers_needed,
        control=control.wishes_for(conn, place) if place.has_wishes else [],
    )
    if batch.step or batch.layer_step:
        touched = np.concatenate((counted, _of_rank_0(batch.layer_step, layer_rank)))
        extent = _reach(conn, place, touched)
        told = batch.step or batch.layer_step
        change = Change(place.extent, extent, touched, moved, min(told), max(told), now_s)
        pending_of(conn).add(place.key, change)
    elif place.is_new or num_events or batch.metrics or num_lost or now_s - place.last_seen_s > SILENT_AFTER_S:
        pending_of(conn).tell(run_id, "run", now_s=now_s)
    quiet_s = 0.0 if place.last_step_at_s is None or not batch.step else now_s - place.last_step_at_s
    pending_of(conn).judge(
        Taken(
            key=place.key,
            columns=judged,
            num_lost=num_lost,
            ends=ends,
            is_back=quiet_s > MIN_SILENCE_S,
            alerted_at_s=place.alerted_at_s,
            is_imported=batch.attempt_id.startswith(IMPORTED),
            answer=answer,
            now_s=now_s,
        )
    )
    return answer


def _layer_ranks(batch: wire.Batch) -> list[int]:
    """Who recorded each layer step: the rank that recorded the step in this batch."""
    if batch.rank is UNSET or not batch.rank:
        return [0] * len(batch.layer_step)
    of_step = dict(zip(batch.step, batch.rank, strict=True))
    return [of_step.get(step, batch.rank[0]) for step in batch.layer_step]


def _of_rank_0(step: list[int], rank: list[int] | None) -> Integers:
    numbers = np.array(step, dtype=np.int64)
    return numbers if rank is None else numbers[np.array(rank, dtype=np.int64) == 0]


def _reach(conn: Connection, place: Place, touched: Integers) -> Extent | None:
    if not len(touched):
        return place.extent
    return extents.reach(conn, place.key, place.extent, int(touched.min()), int(touched.max()))


def _write_steps(
    conn: Connection, place: Place, batch: wire.Batch, counted: Integers, now_s: float
) -> tuple[Integers, Columns]:
    """How much it moves the counters, and what alert rules look at."""
    ranges = counters.spans(counted)
    is_new = len(counted) == 0 or place.extent is None or counted.min() > place.extent.last_step
    before = counters.NOTHING if is_new else counters.count(conn, place.key, ranges)
    columns, masks = _upsert_steps(conn, place, batch)
    judged = judged_columns(batch, columns, masks)
    times = batch.wall_time_s
    if times is UNSET or None in times:
        for bounds in counters.spans(batch.step):
            _DATE.run(conn, segment_parameters(*place.key, *bounds) | {"now_s": now_s})
    if is_new and len(set(batch.step)) == len(counted) == len(batch.step):
        return counters.count_new(columns, masks), judged
    return counters.count(conn, place.key, ranges) - before, judged


def _upsert_steps(conn: Connection, place: Place, batch: wire.Batch) -> tuple[dict[str, list[Any]], list[int]]:
    """The columns and each row's `nonfinite`, as they are stored."""
    columns, masks = _without_nonfinite(batch.columns, len(batch.step))
    ranks = repeat(0) if batch.rank is UNSET else batch.rank
    times = repeat(None) if batch.wall_time_s is UNSET else batch.wall_time_s
    rows = list(zip(*map(repeat, place.key), batch.step, ranks, times, *columns.values(), masks, strict=False))
    statements.upsert_steps(conn, tuple(columns), rows)
    return columns, masks


def _without_nonfinite(columns: dict[str, list[Any]], num_rows: int) -> tuple[dict[str, list[Any]], list[int]]:
    """The columns with None for what is not finite, and each row's `nonfinite`."""
    masks = [0] * num_rows
    names = [name for name in columns if name in wire.FLOAT_COLUMNS]
    table = np.array([columns[name] for name in names], dtype=np.float64)  # reads the wire's words too; None is NaN
    if NORM in columns:
        _check_sign(table[names.index(NORM)])
    is_odd = ~np.isfinite(table)
    if not is_odd.any():
        return columns, masks
    columns = columns | {name: list(columns[name]) for name in names}
    for row, i in np.argwhere(is_odd).tolist():
        values = columns[names[row]]
        if values[i] is not None:
            values[i] = None
            masks[i] |= nonfinite_code(float(table[row, i])) << nonfinite_shift(names[row])
    return columns, masks


def _check_sign(norms: NDArray[np.float64]) -> None:
    negative = np.flatnonzero(norms < 0)
    if len(negative):
        i = int(negative[0])
        raise WireError(f"{NORM}[{i}] must not be negative, got {float(norms[i])!r}: it is a norm", field=NORM)


def _write_metrics(conn: Connection, place: Place, batch: wire.Batch) -> None:
    rows = []
    for metric in batch.metrics:
        value = float(metric.value)
        code = nonfinite_code(value)
        rows.append((*place.key, metric.name, metric.step, None if code else value, code))
    if rows:
        statements.upsert_metrics(conn, rows)


def _write_events(conn: Connection, place: Place, stream: str, batch: wire.Batch, now_s: float) -> int:
    rows: statements.Rows = []
    for event in batch.events:
        sent = (stream, batch.attempt_id, event.kind, event.step, event.wall_time_s, event.message)
        event_id = hashlib.blake2b(repr(sent).encode(), digest_size=8).hexdigest()
        time_s = now_s if event.wall_time_s is None else event.wall_time_s
        where = (place.run_id, event_id, place.stream_key, place.attempt_key)
        rows.append((*where, event.kind, event.step, time_s, event.message))
    return statements.insert_events(conn, rows) if rows else 0


def _note_losses(conn: Connection, place: Place, batch: wire.Batch) -> int | None:
    """Keeps what this process says it lost, and how many rows it counts, as running maxima.

    Returns:
        How many rows the attempt has lost by now, where that is news.
    """
    rank = str(batch.rank[0] if batch.rank is not UNSET and batch.rank else 0)
    dropped = _raised(place.dropped, rank, batch.dropped)
    following = {} if batch.sequence is None else {rank: batch.sequence + len(batch.step)}
    sequences = _raised(place.sequences, str(place.stream_key), following)
    if dropped != place.dropped or sequences != place.sequences:
        texts = {"lost": msgspec.json.encode(dropped).decode(), "following": msgspec.json.encode(sequences).decode()}
        _NOTE_LOSSES.run(conn, {"of_run": place.run_id, "of_attempt": place.attempt_key, **texts})
    if dropped == place.dropped:
        return None
    return sum(lost for reasons in dropped.values() for lost in reasons.values())


def _raised(known: dict[str, dict[str, int]], owner: str, numbers: dict[str, int]) -> dict[str, dict[str, int]]:
    if not numbers:
        return known
    mine = known.get(owner, {})
    return known | {owner: mine | {name: max(value, mine.get(name, 0)) for name, value in numbers.items()}}


def _touch_run(conn: Connection, place: Place, batch: wire.Batch, now_s: float) -> str | None:
    """The run's status, where the batch ended it."""
    (_STEPPED if batch.step else _SEEN).run(conn, {"of_run": place.run_id, "now_s": now_s})
    ends = any(event.kind in END_KINDS for event in batch.events)
    if ends or (batch.step and place.status != "running"):
        status = _status(conn, place.run_id)
        conn.execute(update(runs).where(runs.c.run_id == place.run_id).values(status=status))
        return status if ends else None
    return None


def _status(conn: Connection, run_id: str) -> str:
    """How the attempt that started last ended; running while it has not."""
    newest = attempts.in_order(conn, run_id)[-1].attempt_key
    of_end = (events.c.run_id == run_id, events.c.attempt_key == newest, events.c.kind.in_(END_KINDS))
    order = (events.c.wall_time_s.desc(), events.c.event_id)
    return conn.scalar(select(events.c.kind).where(*of_end).order_by(*order).limit(1)) or "running"


def _last_step(conn: Connection, place: Place) -> int | None:
    last_step: int | None = _LAST_STEP.scalar(conn, segment_parameters(*place.key))
    return last_step
