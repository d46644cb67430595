"""A hand on the threshold: what people ask of a live run, until its process has said what became of it.

A stream's wishes are in its row: {"wishes": [{"id", "max_norm", "pattern", "state", …}]}, the newest of each pattern;
ids count over the run. They go out with the answers to batches, of whichever stream, and come back as events. Each is
asked of one launch: who resumes the run later has not been asked.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from gradsight import wire
from gradsight.errors import ConfigurationError
from gradsight.policies import GlobalNorm, Groups, Policy, TensorNorm, parse_policy
from gradsight.thresholds import Threshold
from gradsight_server.alerts.groups import parents
from gradsight_server.errors import ControlRefusedError, InvalidRequestError, RunNotFoundError
from gradsight_server.store import attempts, places, statements
from gradsight_server.store.models import runs, streams
from gradsight_server.store.pending import pending_of
from gradsight_server.store.summaries import run_state

ASKED_KIND = "control"
APPLIED_KIND, REFUSED_KIND = "max_norm_changed", "control_refused"
MAX_PATTERNS = 256
EXPIRED = "The launch that it was asked of did not take it before a later one began."


def ask(
    conn: Connection,
    run_id: str,
    *,
    max_norm: float,
    stream: str = "main",
    pattern: str | None = None,
    by: str | None,
    now_s: float,
) -> None:
    """Asks a live run for another threshold.

    Raises:
        InvalidRequestError: max_norm is not a positive, finite number.
        ControlRefusedError: the run cannot do it; says why.
        RunNotFoundError
    """
    if not (math.isfinite(max_norm) and max_norm > 0):
        raise InvalidRequestError(f"max_norm must be positive and finite, got {max_norm!r}.")
    places.lock(conn, run_id)
    run = _run(conn, run_id)
    rows = {row.stream: row for row in _streams(conn, run_id)}
    if pattern is None:
        stream, pattern = _group(rows, stream)
    if stream not in rows:
        known = ", ".join(sorted(rows)) or "none yet"
        raise ControlRefusedError(f"The run has no stream {stream!r}; it has {known}.")
    row = rows[stream]
    reason = _why_not(run, row, pattern, now_s)
    launches = attempts.in_order(conn, run_id)
    if reason is None and not launches:
        reason = "The run has not begun yet."
    if reason is not None:
        raise ControlRefusedError(reason)
    before = _max_norm(rows, stream, pattern)
    wish = {
        "id": 1 + max((wish["id"] for found in rows.values() for wish in _wishes(found)), default=0),
        "max_norm": max_norm,
        "pattern": pattern,
        "previous_max_norm": before,
        "state": "asked",
        "attempt_key": launches[-1].attempt_key,
        "by": by,
        "asked_at_s": now_s,
    }
    others = [other for other in _wishes(row) if other["pattern"] != pattern][-MAX_PATTERNS:]
    _keep(conn, run_id, row.stream_key, [*others, wish])
    where = "" if pattern is None else f" of {pattern}"
    message = f"max_norm{where} {_shown(before)} → {max_norm:g}, asked by {by or 'somebody'}"
    said = (ASKED_KIND, stream, wish["id"], now_s)
    event_id = hashlib.blake2b(repr(said).encode(), digest_size=8).hexdigest()
    key = (run_id, event_id, row.stream_key, launches[-1].attempt_key)
    statements.insert_events(conn, [(*key, ASKED_KIND, row.last_step, now_s, message)])
    pending_of(conn).tell(run_id, "run", now_s=now_s)


def state(conn: Connection, run_id: str, *, now_s: float) -> dict[str, Any]:
    """What was asked and what became of it, and which thresholds there are to change.

    Raises:
        RunNotFoundError
    """
    run = _run(conn, run_id)
    rows = {row.stream: row for row in _streams(conn, run_id)}
    launches = attempts.in_order(conn, run_id)
    newest = launches[-1].attempt_key if launches else None
    wishes = [_wish(stream, wish, newest) for stream, row in rows.items() for wish in _wishes(row)]
    return {
        "wishes": sorted(wishes, key=lambda wish: -wish["asked_at_s"]),
        "thresholds": [
            _threshold(run, rows, stream, pattern, now_s)
            for stream, row in rows.items()
            for pattern in _patterns(_policy(row.record))
        ],
    }


def wishes_for(conn: Connection, place: places.Place) -> list[wire.Control]:
    """What the answer to a batch asks for: only of the launch that started last, for an older one is history, and only
    what was asked of it."""
    asked = [
        wire.Control(id=wish["id"], max_norm=wish["max_norm"], stream=row.stream, pattern=wish["pattern"])
        for row in _streams(conn, place.run_id)
        for wish in _wishes(row)
        if wish["state"] == "asked" and wish.get("attempt_key") == place.attempt_key
    ]
    if not asked or attempts.in_order(conn, place.run_id)[-1].attempt_key != place.attempt_key:
        return []
    return sorted(asked, key=lambda wish: wish.id)


def settle(conn: Connection, run_id: str, events: Iterable[wire.Event], *, now_s: float) -> None:
    """Notes what the training process says became of wishes; saying it again changes nothing."""
    said = {
        event.control_id: event
        for event in events
        if event.control_id is not None and event.kind in (APPLIED_KIND, REFUSED_KIND)
    }
    if not said:
        return
    for row in _streams(conn, run_id):
        wishes = _wishes(row)
        settled = [wish for wish in wishes if wish["id"] in said and wish["state"] == "asked"]
        for wish in settled:
            event = said[wish["id"]]
            is_applied = event.kind == APPLIED_KIND
            wish |= {
                "state": "applied" if is_applied else "refused",
                "settled_at_s": now_s,
                "applied_step": event.step if is_applied else None,
                "message": event.message,
            }
        if settled:
            _keep(conn, run_id, row.stream_key, wishes)


def _keep(conn: Connection, run_id: str, stream_key: int, wishes: list[dict[str, Any]]) -> None:
    of_stream = (streams.c.run_id == run_id, streams.c.stream_key == stream_key)
    conn.execute(update(streams).where(*of_stream).values(control={"wishes": wishes}))


def _wishes(row: Row[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (row.control or {}).get("wishes", [])
    return found


def _run(conn: Connection, run_id: str) -> Row[Any]:
    row = conn.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
    if row is None:
        raise RunNotFoundError(run_id)
    return row


def _streams(conn: Connection, run_id: str) -> Sequence[Row[Any]]:
    return conn.execute(select(streams).where(streams.c.run_id == run_id).order_by(streams.c.stream_key)).all()


def _policy(record: Mapping[str, Any]) -> Policy | None:
    """How the stream clips; None where it does not, or has not said so."""
    text = record.get("policy")
    if not isinstance(text, str):
        return None
    try:
        return parse_policy(text)
    except ConfigurationError:
        return None  # written by a version that knew more policies than we do


def _patterns(policy: Policy | None) -> Iterable[str | None]:
    return tuple(policy.policies) if isinstance(policy, Groups) else (None,)


def _group(rows: Mapping[str, Row[Any]], stream: str) -> tuple[str, str | None]:
    """The stream whose policy has groups and the group's pattern, where `stream` is what such a group records."""
    for parent, pattern in parents(stream):
        if parent in rows and pattern in _patterns(_policy(rows[parent].record)):
            return parent, pattern
    return stream, None


def _why_not(run: Row[Any], row: Row[Any], pattern: str | None, now_s: float) -> str | None:
    """Why the threshold cannot be changed; None where it can."""
    if not row.record.get("allow_control"):
        return "The run does not allow it: Monitor(…, allow_control=True) does."
    if run.status != "running":
        return f"The run has ended ({run.status})."
    state = run_state(run.status, last_seen_s=run.last_seen_s, last_step_at_s=None, steps_per_s=None, now_s=now_s)
    if state == "silent":
        return f"The run is silent: nothing has been heard of it for {now_s - run.last_seen_s:.0f} s."
    if row.record.get("policy", "") is None:
        return "The run does not clip."
    policy = _policy(row.record)
    if isinstance(policy, Groups):
        known = ", ".join(repr(name) for name in policy.policies)
        if pattern is None:
            return f"The run clips in groups: name the pattern of one, of {known}."
        if pattern not in policy.policies:
            return f"The run has no group {pattern!r}; it has {known}."
        policy = policy.policies[pattern]
    elif pattern is not None:
        return f"The run does not clip in groups: leave pattern out, got {pattern!r}."
    if not isinstance(policy, GlobalNorm | TensorNorm):
        said = "is not known to this server" if policy is None else f"is {policy}"
        return f"There is no max_norm to change: how the run clips {said}."
    if isinstance(policy.max_norm, Threshold):
        return f"The threshold moves by itself ({policy.max_norm}); only a fixed one can be changed."
    return None


def _max_norm(rows: Mapping[str, Row[Any]], stream: str, pattern: str | None) -> float | None:
    """The threshold in force: as last recorded, else as it was set; groups are recorded as streams of their own."""
    row = rows[stream]
    applied = [wish for wish in _wishes(row) if wish["pattern"] == pattern and wish["state"] == "applied"]
    recorded = rows.get(f"{stream}/{pattern}") if pattern is not None else row
    if recorded is not None and recorded.last.get("max_norm") is not None:
        newest: float = recorded.last["max_norm"]
        return newest
    if applied:
        return float(applied[-1]["max_norm"])
    policy = _policy(row.record)
    if isinstance(policy, Groups) and pattern is not None:
        policy = policy.policies.get(pattern)
    limit = policy.max_norm if isinstance(policy, GlobalNorm | TensorNorm) else None
    return limit if isinstance(limit, float | int) and math.isfinite(limit) else None


def _threshold(
    run: Row[Any], rows: Mapping[str, Row[Any]], stream: str, pattern: str | None, now_s: float
) -> dict[str, Any]:
    reason = _why_not(run, rows[stream], pattern, now_s)
    return {
        "stream": stream,
        "pattern": pattern,
        "max_norm": _max_norm(rows, stream, pattern),
        "is_allowed": reason is None,
        "reason": reason,
    }


def _wish(stream: str, wish: Mapping[str, Any], newest: int | None) -> dict[str, Any]:
    """A wish as it is shown; `newest` is the launch that started last."""
    is_expired = wish["state"] == "asked" and wish.get("attempt_key") != newest
    return {
        "id": wish["id"],
        "stream": stream,
        "pattern": wish["pattern"],
        "max_norm": wish["max_norm"],
        "previous_max_norm": wish["previous_max_norm"],
        "state": "expired" if is_expired else wish["state"],
        "by": wish["by"],
        "asked_at_s": wish["asked_at_s"],
        "settled_at_s": wish.get("settled_at_s"),
        "applied_step": wish.get("applied_step"),
        "message": EXPIRED if is_expired else wish.get("message", ""),
    }


def _shown(max_norm: float | None) -> str:
    return "none" if max_norm is None else f"{max_norm:g}"
