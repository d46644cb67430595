"""Looks for runs that have fallen silent. Nothing comes from them, so no transaction of theirs can tell."""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from gradsight_server.alerts.rules import Kind, Rule, effective
from gradsight_server.alerts.silence import Quiet, evidence_of, is_crashed, is_silent, severity_of
from gradsight_server.alerts.sliding import decode
from gradsight_server.alerts.texts import title
from gradsight_server.store import alert_rows, places
from gradsight_server.store.database import Database
from gradsight_server.store.models import alert_states, alerts, attempts, runs, steps, streams
from gradsight_server.store.pending import pending_of
from gradsight_server.store.rule_book import changes, scopes_of
from gradsight_server.store.ticks import AlertChange

KIND: Kind = "silent_run"
GRACE_S = 60.0
"""A server that has just started gives trainings the time to come back to it."""
FORGOTTEN_S = 86_400.0
"""Runs that nobody has heard of for a day were given up long ago."""
MIN_SILENCE_S = 1.0
TIMEOUT_S = 60.0


class Silent(NamedTuple):
    """A run to be told of, and what was seen of it."""

    run_id: str
    rule: Rule
    quiet: Quiet
    last_step_at_s: float
    last_step: int | None


def sweep(database: Database, *, now_s: float, started_at_s: float) -> int:
    """Opens alerts of runs that have fallen silent; how many it opened or changed.

    Args:
        started_at_s: Since when this server listens.
    """
    if now_s - started_at_s < GRACE_S:
        return 0
    with database.reading() as conn:
        found = list(_silent(conn, now_s))
    told = [database.write(partial(_tell, silent=silent, now_s=now_s)).result(TIMEOUT_S) for silent in found]
    return sum(told)


def _silent(conn: Connection, now_s: float) -> Iterator[Silent]:
    query = select(runs.c.run_id, runs.c.project, runs.c.last_step_at_s, runs.c.last_seen_s).where(
        runs.c.status == "running",
        runs.c.archived_at_s.is_(None),
        runs.c.last_step_at_s < now_s - MIN_SILENCE_S,
        runs.c.last_seen_s > now_s - FORGOTTEN_S,
    )
    rows = conn.execute(query).all()
    if not rows:
        return
    by_scope = changes(conn)
    told = _told(conn)
    for row in rows:
        scopes = [by_scope[scope] for scope in scopes_of(row.project, row.run_id) if scope in by_scope]
        rule = effective(scopes)[KIND]
        silence_s = now_s - row.last_step_at_s
        if not rule.enabled or silence_s <= (rule.least_s or 0.0):
            continue
        rate, last_step, last_wall_time_s = _pace(conn, row.run_id)
        if last_wall_time_s is not None and last_wall_time_s < now_s - FORGOTTEN_S:
            continue  # what came was history already, an import's say
        quiet = Quiet(
            silence_s=silence_s,
            unheard_s=now_s - row.last_seen_s,
            steps_per_s=rate,
            longest_pause_s=_longest_pause_s(conn, row.run_id),
        )
        if is_silent(rule, quiet) and told.get(row.run_id) not in (1.0, float(is_crashed(quiet))):
            yield Silent(row.run_id, rule, quiet, row.last_step_at_s, last_step)


def _told(conn: Connection) -> dict[str, float]:
    """Run → whether it was said to have crashed, of the runs whose silence has been told of."""
    query = select(alerts.c.run_id, alerts.c.evidence).where(alerts.c.kind == KIND, alerts.c.state != "resolved")
    return {row.run_id: row.evidence.get("is_crashed", 0.0) for row in conn.execute(query)}


def _pace(conn: Connection, run_id: str) -> tuple[float | None, int | None, float | None]:
    """Steps a second of the run's quickest stream; its newest step, and when that was taken by the trainer's clock."""
    query = select(streams.c.stream_key, streams.c.last, streams.c.last_step).where(streams.c.run_id == run_id)
    rows = conn.execute(query).all()
    rates = [rate for row in rows if (rate := row.last.get("steps_per_s"))]
    newest = max((row for row in rows if row.last_step is not None), key=lambda row: row.last_step, default=None)
    if newest is None:
        return max(rates, default=None), None, None
    launches = conn.scalars(select(attempts.c.attempt_key).where(attempts.c.run_id == run_id)).all()
    of_step = (steps.c.run_id == run_id, steps.c.stream_key == newest.stream_key, steps.c.step == newest.last_step)
    taken_at_s = conn.scalar(select(func.max(steps.c.wall_time_s)).where(*of_step, steps.c.attempt_key.in_(launches)))
    return max(rates, default=None), newest.last_step, taken_at_s


def _longest_pause_s(conn: Connection, run_id: str) -> float:
    kept = conn.scalars(select(alert_states.c.state).where(alert_states.c.run_id == run_id)).all()
    states = [state for blob in kept if (state := decode(bytes(blob))) is not None]
    return min((state.longest_pause_s for state in states), default=0.0)


def _tell(conn: Connection, silent: Silent, now_s: float) -> bool:
    """Opens the alert, or says of a stalled run that it has crashed; whether the run is still silent."""
    run_id = silent.run_id
    places.lock(conn, run_id)
    run = conn.execute(select(runs.c.status, runs.c.last_step_at_s).where(runs.c.run_id == run_id)).one_or_none()
    if run is None or run.status != "running" or run.last_step_at_s != silent.last_step_at_s:
        return False
    alert_id, change, columns = _place(conn, silent, now_s)
    evidence = evidence_of(silent.rule, silent.quiet)
    columns |= {
        "severity": severity_of(silent.rule, silent.quiet),
        "last_step": silent.last_step,
        "value": silent.quiet.silence_s,
        "evidence": evidence,
        "title": title(KIND, evidence),
        "is_open": True,
    }
    alert_rows.write(conn, run_id, alert_id, columns, now_s=now_s)
    message = None
    if change in alert_rows.TOLD:
        message = alert_rows.message_of(conn, run_id, alert_id, change, now_s=now_s)
    pending_of(conn).alert(alert_rows.news(run_id, alert_id, change, now_s=now_s), message)
    return True


def _place(conn: Connection, silent: Silent, now_s: float) -> tuple[int, AlertChange, dict[str, Any]]:
    """The alert to write to: the newest one while it is open or its cool-down lasts, else a new one."""
    run_id = silent.run_id
    of_kind = (alerts.c.run_id == run_id, alerts.c.kind == KIND)
    newest = conn.execute(select(alerts).where(*of_kind).order_by(alerts.c.alert_id.desc()).limit(1)).one_or_none()
    if newest is not None and newest.state != "resolved":
        return newest.alert_id, "reminded", {}
    if newest is not None and now_s - (newest.told_at_s or newest.opened_at_s) < silent.rule.cool_down_s:
        return newest.alert_id, "repeated", {"num_repeats": newest.num_repeats + 1}
    new: dict[str, Any] = {"kind": KIND, "first_step": silent.last_step, "num_repeats": 0, "folded": []}
    return alert_rows.id_giver(conn, run_id)(), "opened", new
