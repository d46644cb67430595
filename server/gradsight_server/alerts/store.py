"""Alerts as people ask for them: lists, one, acknowledging, how many are open."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from sqlalchemy import Connection, Row, Select, func, select, update

from gradsight_server.alerts import rules
from gradsight_server.alerts.rules import SEVERITIES
from gradsight_server.errors import AlertNotFoundError, InvalidRequestError, RunNotFoundError
from gradsight_server.store import alert_rows, attempts, cursors, places
from gradsight_server.store.models import alerts, runs, streams
from gradsight_server.store.pending import pending_of

STATES = ("open", "acknowledged", "resolved")
MAX_LIMIT = 500
MAX_ALERT_ID = 2**31 - 1
_ORDER = (alerts.c.opened_at_s, alerts.c.run_id, alerts.c.alert_id)
_KEY = (float, str, Annotated[int, msgspec.Meta(ge=1, le=MAX_ALERT_ID)])


def _query() -> Select[Any]:
    return select(alerts, runs.c.name.label("run_name"), runs.c.project, streams.c.stream).select_from(
        alerts.join(runs, runs.c.run_id == alerts.c.run_id).outerjoin(
            streams, (streams.c.run_id == alerts.c.run_id) & (streams.c.stream_key == alerts.c.stream_key)
        )
    )


def list_alerts(
    conn: Connection,
    *,
    run_id: str | None = None,
    project: str | None = None,
    state: str | None = None,
    severity: str | None = None,
    kind: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> dict[str, Any]:
    """A page of alerts, the newest first, and the cursor of the next.

    Args:
        state, severity: one of their words, or several with commas between.

    Raises:
        InvalidRequestError, RunNotFoundError
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequestError(f"limit must be from 1 to {MAX_LIMIT}, got {limit!r}.")
    if run_id is not None and conn.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is None:
        raise RunNotFoundError(run_id)
    query = _query()
    for column, word in ((alerts.c.run_id, run_id), (runs.c.project, project)):
        if word is not None:
            query = query.where(column == word)
    for column, words, known in (
        (alerts.c.state, state, STATES),
        (alerts.c.severity, severity, SEVERITIES),
        (alerts.c.kind, kind, rules.KINDS),
    ):
        if words is not None:
            query = query.where(column.in_(_words(column.name, words, known)))
    if cursor is not None:
        query = query.where(cursors.after(_ORDER, cursors.decode(cursor, *_KEY), descending=True))
    rows = conn.execute(query.order_by(*(column.desc() for column in _ORDER)).limit(limit + 1)).all()
    page = rows[:limit]
    last = page[-1] if len(rows) > limit else None
    return {
        "items": _items(conn, page),
        "next_cursor": None if last is None else cursors.encode(last.opened_at_s, last.run_id, last.alert_id),
    }


def alert(conn: Connection, run_id: str, alert_id: int) -> dict[str, Any]:
    """One alert as lists have it.

    Raises:
        AlertNotFoundError
    """
    row = conn.execute(_query().where(alerts.c.run_id == run_id, alerts.c.alert_id == alert_id)).one_or_none()
    if row is None:
        raise AlertNotFoundError(f"Run {run_id!r} has no alert {alert_id!r}.")
    return _items(conn, [row])[0]


def acknowledge(conn: Connection, run_id: str, alert_id: int, *, by: str | None, now_s: float) -> None:
    """Somebody has seen to it: it is not told of again. Doing so twice changes nothing.

    Raises:
        RunNotFoundError, AlertNotFoundError
    """
    places.lock(conn, run_id)
    if conn.scalar(select(runs.c.run_id).where(runs.c.run_id == run_id)) is None:
        raise RunNotFoundError(run_id)
    row = conn.execute(select(alerts).where(alerts.c.run_id == run_id, alerts.c.alert_id == alert_id)).one_or_none()
    if row is None:
        raise AlertNotFoundError(f"Run {run_id!r} has no alert {alert_id!r}.")
    if row.acknowledged_at_s is not None:
        return
    columns = {"acknowledged_at_s": now_s, "acknowledged_by": by, "updated_at_s": now_s}
    if row.state == "open":
        columns["state"] = "acknowledged"
    conn.execute(update(alerts).where(alerts.c.run_id == run_id, alerts.c.alert_id == alert_id).values(columns))
    news = alert_rows.news(run_id, alert_id, "acknowledged", row.stream_key, row.attempt_key, now_s=now_s)
    pending_of(conn).alert(news)


def num_open(conn: Connection) -> dict[str, int]:
    """Severity → open alerts, over all runs."""
    query = select(alerts.c.severity, func.count()).where(alerts.c.state == "open").group_by(alerts.c.severity)
    found = {severity: count for severity, count in conn.execute(query)}
    return {severity: found.get(severity, 0) for severity in SEVERITIES}


def _words(name: str, text: str, known: Sequence[str]) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = next((word for word in words if word not in known), None)
    if wrong is not None or not words:
        raise InvalidRequestError(f"{name} must be one of {', '.join(known)}, or several of them, got {text!r}.")
    return words


def _items(conn: Connection, rows: Sequence[Row[Any]]) -> list[dict[str, Any]]:
    numbers = attempts.numbers_of(conn, {row.run_id for row in rows})
    return [_item(row, numbers[row.run_id]) for row in rows]


def _item(row: Row[Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    return {
        "id": row.alert_id,
        "run_id": row.run_id,
        "run_name": row.run_name,
        "project": row.project,
        "stream": row.stream,
        "attempt": numbers.get(row.attempt_key),
        "kind": row.kind,
        "severity": row.severity,
        "state": row.state,
        "first_step": row.first_step,
        "last_step": row.last_step,
        "num_repeats": row.num_repeats,
        "value": row.value,
        "layer": row.layer,
        "title": row.title,
        "evidence": row.evidence,
        "folded": row.folded,
        "folded_into": row.folded_into,
        "opened_at_s": row.opened_at_s,
        "updated_at_s": row.updated_at_s,
        "acknowledged_at_s": row.acknowledged_at_s,
        "acknowledged_by": row.acknowledged_by,
        "resolved_at_s": row.resolved_at_s,
    }
