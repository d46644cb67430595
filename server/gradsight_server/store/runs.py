"""Runs: put, list, look at, patch."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET
from sqlalchemy import ColumnElement, Connection, Text, cast, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gradsight import wire
from gradsight_server.diagnosis import SEVERITIES
from gradsight_server.errors import InvalidRequestError, RunNotFoundError, ServerBusyError
from gradsight_server.store import attempts, cursors, keys, search, ticks
from gradsight_server.store.deletion import is_going
from gradsight_server.store.models import run_details, runs, streams
from gradsight_server.store.pending import pending_of
from gradsight_server.store.sparklines import sparklines_of
from gradsight_server.store.summaries import counts, last_values, run_summaries, run_summary

STATUSES = ("running", "finished", "failed")
SORTS: dict[str, type] = {"started_at_s": float, "last_seen_s": float, "name": str, "project": str}
SEVERITY = "severity"
"""Sorts unhealthy runs first, the newest first among equals; with '-' the other way round."""
_SEVERITY = Annotated[int, msgspec.Meta(ge=-1, le=len(SEVERITIES) - 1)]
"""Of a run; −1 before it was first judged."""
MAX_LIMIT = 500
_FIELDS = tuple(name for name in wire.RunRecord.__struct_fields__ if name != "streams")
_RUN_ID = re.compile("[0-9a-f]{32}")


def normal_run_id(text: str) -> str:
    """A run id as the database has it: 32 lower-case hex digits, whatever hyphens it came with.

    Raises:
        InvalidRequestError
    """
    run_id = text.replace("-", "").lower()
    if not _RUN_ID.fullmatch(run_id):
        raise InvalidRequestError(f"run id must be 32 hex digits (hyphens are fine), got {text!r}.")
    return run_id


def put_run(conn: Connection, run_id: str, record: wire.RunRecord, *, now_s: float) -> None:
    """Creates the run or merges into it: keys that are there overwrite, absent ones stay.

    A run started when its first launch did, so `started_at_s` only ever falls.

    Raises:
        ServerBusyError: one of the same id has been deleted, and is not all gone yet.
    """
    given = {name: value for name in _FIELDS if (value := getattr(record, name)) is not UNSET}
    started_at_s = _lock(conn, run_id, given.get("started_at_s", now_s), now_s)
    if is_going(conn, run_id):  # once it is locked: who deletes it on another replica meanwhile has been waited for
        raise ServerBusyError(f"A run of the id {run_id!r} was deleted and is not all gone yet: send this again.")
    named = {"config", "frameworks"} & given.keys()
    details: dict[str, Any] = {name: _as_json(given.pop(name), name) for name in named}
    if "started_at_s" in given:
        given["started_at_s"] = min(given["started_at_s"], started_at_s)
    if details:
        _merge_details(conn, run_id, details)
    conn.execute(update(runs).where(runs.c.run_id == run_id).values(given | {"updated_at_s": now_s}))
    if record.streams is not UNSET:
        for stream, known in record.streams.items():
            _merge_stream(conn, run_id, stream, known)
    pending_of(conn).tell(run_id, "run", now_s=now_s)


def list_runs(
    conn: Connection,
    *,
    project: str | None = None,
    status: str | None = None,
    tag: str | None = None,
    q: str | None = None,
    sort: str = "-started_at_s",
    limit: int = 50,
    cursor: str | None = None,
    now_s: float,
) -> dict[str, Any]:
    """A page of runs in brief, the cursor of the next, and on the first how many there are.

    Args:
        status: running, finished, failed, or archived; archived runs are listed only then.
        tag, q: a tag, a part of the name, project or id; upper and lower case are one.
        sort: one of SORTS, with "-" before it for falling order; or SEVERITY.
    """
    order, kinds, descending = _order(sort)
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequestError(f"limit must be from 1 to {MAX_LIMIT}, got {limit!r}.")
    filters = _filters(project, status, tag, q)
    query = select(*order).where(*filters).limit(limit + 1)
    query = query.order_by(*(column.desc() for column in order) if descending else order)
    if cursor is not None:
        sorted_by, *key = cursors.decode(cursor, str, *kinds)
        if sorted_by != sort:
            raise cursors.not_ours(cursor)
        query = query.where(cursors.after(order, tuple(key), descending=descending))
    rows = conn.execute(query).all()
    run_ids = [row.run_id for row in rows[:limit]]
    summaries = run_summaries(conn, run_ids, now_s=now_s)
    drawn = sparklines_of(conn, run_ids)
    return {
        "items": [summary | {"sparkline": drawn.get(run_id)} for run_id, summary in summaries.items()],
        "next_cursor": cursors.encode(sort, *rows[limit - 1]) if len(rows) > limit else None,
        "num_runs": conn.scalar(select(func.count()).select_from(runs).where(*filters)) if cursor is None else None,
    }


def get_run(conn: Connection, run_id: str, *, now_s: float) -> dict[str, Any]:
    """Everything about a run but its steps."""
    position = ticks.latest_position(conn)
    summary = run_summary(conn, run_id, now_s=now_s)
    run = conn.execute(select(run_details).where(run_details.c.run_id == run_id)).one()
    rows = conn.execute(select(streams).where(streams.c.run_id == run_id).order_by(streams.c.stream_key)).all()
    return summary | {
        "config": run.config,
        "frameworks": run.frameworks,
        "notes": run.notes,
        "streams_detail": {
            row.stream: {
                "record": row.record,
                **counts([row]),
                "last_step": row.last_step,
                "last": last_values(row.last),
            }
            for row in rows
        },
        "attempts": [
            {
                "attempt_id": launch.attempt_id,
                "number": launch.number,
                "started_at_s": launch.started_at_s,
                "dropped": _over_ranks(launch.dropped),
            }
            for launch in attempts.in_order(conn, run_id)
        ],
        "position": position,
    }


def patch_run(
    conn: Connection,
    run_id: str,
    *,
    now_s: float,
    name: str | None = None,
    tags: list[str] | None = None,
    notes: str | None = None,
    archived: bool | None = None,
) -> None:
    """What a person changes of a run; None leaves it."""
    changes: dict[str, Any] = {"name": name, "tags": tags}
    changes = {column: value for column, value in changes.items() if value is not None}
    if archived is not None:
        changes["archived_at_s"] = now_s if archived else None
    changed = conn.execute(update(runs).where(runs.c.run_id == run_id).values(changes | {"updated_at_s": now_s}))
    if not changed.rowcount:
        raise RunNotFoundError(run_id)
    if notes is not None:
        conn.execute(update(run_details).where(run_details.c.run_id == run_id).values(notes=notes))
    pending_of(conn).tell(run_id, "run", now_s=now_s)


def _lock(conn: Connection, run_id: str, started_at_s: float, now_s: float) -> float:
    """Locks the run, one that is not there once it is made, and gives when it started."""
    query = select(runs.c.started_at_s).where(runs.c.run_id == run_id).with_for_update()
    while (known := conn.scalar(query)) is None:  # once more where another replica has made it, and deleted it again
        _create(conn, run_id, started_at_s, now_s)
    return float(known)


def _create(conn: Connection, run_id: str, started_at_s: float, now_s: float) -> None:
    insert = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    row = {
        "run_id": run_id,
        "project": "default",
        "name": run_id[:8],
        "status": "running",
        "tags": [],
        "started_at_s": started_at_s,
        "updated_at_s": now_s,
        "last_seen_s": now_s,
    }
    made = insert(runs).values(row).on_conflict_do_nothing().returning(runs.c.run_id)
    if conn.scalar(made) is not None:
        conn.execute(insert(run_details).values(run_id=run_id, config={}, frameworks={}))


def _merge_details(conn: Connection, run_id: str, details: dict[str, dict[str, Any]]) -> None:
    of_run = run_details.c.run_id == run_id
    known = conn.execute(select(run_details).where(of_run)).one()
    merged = {name: getattr(known, name) | values for name, values in details.items()}
    conn.execute(update(run_details).where(of_run).values(merged))


def _merge_stream(conn: Connection, run_id: str, stream: str, record: wire.StreamRecord) -> None:
    of_stream = (streams.c.run_id == run_id, streams.c.stream == stream)
    known = conn.scalar(select(streams.c.record).where(*of_stream))
    if known is None:
        known = {}
        keys.new_stream(conn, run_id, stream)
    merged = known | msgspec.to_builtins(record)
    conn.execute(update(streams).where(*of_stream).values(record=merged))


def _as_json(value: Any, name: str) -> Any:
    """The value as JSON will give it back; MessagePack can carry what JSON cannot."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{name} must be what JSON can carry: {error}.") from None


def _order(sort: str) -> tuple[tuple[ColumnElement[Any], ...], tuple[Any, ...], bool]:
    """The columns a list is sorted by, their types, and whether they fall."""
    name = sort.removeprefix("-")
    if name == SEVERITY:
        not_judged = func.coalesce(runs.c.severity, -1)
        return (not_judged, runs.c.started_at_s, runs.c.run_id), (_SEVERITY, float, str), not sort.startswith("-")
    if name not in SORTS:
        known = ", ".join((*SORTS, SEVERITY))
        raise InvalidRequestError(f"sort must be one of {known}, with or without '-', got {sort!r}.")
    return (runs.c[name], runs.c.run_id), (SORTS[name], str), sort.startswith("-")


def _filters(project: str | None, status: str | None, tag: str | None, q: str | None) -> list[ColumnElement[bool]]:
    if status not in (None, "archived", *STATUSES):
        raise InvalidRequestError(f"status must be one of {', '.join(STATUSES)} or archived, got {status!r}.")
    filters: list[ColumnElement[bool]] = [
        runs.c.archived_at_s.is_not(None) if status == "archived" else runs.c.archived_at_s.is_(None)
    ]
    if project is not None:
        filters.append(runs.c.project == project)
    if status in STATUSES:
        filters.append(runs.c.status == status)
    if tag is not None:  # JSON escapes quotes within, so a quoted word is a whole tag
        filters.append(search.contains(cast(runs.c.tags, Text), msgspec.json.encode(tag).decode()))
    if q is not None:
        in_words = (search.contains(runs.c[name], q) for name in ("name", "project"))
        filters.append(or_(*in_words, runs.c.run_id.icontains(q, autoescape=True)))
    return filters


def _over_ranks(dropped: dict[str, dict[str, int]]) -> dict[str, int]:
    """Reason → rows lost, all ranks together."""
    totals: dict[str, int] = {}
    for reasons in dropped.values():
        for reason, lost in reasons.items():
            totals[reason] = totals.get(reason, 0) + lost
    return totals
