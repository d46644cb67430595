"""A run in brief: what lists, live ticks and the run page's head show of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, literal_column, select

from gradsight_server.diagnosis import SEVERITIES
from gradsight_server.errors import RunNotFoundError
from gradsight_server.store.expressions import nonfinite_words
from gradsight_server.store.models import alerts, runs, streams

_OF_STREAM = tuple(column for column in streams.c if column.name not in ("record", "control"))
LAST_COLUMNS = ("grad_norm_before_clip", "max_norm", "clip_coef", "loss", "loss_scale")
"""The values of the newest step that `last` holds."""

SILENT_AFTER_S = 30.0
HEARTBEAT_FRESH_S = 10.0
STALLED_AFTER_S = 30.0
STALLED_AFTER_INTERVALS = 5.0


def run_state(
    status: str, *, last_seen_s: float, last_step_at_s: float | None, steps_per_s: float | None, now_s: float
) -> str:
    """How alive a run is: finished, failed, running, stalled (alive but without steps) or silent."""
    if status != "running":
        return status
    if now_s - last_seen_s > SILENT_AFTER_S:
        return "silent"
    if last_step_at_s is None or now_s - last_seen_s > HEARTBEAT_FRESH_S:
        return "running"
    patience_s = max(STALLED_AFTER_S, STALLED_AFTER_INTERVALS / steps_per_s if steps_per_s else 0.0)
    return "stalled" if now_s - last_step_at_s > patience_s else "running"


def run_summary(conn: Connection, run_id: str, *, now_s: float) -> dict[str, Any]:
    """One run in brief, as REST gives it."""
    found = run_summaries(conn, [run_id], now_s=now_s)
    if run_id not in found:
        raise RunNotFoundError(run_id)
    return found[run_id]


def run_summaries(conn: Connection, run_ids: Sequence[str], *, now_s: float) -> dict[str, dict[str, Any]]:
    """Runs in brief, by id; unknown ids are left out."""
    of_run: dict[str, list[Row[Any]]] = {run_id: [] for run_id in run_ids}
    for row in conn.execute(select(*_OF_STREAM).where(streams.c.run_id.in_(run_ids)).order_by(streams.c.stream_key)):
        of_run[row.run_id].append(row)
    rows = {row.run_id: row for row in conn.execute(select(runs).where(runs.c.run_id.in_(run_ids)))}
    open_alerts = _open_alerts(conn, run_ids)
    return {
        run_id: _summary(rows[run_id], of_run[run_id], now_s) | {"open_alerts": open_alerts[run_id]}
        for run_id in run_ids
        if run_id in rows
    }


def _open_alerts(conn: Connection, run_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Run → severity → alerts that nobody has seen to yet."""
    found = {run_id: {"info": 0, "warning": 0, "critical": 0} for run_id in run_ids}
    query = (
        select(alerts.c.run_id, alerts.c.severity, func.count())
        .where(alerts.c.run_id.in_(run_ids), alerts.c.state == literal_column("'open'"))
        .group_by(alerts.c.run_id, alerts.c.severity)
    )
    for run_id, severity, num in conn.execute(query):
        found[run_id][severity] = num
    return found


def shown_stream(rows: Sequence[Row[Any]]) -> Row[Any] | None:
    """Of a run's streams the one that lists tell of: `main`, or the first."""
    return next((row for row in rows if row.stream == "main"), rows[0] if rows else None)


def counts(rows: Sequence[Row[Any]]) -> dict[str, int]:
    """The counters of these streams together."""
    names = ("num_steps", "num_skipped", "num_clipped", "num_nonfinite")
    totals = {name: sum(getattr(row, name) for row in rows) for name in names}
    return totals | {"num_applied": totals["num_steps"] - totals["num_skipped"]}


def last_values(last: Mapping[str, Any]) -> dict[str, Any]:
    """The newest values of a stream; null where not recorded or not finite, and which of them were not finite."""
    words = nonfinite_words(last.get("nonfinite", 0))
    return {name: last.get(name) for name in LAST_COLUMNS} | {
        "nonfinite": {name: word for name, word in words.items() if name in LAST_COLUMNS}
    }


def shown_verdict(verdict: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The verdict without what only its keeper needs; None before the run was first judged."""
    return None if verdict is None else {name: part for name, part in verdict.items() if name != "told"}


def _summary(run: Row[Any], rows: Sequence[Row[Any]], now_s: float) -> dict[str, Any]:
    shown = shown_stream(rows)
    last = shown.last if shown is not None else {}
    steps_per_s = last.get("steps_per_s")
    return {
        "id": run.run_id,
        "project": run.project,
        "name": run.name,
        "tags": run.tags,
        "status": run.status,
        "state": run_state(
            run.status,
            last_seen_s=run.last_seen_s,
            last_step_at_s=run.last_step_at_s,
            steps_per_s=steps_per_s,
            now_s=now_s,
        ),
        "started_at_s": run.started_at_s,
        "last_seen_s": run.last_seen_s,
        "archived": run.archived_at_s is not None,
        "total_steps": run.total_steps,
        "world_size": run.world_size,
        "streams": [row.stream for row in rows],
        "last_step": shown.last_step if shown is not None else None,
        **counts(rows),
        "of_stream": {name: getattr(shown, name, 0) for name in ("num_steps", "num_clipped")},
        "steps_per_s": steps_per_s,
        "last": last_values(last),
        "verdict": shown_verdict(run.verdict),
        "severity": None if run.severity is None else SEVERITIES[run.severity],
    }
