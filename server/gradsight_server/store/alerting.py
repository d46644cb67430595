"""The alert rules at work on what a transaction's batches brought, in that very transaction.

Steps, what the rules remember of them, alerts and messages are committed together: a killed server has all of it or
nothing, and of several servers, each with the run locked, the next goes on where the one before has stopped.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import Connection, bindparam, select

from gradsight import wire
from gradsight_server.alerts.columns import Columns
from gradsight_server.alerts.groups import is_of_group, parents, rules_of_group
from gradsight_server.alerts.rules import Kind, Rule
from gradsight_server.alerts.setting import setting_of
from gradsight_server.alerts.sliding import State, decode, encode
from gradsight_server.alerts.watch import Watch
from gradsight_server.store import alert_rows, statements
from gradsight_server.store.alert_rows import Message
from gradsight_server.store.extents import AttemptKey
from gradsight_server.store.models import alert_states, alerts, attempts, runs, streams
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.rule_book import RuleBook
from gradsight_server.store.ticks import News

FIRST_STREAM = 1
"""What a launch has lost is told of once, whatever its streams are."""
STALE_S = 86_400.0
"""What a spool brings so late is an alert, but no message: nobody can do anything about it any more."""
ANSWERED_S = 60.0
"""So long after its change an alert is in the answers to batches."""

_logger = logging.getLogger(__name__)

_LOAD = Prepared(
    select(runs.c.project, streams.c.stream, streams.c.record, alert_states.c.state)
    .select_from(
        streams.join(runs, runs.c.run_id == streams.c.run_id).outerjoin(
            alert_states,
            (alert_states.c.run_id == streams.c.run_id) & (alert_states.c.stream_key == streams.c.stream_key),
        )
    )
    .where(streams.c.run_id == bindparam("of_run"), streams.c.stream_key == bindparam("of_stream"))
)


@dataclass(slots=True, kw_only=True)
class Taken:
    """What a batch that was taken in means for alerts."""

    key: AttemptKey
    columns: Columns | None
    num_lost: int | None
    """Rows that the attempt has lost by now, where that is news."""
    ends: str | None
    """The run's status, where the batch ended it."""
    is_back: bool
    """Steps came after a while without."""
    alerted_at_s: float | None
    """The newest change of any of the run's alerts."""
    is_imported: bool
    """It is of a log that something else wrote, who knows when."""
    answer: wire.Answer
    now_s: float


@dataclass(slots=True)
class Outcome:
    """What is to be told at the end of the transaction."""

    news: list[News] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)


def judge(conn: Connection, taken: Sequence[Taken], rule_book: RuleBook) -> Outcome:
    """Judges what came, writes what follows from it, and puts alerts into the answers."""
    outcome = Outcome()
    for key, of_key in _by_stream(taken).items():
        _guarded(conn, key, of_key, rule_book, outcome)
    for item in taken:
        if item.is_back or item.ends:
            outcome.news += alert_rows.close(conn, item.key[0], now_s=item.now_s, kind="silent_run")
        if item.ends == "finished":
            outcome.news += _close_all(conn, item.key[0], item.now_s)
    changed = {item.run_id for item in outcome.news}
    for item in taken:
        recently = item.alerted_at_s is not None and item.now_s - item.alerted_at_s < ANSWERED_S
        if recently or item.key[0] in changed:
            item.answer.alerts = notices(conn, item.key, now_s=item.now_s)
    return outcome


def _by_stream(taken: Iterable[Taken]) -> dict[AttemptKey, list[Taken]]:
    """What each stream's rules have to look at."""
    found: dict[AttemptKey, list[Taken]] = {}
    for item in taken:
        if item.columns is not None and len(item.columns):
            found.setdefault(item.key, []).append(item)
        if item.num_lost is not None:
            found.setdefault((item.key[0], FIRST_STREAM, item.key[2]), []).append(item)
    return found


def _guarded(conn: Connection, key: AttemptKey, taken: Sequence[Taken], rule_book: RuleBook, outcome: Outcome) -> None:
    """Steps are worth more than alerts: a mistake in a rule costs what the rules remembered, and nothing else."""
    row = _LOAD.one(conn, {"of_run": key[0], "of_stream": key[1]})
    if row is None:
        return  # deleted in this very transaction
    project, stream, record, kept = row
    try:
        rules = rule_book.rules(conn, project, key[0])
        if _is_of_group(conn, key[0], stream):
            rules = rules_of_group(rules)
        watch, closed = _watched(conn, key, taken, rules, record, kept)
    except Exception as error:
        if repr(error) not in rule_book.failures:
            rule_book.failures.add(repr(error))
            _logger.exception("the alert rules failed on run %s", key[0])
        last = max((item.columns.step[-1] for item in taken if item.columns), default=-1)
        return _keep(conn, key, State(key[2], last_step=last))
    if watch is None:
        return
    outcome.news += closed
    if watch.life.writes or watch.life.news:
        _write(conn, key, watch, taken, outcome)
    _keep(conn, key, watch.state)


def _watched(
    conn: Connection,
    key: AttemptKey,
    taken: Sequence[Taken],
    rules: Mapping[Kind, Rule],
    record: object,
    kept: bytes | None,
) -> tuple[Watch | None, list[News]]:
    """The rules after they have seen it all, and news of alerts that a new launch has put an end to."""
    run_id, _, attempt_key = key
    now_s = taken[-1].now_s
    state = decode(bytes(kept)) if kept is not None else None
    closed: list[News] = []
    if state is not None and state.attempt_key != attempt_key:
        if not _started_later(conn, run_id, attempt_key, state.attempt_key):
            return None, []  # what an older launch has left in its spool is history
        closed = alert_rows.close(
            conn, run_id, now_s=now_s, but=(alerts.c.attempt_key != attempt_key,), stream_key=key[1]
        )
        state = None
    text = record if isinstance(record, str) else msgspec.json.encode(record).decode()
    watch = Watch(
        state or State(attempt_key),
        rules,
        setting_of(text),
        now_s=now_s,
        new_id=alert_rows.id_giver(conn, run_id),
    )
    for item in taken:
        if item.key == key and item.columns is not None:
            watch.see(item.columns)
        if item.num_lost is not None and key[1] == FIRST_STREAM:
            watch.lose(item.num_lost)
    return watch, closed


def _is_of_group(conn: Connection, run_id: str, stream: str) -> bool:
    names = [parent for parent, _ in parents(stream)]
    if not names:
        return False
    query = select(streams.c.stream, streams.c.record).where(streams.c.run_id == run_id, streams.c.stream.in_(names))
    return is_of_group(stream, {row.stream: row.record.get("policy") for row in conn.execute(query)})


def _started_later(conn: Connection, run_id: str, attempt_key: int, than: int) -> bool:
    query = select(attempts.c.attempt_key, attempts.c.started_at_s).where(
        attempts.c.run_id == run_id, attempts.c.attempt_key.in_((attempt_key, than))
    )
    started = {row.attempt_key: (row.started_at_s, row.attempt_key) for row in conn.execute(query)}
    return than not in started or started[attempt_key] > started[than]


def _write(conn: Connection, key: AttemptKey, watch: Watch, taken: Sequence[Taken], outcome: Outcome) -> None:
    run_id, stream_key, attempt_key = key
    now_s = taken[-1].now_s
    for alert_id, columns in watch.life.writes.items():
        where = {"stream_key": stream_key, "attempt_key": attempt_key} if "kind" in columns else {}
        alert_rows.write(conn, run_id, alert_id, columns | where, now_s=now_s)
    is_stale = _is_stale(taken, now_s)
    for found in watch.life.news:
        outcome.news.append(alert_rows.news(run_id, found.alert_id, found.change, stream_key, attempt_key, now_s=now_s))
        # What turned out at once to be a consequence of another is told with that one.
        is_folded = watch.life.writes.get(found.alert_id, {}).get("folded_into") is not None
        if found.change in alert_rows.TOLD and not is_stale and not is_folded:
            message = alert_rows.message_of(conn, run_id, found.alert_id, found.change, now_s=now_s)
            if message is not None:
                outcome.messages.append(message)


def _is_stale(taken: Iterable[Taken], now_s: float) -> bool:
    """Whether all that came happened long ago, or may have."""
    for item in taken:
        times = (item.columns.time_s if item.columns is not None else None) or (None,)
        if not item.is_imported if times[-1] is None else now_s - times[-1] <= STALE_S:
            return False
    return True


def _keep(conn: Connection, key: AttemptKey, state: State) -> None:
    statements.upsert_alert_state(conn, (*key[:2], encode(state)))


def _close_all(conn: Connection, run_id: str, now_s: float) -> list[News]:
    """A run that has finished has nothing wrong any more. One that failed keeps what may be the reason."""
    query = select(alert_states.c.stream_key, alert_states.c.state).where(alert_states.c.run_id == run_id)
    for row in conn.execute(query).all():
        state = decode(row.state)
        if state is not None and state.conditions:
            state.conditions = {}
            _keep(conn, (run_id, row.stream_key, state.attempt_key), state)
    return alert_rows.close(conn, run_id, now_s=now_s)


def notices(conn: Connection, key: AttemptKey, *, now_s: float) -> list[wire.AlertNotice]:
    """The alerts of a launch that changed a moment ago, as its process hears of them."""
    of_launch = alerts.c.attempt_key.is_(None) | (alerts.c.attempt_key == key[2])
    query = (
        select(alerts, streams.c.stream)
        .select_from(
            alerts.outerjoin(
                streams, (streams.c.run_id == alerts.c.run_id) & (streams.c.stream_key == alerts.c.stream_key)
            )
        )
        .where(alerts.c.run_id == key[0], alerts.c.updated_at_s > now_s - ANSWERED_S, of_launch)
        .order_by(alerts.c.alert_id)
    )
    return [
        wire.AlertNotice(
            id=row.alert_id,
            kind=row.kind,
            severity=row.severity,
            state=row.state,
            title=row.title,
            first_step=row.first_step,
            last_step=row.last_step,
            value=row.value,
            num_repeats=row.num_repeats,
            stream=row.stream,
            layer=row.layer,
        )
        for row in conn.execute(query)
    ]
