"""One writer, group commit, read sessions of one moment, and an end."""

import threading
from concurrent.futures import Future
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, text
from sqlalchemy.exc import IntegrityError

from gradsight_server.errors import DatabaseClosedError
from gradsight_server.store.database import Database
from gradsight_server.store.models import alert_rules, attempts

TIMEOUT_S = 10


class Gate:
    """Holds the writer, so that what is written meanwhile makes one group."""

    def __init__(self, db: Database) -> None:
        self._entered, self._release = threading.Event(), threading.Event()
        self._held = db.write(self._wait)
        assert self._entered.wait(TIMEOUT_S)

    def _wait(self, _conn: Connection) -> None:
        self._entered.set()
        assert self._release.wait(TIMEOUT_S)

    def open(self) -> None:
        self._release.set()
        self._held.result(TIMEOUT_S)


def add(kind: str) -> object:
    def work(conn: Connection) -> str:
        row = {"kind": kind, "enabled": True, "severity": "info", "settings": {}, "updated_at_s": 0.0}
        conn.execute(insert(alert_rules).values(row))
        if kind.startswith("bad"):
            raise ValueError(kind)
        return kind

    return work


def write(db: Database, kind: str) -> "Future[str]":
    return db.write(add(kind))  # type: ignore[arg-type]


def kinds(db: Database) -> set[str]:
    with db.reading() as conn:
        return set(conn.scalars(select(alert_rules.c.kind)))


def test_a_failing_work_leaves_the_others_of_its_group_alone(db: Database) -> None:
    commits: list[int] = []
    gate = Gate(db)
    futures = [write(db, kind) for kind in ("one", "bad", "two")]
    assert db.queue_depth == 3
    db.on_commit.append(lambda: commits.append(1))
    gate.open()
    assert (futures[0].result(TIMEOUT_S), futures[2].result(TIMEOUT_S)) == ("one", "two")
    with pytest.raises(ValueError, match="bad"):
        futures[1].result(TIMEOUT_S)
    assert kinds(db) == {"one", "two"}
    write(db, "three").result(TIMEOUT_S)
    db.close()
    assert len(commits) == 3, "the gate, the group of three, and the last one"


def test_a_caller_that_gave_up_while_waiting_is_left_out(db: Database) -> None:
    gate = Gate(db)
    given_up, kept = write(db, "given up"), write(db, "kept")
    assert given_up.cancel()
    gate.open()
    assert kept.result(TIMEOUT_S) == "kept"
    assert kinds(db) == {"kept"}


def test_a_lost_transaction_fails_every_work_of_its_group_and_the_next_one_is_fine(db: Database) -> None:
    gate = Gate(db)
    first = write(db, "first")
    thief = db.write(lambda conn: conn.exec_driver_sql("ROLLBACK"))
    gate.open()
    for future in (first, thief):
        assert future.exception(TIMEOUT_S) is not None
    write(db, "next").result(TIMEOUT_S)
    assert kinds(db) == {"next"}


def test_a_failing_listener_does_not_stop_the_writing(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("listener")

    db.on_commit.append(fail)
    write(db, "one").result(TIMEOUT_S)
    write(db, "two").result(TIMEOUT_S)
    assert kinds(db) == {"one", "two"}
    db.close()
    assert "a listener to commits failed" in caplog.text


def test_a_read_session_sees_one_moment(db: Database) -> None:
    with db.reading() as conn:
        count = select(alert_rules.c.kind)
        assert conn.scalars(count).all() == []
        write(db, "meanwhile").result(TIMEOUT_S)
        assert conn.scalars(count).all() == []
    assert kinds(db) == {"meanwhile"}


def test_close_commits_what_waits_and_may_be_called_twice(db: Database, url: str) -> None:
    gate = Gate(db)
    waiting = [write(db, f"rule {i}") for i in range(20)]
    closing = threading.Thread(target=db.close)
    closing.start()
    gate.open()
    closing.join(TIMEOUT_S)
    db.close()
    assert all(future.done() for future in waiting)
    again = Database(url)
    try:
        assert len(kinds(again)) == 20
    finally:
        again.close()


def test_close_has_a_deadline_and_says_so_to_who_waits(db: Database) -> None:
    gate = Gate(db)
    late = write(db, "late")
    db.close(deadline_s=0.01)
    with pytest.raises(DatabaseClosedError):
        late.result(TIMEOUT_S)
    gate.open()


def test_use_after_close_raises_a_named_error(db: Database) -> None:
    db.close()
    with pytest.raises(DatabaseClosedError):
        write(db, "late")
    with pytest.raises(DatabaseClosedError), db.reading():
        pass
    with pytest.raises(DatabaseClosedError):
        db.migrate()


def test_an_unused_database_closes(tmp_path: Path) -> None:
    Database(f"sqlite:///{tmp_path / 'unused.db'}").close()
    assert not (tmp_path / "unused.db").exists()


@pytest.mark.parametrize(("sync", "level"), [("normal", 1), ("full", 2)])
def test_the_pragmas_hold_on_every_connection(tmp_path: Path, sync: str, level: int) -> None:
    db = Database(f"sqlite:///{tmp_path / 'pragmas.db'}", sync=sync)  # type: ignore[arg-type]
    try:
        db.migrate()
        with db.reading() as first, db.reading() as second:
            for conn in (first, second):
                assert conn.scalar(text("PRAGMA journal_mode")) == "wal"
                assert conn.scalar(text("PRAGMA foreign_keys")) == 1
                assert conn.scalar(text("PRAGMA synchronous")) == level
                assert conn.scalar(text("PRAGMA busy_timeout")) == 10_000
    finally:
        db.close()


def test_foreign_keys_are_kept(db: Database) -> None:
    row = {"run_id": "0" * 32, "attempt_key": 1, "attempt_id": "", "started_at_s": 0.0, "dropped": {}, "sequences": {}}
    with pytest.raises(IntegrityError):
        db.write(lambda conn: conn.execute(insert(attempts).values(row))).result(TIMEOUT_S)
