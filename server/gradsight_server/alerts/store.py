"""Alerts and their rules as people ask for them: lists, acknowledging, what each scope changes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from gradsight_server.alerts import rules
from gradsight_server.alerts.rules import SEVERITIES, Kind, Rule
from gradsight_server.errors import AlertNotFoundError, InvalidRequestError, RunNotFoundError
from gradsight_server.store import alert_rows, attempts, cursors, places
from gradsight_server.store.models import alert_rules, alerts, runs, streams
from gradsight_server.store.pending import pending_of
from gradsight_server.store.replay import MAX_LISTED, replay
from gradsight_server.store.rule_book import Scope, changes, scopes_of

STATES = ("open", "acknowledged", "resolved")
MAX_LIMIT = 500
_ORDER = (alerts.c.opened_at_s, alerts.c.run_id, alerts.c.alert_id)


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
        query = query.where(cursors.after(_ORDER, cursors.decode(cursor, float, str, int), descending=True))
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


def rules_of(conn: Connection, *, project: str | None = None, run_id: str | None = None) -> dict[str, Any]:
    """The rules in force at a scope (a run, else a project, else everywhere), and what it changes itself.

    Raises:
        RunNotFoundError
    """
    scope, scopes = _scopes(conn, project, run_id)
    by_scope = changes(conn)
    in_force = rules.effective(by_scope.get(found, {}) for found in scopes)
    return {
        "scope": scope[0],
        "project": scope[1] if scope[0] == "project" else None,
        "run_id": scope[1] if scope[0] == "run" else None,
        "items": [
            _rule_item(in_force[kind], _origin(kind, scopes, by_scope), by_scope.get(scope, {}).get(kind, {}))
            for kind in rules.KINDS
        ],
    }


def put_rules(
    conn: Connection,
    given: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    project: str | None = None,
    run_id: str | None = None,
    now_s: float,
) -> None:
    """Puts (kind, change) in the place of all that a scope changes; what it leaves out is as the wider scope has it.

    Raises:
        InvalidRequestError: a rule could not be so, could never fire, or would always.
        RunNotFoundError
    """
    scope, scopes = _scopes(conn, project, run_id)
    for kind, change in given:
        rules.check_change(kind, change)
    if len({kind for kind, _ in given}) < len(given):
        raise InvalidRequestError("rules must name each kind once.")
    wider = rules.effective(changes(conn).get(found, {}) for found in scopes[:-1])
    for kind, change in given:
        rules.check_rule(rules.changed(wider[kind], change))  # type: ignore[index]  # a kind, as was checked
    conn.execute(delete(alert_rules).where(alert_rules.c.scope == scope[0], alert_rules.c.scope_id == scope[1]))
    rows = [
        {
            "scope": scope[0],
            "scope_id": scope[1],
            "kind": kind,
            "enabled": change.get("enabled"),
            "severity": change.get("severity"),
            "settings": {name: change[name] for name in rules.FIELDS if change.get(name) is not None},
            "updated_at_s": now_s,
        }
        for kind, change in given
        if any(value is not None for value in change.values())
    ]
    if rows:
        conn.execute(insert(alert_rules), rows)
    pending_of(conn).rule_book.forget()


def preview(
    conn: Connection,
    kind: str,
    change: Mapping[str, Any],
    *,
    project: str | None = None,
    run_id: str | None = None,
    since_s: float,
    now_s: float,
) -> dict[str, Any]:
    """What a rule would have told of, were it changed at a scope as somebody thinks of it.

    Raises:
        InvalidRequestError, RunNotFoundError
    """
    rules.check_change(kind, change)
    scope, scopes = _scopes(conn, project, run_id)
    by_scope = changes(conn)
    named: Kind = kind  # type: ignore[assignment]  # as was checked
    by_scope[scope] = by_scope.get(scope, {}) | {named: {**change, "enabled": True}}
    rule = rules.effective(by_scope.get(found, {}) for found in scopes)[named]
    rules.check_rule(rule)
    done = replay(conn, named, by_scope, project=project, run_id=run_id, since_s=since_s)
    return {
        "kind": kind,
        "num_fired": sum(fired.num_fired for fired in done.found),
        "num_repeats": sum(fired.num_repeats for fired in done.found),
        "runs": [
            {
                "run_id": fired.run_id,
                "run_name": fired.run_name,
                "project": fired.project,
                "num_fired": fired.num_fired,
                "first_step": fired.first_step,
            }
            for fired in done.found[:MAX_LISTED]
        ],
        "covered": {
            "since_s": since_s,
            "until_s": now_s,
            "num_runs": done.num_runs,
            "num_steps": done.num_steps,
            "is_complete": done.is_complete,
        },
        "warnings": rules.warnings(rule),
    }


def _scopes(conn: Connection, project: str | None, run_id: str | None) -> tuple[Scope, list[Scope]]:
    """The scope asked for, and all that apply there, the widest first."""
    if project is not None and run_id is not None:
        raise InvalidRequestError("project and run must not both be given: a run is in its project.")
    if run_id is not None:
        project = conn.scalar(select(runs.c.project).where(runs.c.run_id == run_id))
        if project is None:
            raise RunNotFoundError(run_id)
    scopes = list(scopes_of(project, run_id))
    return scopes[-1], scopes


def _origin(kind: Kind, scopes: Iterable[Scope], by_scope: Mapping[Scope, Mapping[Kind, Any]]) -> str:
    """The narrowest scope that has a say in the rule."""
    found = "default"
    for scope in scopes:
        if kind in by_scope.get(scope, {}):
            found = scope[0]
    return found


def _rule_item(rule: Rule, origin: str, change: Mapping[str, Any]) -> dict[str, Any]:
    limits = rules.LIMITS[rule.kind]
    numbers: dict[str, Any] = {name: getattr(rule, name) for name in rules.FIELDS}
    default = rules.DEFAULTS[rule.kind]
    return {
        "kind": rule.kind,
        "enabled": rule.enabled,
        "severity": rule.severity,
        **numbers,
        "origin": origin,
        "change": {name: change.get(name) for name in ("enabled", "severity", *rules.FIELDS)},
        "default": {
            "enabled": default.enabled,
            "severity": default.severity,
            **{name: getattr(default, name) for name in rules.FIELDS},
        },
        "limits": {
            name: {"least": found.least, "most": found.most, "is_whole": found.is_whole, "unit": found.unit}
            for name, found in limits.items()
        },
        "warnings": rules.warnings(rule),
    }


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
