"""A run's newest verdict, kept with the run; what is news in it becomes an event, once."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select, update

from gradsight_server.store import attempts, statements
from gradsight_server.store.models import runs, streams
from gradsight_server.store.pending import pending_of

EVENT_KIND = "verdict"


@dataclass(frozen=True, slots=True)
class News:
    """What an event says of a stream."""

    stream: str
    step: int | None
    message: str


@dataclass(frozen=True, slots=True)
class Kept:
    """What the run's row holds of its verdict."""

    verdict: dict[str, Any]
    severity: int


def kept_verdict(conn: Connection, run_id: str) -> Kept | None:
    """The newest verdict; None where the run was never judged or is gone."""
    row = conn.execute(select(runs.c.verdict, runs.c.severity).where(runs.c.run_id == run_id)).one_or_none()
    return None if row is None or row.verdict is None else Kept(row.verdict, row.severity or 0)


def keep_verdict(
    conn: Connection,
    run_id: str,
    judge: Callable[[Kept | None], tuple[Kept, Sequence[News]]],
    *,
    now_s: float,
) -> bool:
    """Puts a verdict in the place of the one that is there, with an event for each news; whether it changed.

    Args:
        judge: from what is kept to what is to be kept, and what is news in it. It is asked with the run locked: of two
            servers that judge a run at once, the second finds what the first has kept.
    """
    row = conn.execute(
        select(runs.c.verdict, runs.c.severity).where(runs.c.run_id == run_id).with_for_update()
    ).one_or_none()
    if row is None:
        return False
    before = None if row.verdict is None else Kept(row.verdict, row.severity or 0)
    after, news = judge(before)
    if after == before:
        return False
    conn.execute(update(runs).where(runs.c.run_id == run_id).values(verdict=after.verdict, severity=after.severity))
    _write_events(conn, run_id, news, now_s)
    pending_of(conn).tell(run_id, "run", now_s=now_s)
    return True


def newest_runs(conn: Connection, *, limit: int) -> list[str]:
    """The runs that trained last, newest first: while no server was there, nobody judged them."""
    query = select(runs.c.run_id).where(runs.c.last_step_at_s.is_not(None))
    return list(conn.scalars(query.order_by(runs.c.last_step_at_s.desc()).limit(limit)))


def _write_events(conn: Connection, run_id: str, news: Sequence[News], now_s: float) -> None:
    launches = attempts.in_order(conn, run_id)
    query = select(streams.c.stream, streams.c.stream_key).where(streams.c.run_id == run_id)
    keys = {row.stream: row.stream_key for row in conn.execute(query)}
    rows: statements.Rows = []
    for item in news:
        if item.stream in keys and launches:
            said = (EVENT_KIND, item.stream, item.step, item.message, now_s)
            event_id = hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()
            where = (run_id, event_id, keys[item.stream], launches[-1].attempt_key)
            rows.append((*where, EVENT_KIND, item.step, now_s, item.message))
    if rows:
        statements.insert_events(conn, rows)
