"""What only PostgreSQL can meet: replicas that wait for each other, connections that are lost, too many readers."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import Connection, text

from gradsight_server.errors import DatabaseBusyError
from gradsight_server.store import engines
from gradsight_server.store.database import Database

pytestmark = pytest.mark.postgresql
TIMEOUT_S = 20
OTHERS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"


@pytest.fixture
def replicas(postgresql_url: str) -> Iterator[tuple[Database, Database]]:
    """Two servers' databases, with two rows to lock."""
    both = (Database(postgresql_url), Database(postgresql_url))
    both[0].write(_add_two).result(TIMEOUT_S)
    yield both
    for database in both:
        database.close()


def _add_two(conn: Connection) -> None:
    for kind in ("one", "two"):
        row = f"('{kind}', true, 'info', '{{}}', 0)"
        conn.execute(text(f"INSERT INTO alert_rules (kind, enabled, severity, settings, updated_at_s) VALUES {row}"))


def _count_up(*kinds: str, between: Callable[[], object]) -> Callable[[Connection], None]:
    def work(conn: Connection) -> None:
        for i, kind in enumerate(kinds):
            if i:
                between()
            conn.execute(text(f"UPDATE alert_rules SET updated_at_s = updated_at_s + 1 WHERE kind = '{kind}'"))

    return work


def _counts(database: Database) -> list[float]:
    with database.reading() as conn:
        return list(conn.scalars(text("SELECT updated_at_s FROM alert_rules ORDER BY kind")))


def test_works_that_wait_for_each_other_are_both_done_in_the_end(replicas: tuple[Database, Database]) -> None:
    holds_one = (threading.Event(), threading.Event())

    def wait_for(mine: int) -> None:
        holds_one[mine].set()
        assert holds_one[1 - mine].wait(TIMEOUT_S)

    first = replicas[0].write(_count_up("one", "two", between=lambda: wait_for(0)))
    second = replicas[1].write(_count_up("two", "one", between=lambda: wait_for(1)))
    first.result(TIMEOUT_S)
    second.result(TIMEOUT_S)
    assert _counts(replicas[0]) == [2.0, 2.0]


def test_lost_connections_are_made_anew(replicas: tuple[Database, Database]) -> None:
    database, other = replicas
    assert _counts(database) == [0.0, 0.0]
    _end_connections(other)
    assert _counts(database) == [0.0, 0.0]
    database.write(_count_up("one", between=lambda: None)).result(TIMEOUT_S)
    assert _counts(database) == [1.0, 0.0]


def test_a_connection_lost_in_between_is_a_database_out_of_reach(replicas: tuple[Database, Database]) -> None:
    database, other = replicas
    lost = database.write(_count_up("one", "two", between=lambda: _end_connections(other)))
    with pytest.raises(DatabaseBusyError, match="cannot be reached"):
        lost.result(TIMEOUT_S)
    with pytest.raises(DatabaseBusyError, match="cannot be reached"):
        _read_while_it_goes(database, other)
    assert _counts(database) == [0.0, 0.0]


def _read_while_it_goes(database: Database, other: Database) -> None:
    with database.reading() as conn:
        conn.execute(text("SELECT 1"))
        _end_connections(other)
        conn.execute(text("SELECT 1"))


def _end_connections(other: Database) -> None:
    with other.reading() as conn:
        conn.execute(text(f"{OTHERS} AND pid <> pg_backend_pid()"))


def test_many_readers_do_not_keep_the_writer_waiting(
    replicas: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    database, _ = replicas
    with ExitStack() as readers:
        for _ in range(2 * engines.READING_CONNECTIONS):
            readers.enter_context(database.reading())
        database.write(_count_up("one", between=lambda: None)).result(TIMEOUT_S)
        monkeypatch.setattr(database._engine.pool, "_timeout", 0.01)
        with pytest.raises(DatabaseBusyError, match="cannot be reached"), database.reading():
            pass
    assert _counts(database) == [1.0, 0.0]
