"""Ticks: what changed, in the order it was committed, for live streams to follow and resume."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, delete, func, select

from gradsight import wire
from gradsight_server.store import attempts, layer_blocks, views
from gradsight_server.store.expressions import (
    IS_CLIPPED,
    IS_SKIPPED,
    as_int,
    bound_segment,
    is_nonfinite,
    segment_parameters,
)
from gradsight_server.store.models import steps, streams, ticks
from gradsight_server.store.prepared import execute
from gradsight_server.store.statements import insert_ticks
from gradsight_server.store.summaries import run_summary

Kind = Literal["steps", "run", "deleted", "alert"]
AlertChange = Literal["opened", "reminded", "repeated", "acknowledged", "resolved"]
KEPT_S = 3600.0
KEPT_TICKS = 200_000
POSITION_LOCK = 0x7469_636B  # the key of PostgreSQL's advisory lock, any constant of our own


class News(NamedTuple):
    """A tick before it has its position."""

    run_id: str
    kind: Kind
    stream_key: int | None = None
    attempt_key: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    now_s: float = 0.0
    alert_id: int | None = None
    change: AlertChange | None = None


@dataclass(frozen=True, slots=True)
class Tick:
    """One change: steps that came, a run that changed, one that was deleted, or an alert that changed."""

    position: int
    run_id: str
    kind: Kind
    stream_key: int | None
    attempt_key: int | None
    first_step: int | None
    last_step: int | None
    created_at_s: float
    alert_id: int | None
    change: AlertChange | None

    @property
    def segment(self) -> dict[str, Any]:
        """What binds a `bound_segment` to the steps that came."""
        where = (self.stream_key, self.attempt_key, self.first_step, self.last_step)
        return segment_parameters(self.run_id, *where)  # type: ignore[arg-type]  # of kind `steps`: all there


def append(conn: Connection, news: Sequence[News]) -> None:
    """Notes changes at the next positions. Others wait for this transaction's end, so it should be close."""
    if not news:
        return
    if conn.dialect.name == "postgresql":  # SQLite's one writer is that lock
        execute(conn, f"SELECT pg_advisory_xact_lock({POSITION_LOCK})")
    insert_ticks(conn, list(news))


def prune(conn: Connection, *, now_s: float) -> None:
    """Takes away what nobody needs to resume at; the newest tick stays, so that positions go on from it."""
    newest = latest_position(conn)
    old = (ticks.c.position <= newest - KEPT_TICKS) | (ticks.c.created_at_s < now_s - KEPT_S)
    conn.execute(delete(ticks).where(old, ticks.c.position < newest))


def latest_position(conn: Connection) -> int:
    """The position of the newest tick; 0 before the first."""
    return conn.scalar(select(func.max(ticks.c.position))) or 0


def oldest_position(conn: Connection) -> int:
    """The position of the oldest tick still kept; who has read less than the one before it has lost some."""
    return conn.scalar(select(func.min(ticks.c.position))) or 0


def ticks_after(conn: Connection, position: int, *, limit: int) -> list[Tick]:
    """The next ticks after a position, oldest first."""
    rows = conn.execute(select(ticks).where(ticks.c.position > position).order_by(ticks.c.position).limit(limit))
    return [Tick(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a tick's steps stand in what a chart shows of their stream."""

    is_shown: bool
    is_alone: bool
    """From the tick's first step on no other attempt is shown."""
    newest_step: int | None
    """The newest step of the tick's own attempt."""


def standing(conn: Connection, tick: Tick) -> Standing:
    """Where the steps of a tick stand by now."""
    assert tick.stream_key is not None
    assert tick.attempt_key is not None
    assert tick.first_step is not None
    run_id, first, last = tick.run_id, tick.first_step, wire.MAX_STEP
    shown = views.segments(conn, run_id, tick.stream_key, attempt=None, low=first, high=last)
    keys = [segment.attempt_key for segment in shown]
    whole = segment_parameters(run_id, tick.stream_key, tick.attempt_key)
    newest = views.edge_step(conn, steps, whole, newest=True)
    return Standing(tick.attempt_key in keys, keys == [tick.attempt_key], newest)


def tick_payload(conn: Connection, tick: Tick, *, now_s: float) -> dict[str, Any]:
    """What a live stream sends of a tick: the new points, and the run in brief.

    Raises:
        RunNotFoundError: the run is gone by now.
    """
    payload: dict[str, Any] = {"run_id": tick.run_id, "stream": None, "attempt": None, "steps": None, "layers": None}
    if tick.kind == "steps":
        segment = tick.segment
        of_stream = (streams.c.run_id == tick.run_id, streams.c.stream_key == tick.stream_key)
        payload |= {
            "stream": conn.scalar(select(streams.c.stream).where(*of_stream)),
            "attempt": attempts.numbers(conn, tick.run_id).get(tick.attempt_key or 0),
            "steps": _new_steps(conn, segment),
            "layers": _newest_layers(conn, tick),
        }
    return payload | {"summary": run_summary(conn, tick.run_id, now_s=now_s)}


def _new_steps(conn: Connection, segment: dict[str, Any]) -> dict[str, list[Any]]:
    """Every number of the new steps, a list per column; null where not recorded or not finite."""
    numbers = {name: steps.c[name] for name in ("step", *wire.FLOAT_COLUMNS)}
    flags = {
        "skipped": as_int(IS_SKIPPED),
        "clipped": as_int(IS_CLIPPED),
        "nonfinite": as_int(is_nonfinite("grad_norm_before_clip")),
    }
    query = select(*numbers.values(), *flags.values()).where(bound_segment(steps)).order_by(steps.c.step)
    rows = conn.execute(query, segment).all()
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in (*numbers, *flags)]
    named = dict(zip((*numbers, *flags), columns, strict=True))
    return named | {name: [bool(flag) for flag in named[name]] for name in flags}


def _newest_layers(conn: Connection, tick: Tick) -> dict[str, Any] | None:
    key = (tick.run_id, tick.stream_key or 0, tick.attempt_key or 0)
    found = layer_blocks.newest(conn, key, tick.first_step or 0, tick.last_step or 0)
    if found is None:
        return None
    norms = base64.b64encode(found.norms.tobytes()).decode()
    return {"layers_id": found.layers_id, "step": int(found.step[0]), "norms": norms}
