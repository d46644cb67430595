"""The alert rules as people have changed them, read now and then: every transaction with steps asks for them."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, select

from gradsight_server.alerts.rules import Change, Kind, Rule, effective
from gradsight_server.store.models import alert_rules

KEPT_S = 2.0
"""So soon what another replica was told holds here too."""

Scope = tuple[str, str]
"""(scope, scope_id): ("global", ""), ("project", its name), ("run", its id)."""
GLOBAL: Scope = ("global", "")


class RuleBook:
    """One server's copy of the rules. Used by the writer's thread."""

    def __init__(self) -> None:
        self._changes: dict[Scope, dict[Kind, Change]] = {}
        self._rules: dict[tuple[Scope, ...], dict[Kind, Rule]] = {}
        self._until_s = 0.0
        self.failures: set[str] = set()
        """What has gone wrong in rules and is in the log already."""

    def rules(self, conn: Connection, project: str, run_id: str) -> Mapping[Kind, Rule]:
        """What is in force for a run."""
        now_s = time.monotonic()
        if now_s > self._until_s:
            self._changes = changes(conn)
            self._rules.clear()
            self._until_s = now_s + KEPT_S
        scopes = tuple(scope for scope in scopes_of(project, run_id) if scope in self._changes)
        if scopes not in self._rules:
            self._rules[scopes] = effective(self._changes[scope] for scope in scopes)
        return self._rules[scopes]

    def forget(self) -> None:
        """The rules have changed: they are read anew."""
        self._until_s = 0.0


def scopes_of(project: str | None, run_id: str | None) -> Iterable[Scope]:
    """The widest first."""
    yield GLOBAL
    if project is not None:
        yield "project", project
    if run_id is not None:
        yield "run", run_id


def changes(conn: Connection) -> dict[Scope, dict[Kind, Change]]:
    """What every scope changes."""
    found: dict[Scope, dict[Kind, Change]] = {}
    for row in conn.execute(select(alert_rules)):
        found.setdefault((row.scope, row.scope_id), {})[row.kind] = change_of(row)
    return found


def change_of(row: Row[Any]) -> Change:
    """What a row of the table sets."""
    given = {"enabled": row.enabled, "severity": row.severity} | row.settings
    return {name: value for name, value in given.items() if value is not None}
