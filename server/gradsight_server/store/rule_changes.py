"""Alert rules as people ask for them: what is in force at a scope, what it changes, and what a rule would have done."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from gradsight_server.alerts import rules
from gradsight_server.alerts.rules import Change, Kind, Rule
from gradsight_server.errors import InvalidRequestError, RunNotFoundError
from gradsight_server.store import places
from gradsight_server.store.models import alert_rules, runs
from gradsight_server.store.pending import pending_of
from gradsight_server.store.replay import MAX_LISTED, replay
from gradsight_server.store.rule_book import GLOBAL, Scope, changes, scopes_of


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
        InvalidRequestError: a rule could not be so, could never fire, or would always; there, or in a narrower scope
            with what that one changes itself.
        RunNotFoundError
    """
    if run_id is not None:
        places.lock(conn, run_id)
    scope, scopes = _scopes(conn, project, run_id)
    checked = {rules.check_change(kind, change): change for kind, change in given}
    if len(checked) < len(given):
        raise InvalidRequestError("rules must name each kind once.")
    before = changes(conn)
    wider = rules.effective(before.get(found, {}) for found in scopes[:-1])
    for kind, change in checked.items():
        rules.check_rule(rules.changed(wider[kind], change))
    _check_narrower(conn, scope, before, before | {scope: checked})
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
        for kind, change in checked.items()
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
    named = rules.check_change(kind, change)
    scope, scopes = _scopes(conn, project, run_id)
    before = changes(conn)
    by_scope = before | {scope: before.get(scope, {}) | {named: {**change, "enabled": True}}}
    rule = rules.effective(by_scope.get(found, {}) for found in scopes)[named]
    rules.check_rule(rule)
    _check_narrower(conn, scope, before, by_scope)
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


ByScope = Mapping[Scope, Mapping[Kind, Change]]


def _check_narrower(conn: Connection, scope: Scope, before: ByScope, after: ByScope) -> None:
    """
    Raises:
        InvalidRequestError: with a change at this scope, what a narrower one changes itself could not be any more.
    """
    for scopes in _narrower(conn, scope, after):
        was = rules.effective(before.get(found, {}) for found in scopes)
        is_now = rules.effective(after.get(found, {}) for found in scopes)
        name, of = scopes[-1]
        for kind in after[scopes[-1]]:
            if is_now[kind] == was[kind]:
                continue  # whatever it is, this change has no part in it
            try:
                rules.check_rule(is_now[kind])
            except InvalidRequestError as error:
                raise InvalidRequestError(f"In {name} {of!r}, which changes this rule itself: {error}") from None


def _narrower(conn: Connection, scope: Scope, by_scope: Iterable[Scope]) -> Iterator[list[Scope]]:
    """Each narrower scope that changes something, behind those that apply there too, the widest first."""
    if scope[0] == "run":
        return
    if scope == GLOBAL:
        yield from (list(scopes_of(of, None)) for name, of in by_scope if name == "project")
    with_rules = [of for name, of in by_scope if name == "run"]
    query = select(runs.c.run_id, runs.c.project).where(runs.c.run_id.in_(with_rules))
    for run in conn.execute(query if scope == GLOBAL else query.where(runs.c.project == scope[1])):
        yield list(scopes_of(run.project, run.run_id))


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
