"""Sparklines: the norm and its threshold of a whole run in at most 64 points, kept ready for lists."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from gradsight_server.store.database import Database
from gradsight_server.store.models import runs, sparklines, streams
from gradsight_server.store.series import series
from gradsight_server.store.summaries import shown_stream

POINTS = 64
DIGITS = 4
"""A line a few pixels high needs no more."""
MIN_AGE_S = 10.0
"""A run in training is drawn anew only so often."""
MAX_AT_ONCE = 100
TIMEOUT_S = 600.0


def sparklines_of(conn: Connection, run_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Run id → its points, of those that have been drawn."""
    rows = conn.execute(select(sparklines.c.run_id, sparklines.c.points).where(sparklines.c.run_id.in_(run_ids)))
    return {row.run_id: row.points for row in rows}


def refresh(database: Database, *, now_s: float) -> int:
    """Draws what has changed since it was drawn, the newest first and not all at once; how many."""
    with database.reading() as conn:
        drawn = {run_id: draw(conn, run_id) for run_id in due(conn, now_s=now_s)}
    if drawn:
        database.write(lambda conn: _keep(conn, drawn, now_s)).result(TIMEOUT_S)
    return len(drawn)


def due(conn: Connection, *, now_s: float) -> list[str]:
    """The runs with steps newer than their sparkline."""
    is_due = or_(
        sparklines.c.updated_at_s.is_(None),
        (sparklines.c.updated_at_s <= runs.c.last_step_at_s) & (sparklines.c.updated_at_s <= now_s - MIN_AGE_S),
    )
    query = select(runs.c.run_id).outerjoin(sparklines, sparklines.c.run_id == runs.c.run_id)
    query = query.where(runs.c.last_step_at_s.is_not(None), is_due).order_by(runs.c.last_step_at_s.desc())
    return list(conn.scalars(query.limit(MAX_AT_ONCE)))


def draw(conn: Connection, run_id: str) -> dict[str, Any]:
    """The norm before clipping (the largest finite one of each point), its threshold, and where it was not finite; of
    the steps counted, those that a later attempt has taken the place of."""
    query = select(*streams.c).where(streams.c.run_id == run_id).order_by(streams.c.stream_key)
    of_stream = shown_stream(conn.execute(query).all())
    stream = "main" if of_stream is None else of_stream.stream
    found = series(conn, run_id, stream=stream, columns=("grad_norm_before_clip", "max_norm"), points=POINTS)
    norm, threshold = found.columns["grad_norm_before_clip"], found.columns["max_norm"]
    return {
        "step": found.step.tolist(),
        "norm": _short(norm.max),
        "max_norm": _short(threshold.mean),
        "num_nonfinite": norm.num_nonfinite.tolist(),
        "num_replaced": _left_out(of_stream, "num_steps", found.num_steps),
        "num_replaced_clipped": _left_out(of_stream, "num_clipped", found.num_clipped),
    }


def _left_out(of_stream: Row[Any] | None, name: str, shown: NDArray[np.int64]) -> int:
    return max(0, getattr(of_stream, name, 0) - int(shown.sum()))


def _short(values: NDArray[np.float64]) -> list[float | None]:
    return [float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None for value in values.tolist()]


def _keep(conn: Connection, drawn: dict[str, dict[str, Any]], now_s: float) -> None:
    insert = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    still_there = [run_id for run_id in sorted(drawn) if _lock(conn, run_id)]
    rows = [{"run_id": run_id, "points": drawn[run_id], "updated_at_s": now_s} for run_id in still_there]
    if rows:
        query = insert(sparklines)
        changed = {name: query.excluded[name] for name in ("points", "updated_at_s")}
        conn.execute(query.on_conflict_do_update(index_elements=["run_id"], set_=changed), rows)


def _lock(conn: Connection, run_id: str) -> bool:
    """Keeps a run from being deleted meanwhile; whether it is there. One by one: a distributed database locks the rows
    of one node at a time only."""
    query = select(runs.c.run_id).where(runs.c.run_id == run_id).with_for_update(read=True, key_share=True)
    return conn.scalar(query) is not None
