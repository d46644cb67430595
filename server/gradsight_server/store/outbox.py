"""The outbox: messages in the order of their commits, and how far each target has come with them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sqlalchemy import Connection, Update, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from gradsight_server.alerts.messages import Waiting
from gradsight_server.store.models import notification_targets, outbox

KEPT_S = 3 * 86_400.0
MAX_READ = 500


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a target has come, and how it fares."""

    target_id: str
    delivered_up_to: int
    num_sent: int
    num_given_up: int
    num_failures: int
    next_try_at_s: float | None
    failing_since_s: float | None
    last_sent_at_s: float | None
    last_error: str | None


def introduce(conn: Connection, target_ids: Collection[str]) -> None:
    """Makes targets known. One that is new is told of what comes from now on."""
    newest = conn.scalar(select(func.max(outbox.c.outbox_id))) or 0
    insert = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    rows = [{"target_id": target_id, "delivered_up_to": newest} for target_id in sorted(target_ids)]
    if rows:
        conn.execute(insert(notification_targets).on_conflict_do_nothing(), rows)


def progress(conn: Connection, target_ids: Collection[str]) -> dict[str, Progress]:
    query = select(notification_targets).where(notification_targets.c.target_id.in_(target_ids))
    return {row.target_id: Progress(**row._mapping) for row in conn.execute(query)}


def newest_id(conn: Connection) -> int:
    return conn.scalar(select(func.max(outbox.c.outbox_id))) or 0


def waiting(conn: Connection, after: int) -> list[Waiting]:
    """The next messages."""
    query = select(outbox).where(outbox.c.outbox_id > after).order_by(outbox.c.outbox_id).limit(MAX_READ)
    return [Waiting(**row._mapping) for row in conn.execute(query)]


def num_waiting(conn: Connection, after: int, wants: Callable[[Waiting], bool]) -> int:
    """How many messages a target has still to be told; not counted far."""
    return sum(map(wants, waiting(conn, after)))


def pass_over(conn: Connection, target_id: str, up_to: int) -> None:
    """The target does not want to hear of what is up to here."""
    conn.execute(_of(target_id).values(delivered_up_to=up_to))


def delivered(conn: Connection, target_id: str, up_to: int, num: int, *, now_s: float) -> None:
    """So many messages have reached the target."""
    table = notification_targets.c
    conn.execute(
        _of(target_id).values(
            delivered_up_to=up_to,
            num_sent=table.num_sent + num,
            num_failures=0,
            next_try_at_s=None,
            failing_since_s=None,
            last_sent_at_s=now_s,
            last_error=None,
        )
    )


def failed(conn: Connection, target_id: str, error: str, *, now_s: float, next_try_at_s: float | None) -> None:
    """The target could not be reached; the same is tried again."""
    table = notification_targets.c
    conn.execute(
        _of(target_id).values(
            num_failures=table.num_failures + 1,
            next_try_at_s=next_try_at_s,
            failing_since_s=func.coalesce(table.failing_since_s, now_s),
            last_error=error[:1000],
        )
    )


def give_up(conn: Connection, target_id: str, up_to: int, num: int) -> None:
    """So many messages have become too old to be of use."""
    conn.execute(
        _of(target_id).values(
            delivered_up_to=up_to, num_given_up=notification_targets.c.num_given_up + num, next_try_at_s=None
        )
    )


def prune(conn: Connection, *, now_s: float) -> None:
    """Takes away what every target has had its time for; the newest stays, so that ids go on from it."""
    newest = newest_id(conn)
    conn.execute(delete(outbox).where(outbox.c.created_at_s < now_s - KEPT_S, outbox.c.outbox_id < newest))


def _of(target_id: str) -> Update:
    return update(notification_targets).where(notification_targets.c.target_id == target_id)
