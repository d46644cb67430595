"""Rows of alerts, and what goes with a change of one: a tick for the page, a message for those who want to be told.

Whoever writes here holds the run's lock, so ids are given out once and a state is never overwritten by an older one.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

from sqlalchemy import Connection, case, func, insert, select, update

from gradsight_server.store import attempts
from gradsight_server.store.models import alerts, outbox, runs, streams
from gradsight_server.store.ticks import AlertChange, News

TOLD: tuple[AlertChange, ...] = ("opened", "reminded")
"""Changes that go out as messages."""


class Message(NamedTuple):
    """A row of the outbox before it has its place."""

    run_id: str
    project: str
    severity: str
    payload: dict[str, Any]
    created_at_s: float


def id_giver(conn: Connection, run_id: str) -> Callable[[], int]:
    """Gives the run's next alert ids; asks the database at the first."""
    ids: list[count[int]] = []

    def give() -> int:
        if not ids:
            newest = conn.scalar(select(func.max(alerts.c.alert_id)).where(alerts.c.run_id == run_id))
            ids.append(count(1 if newest is None else newest + 1))
        return next(ids[0])

    return give


def write(conn: Connection, run_id: str, alert_id: int, columns: dict[str, Any], *, now_s: float) -> None:
    """Writes columns of an alert: a new one where its `kind` is among them.

    `is_open` stands for the state: an alert that opens again stays acknowledged where somebody has seen to it.
    """
    columns = dict(columns)
    is_open = columns.pop("is_open", None)
    if is_open is not None:
        seen_to = alerts.c.acknowledged_at_s.is_not(None)
        columns["state"] = case((seen_to, "acknowledged"), else_="open") if is_open else "resolved"
        columns["resolved_at_s"] = None if is_open else now_s
    columns["updated_at_s"] = now_s
    if "kind" in columns:
        row = {"run_id": run_id, "alert_id": alert_id, "opened_at_s": now_s, "state": "open"}
        conn.execute(insert(alerts).values(columns | row | ({} if is_open else {"state": "resolved"})))
    else:
        conn.execute(update(alerts).where(alerts.c.run_id == run_id, alerts.c.alert_id == alert_id).values(columns))


def close(conn: Connection, run_id: str, *, now_s: float, but: Iterable[Any] = (), **equals: Any) -> list[News]:
    """Resolves the run's alerts whose columns equal these; the news of it.

    Args:
        but: further conditions.
    """
    conditions = [alerts.c[name] == value for name, value in equals.items()]
    of_these = (alerts.c.run_id == run_id, alerts.c.state != "resolved", *conditions, *but)
    query = select(alerts.c.alert_id, alerts.c.stream_key, alerts.c.attempt_key).where(*of_these)
    found = conn.execute(query.order_by(alerts.c.alert_id)).all()
    if found:
        ids = [row.alert_id for row in found]
        of_found = (alerts.c.run_id == run_id, alerts.c.alert_id.in_(ids))
        ended = {"state": "resolved", "resolved_at_s": now_s, "updated_at_s": now_s}
        conn.execute(update(alerts).where(*of_found).values(ended))
    return [news(run_id, row.alert_id, "resolved", row.stream_key, row.attempt_key, now_s=now_s) for row in found]


def news(
    run_id: str,
    alert_id: int,
    change: AlertChange,
    stream_key: int | None = None,
    attempt_key: int | None = None,
    *,
    now_s: float,
) -> News:
    """What tells live streams of an alert's change."""
    return News(run_id, "alert", stream_key, attempt_key, now_s=now_s, alert_id=alert_id, change=change)


def message_of(conn: Connection, run_id: str, alert_id: int, change: AlertChange, *, now_s: float) -> Message | None:
    """What is to be told of an alert, as it is now; None where somebody has seen to it already."""
    row = conn.execute(
        select(alerts, runs.c.project, runs.c.name, streams.c.stream)
        .select_from(
            alerts.join(runs, runs.c.run_id == alerts.c.run_id).outerjoin(
                streams, (streams.c.run_id == alerts.c.run_id) & (streams.c.stream_key == alerts.c.stream_key)
            )
        )
        .where(alerts.c.run_id == run_id, alerts.c.alert_id == alert_id)
    ).one()
    if row.acknowledged_at_s is not None:
        return None
    of_alert = (alerts.c.run_id == run_id, alerts.c.alert_id == alert_id)
    conn.execute(update(alerts).where(*of_alert).values(told_at_s=now_s))
    payload = {
        "alert_id": alert_id,
        "change": change,
        "kind": row.kind,
        "title": row.title,
        "run_name": row.name,
        "stream": row.stream,
        "attempt": attempts.numbers(conn, run_id).get(row.attempt_key),
        "first_step": row.first_step,
        "last_step": row.last_step,
        "num_repeats": row.num_repeats,
        "value": row.value,
        "layer": row.layer,
        "opened_at_s": row.opened_at_s,
    }
    return Message(run_id, row.project, row.severity, payload, now_s)


def post(conn: Connection, messages: Iterable[Message]) -> None:
    """Puts messages into the outbox. After the ticks of the same transaction, under whose lock their order is made."""
    rows = [message._asdict() for message in messages]
    if rows:
        conn.execute(insert(outbox), rows)
