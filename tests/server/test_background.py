"""One server does the chores, another when that one is gone; a chore that fails stops neither itself nor the rest."""

import threading
from collections.abc import Callable, Iterator

import pytest

from gradsight_server import background
from gradsight_server.background import Background, Chore
from gradsight_server.store.database import Database
from tests.server.api.kit import wait_until

TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "ROUND_S", 0.01)
    monkeypatch.setattr(background, "PROMPT_ROUND_S", 0.01)


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = Database(url)
    database.migrate()
    yield database
    database.close()


def started(database: Database, *works: Callable[[], object], every_s: float = 0.0) -> Background:
    made = Background(database, [Chore(f"work {i}", every_s, work) for i, work in enumerate(works)])
    made.start()
    return made


def test_chores_are_done_again_and_again_until_the_end(db: Database) -> None:
    done: list[int] = []
    running = started(db, lambda: done.append(1))
    wait_until(lambda: len(done) >= 3)
    running.close()
    num_done = len(done)
    running.close()
    assert not running.is_leader
    assert len(done) == num_done


def test_a_chore_that_is_not_due_waits(db: Database) -> None:
    often, seldom = [], []
    running = Background(
        db, [Chore("often", 0.0, lambda: often.append(1)), Chore("seldom", 600.0, lambda: seldom.append(1))]
    )
    running.start()
    wait_until(lambda: len(often) >= 5)
    running.close()
    assert len(seldom) == 1


def test_a_failing_chore_is_logged_once_and_stops_nothing(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    def fail() -> None:
        raise RuntimeError("broken")

    running = started(db, fail, lambda: done.append(1))
    wait_until(lambda: len(done) >= 3)
    running.close()
    assert caplog.text.count("work 0 failed") == 1


def test_what_must_be_prompt_waits_for_no_long_chore(db: Database) -> None:
    is_free, done = threading.Event(), []
    running = Background(
        db,
        [Chore("long", 0.0, lambda: is_free.wait(TIMEOUT_S))],
        [Chore("prompt", 0.0, lambda: done.append(1))],
    )
    running.start()
    wait_until(lambda: len(done) >= 3)
    is_free.set()
    running.close()


def test_a_closed_database_ends_the_chores(db: Database) -> None:
    asked = threading.Event()

    def ask() -> None:
        asked.set()
        db.write(lambda conn: None).result(TIMEOUT_S)

    running = started(db, ask)
    assert asked.wait(TIMEOUT_S)
    db.close()
    wait_until(lambda: not running.is_leader)
    running.close()


@pytest.mark.postgresql
def test_of_two_servers_one_leads_and_the_other_follows_it(postgresql_url: str) -> None:
    first_db, second_db = Database(postgresql_url), Database(postgresql_url)
    done: dict[str, int] = {"first": 0, "second": 0}

    def count(name: str) -> Callable[[], None]:
        def work() -> None:
            done[name] += 1

        return work

    first = started(first_db, count("first"))
    wait_until(lambda: done["first"] > 0)
    second = started(second_db, count("second"))
    wait_until(lambda: done["first"] > 20)
    assert (first.is_leader, second.is_leader, done["second"]) == (True, False, 0)
    first.close()
    wait_until(lambda: done["second"] > 0)
    assert second.is_leader
    second.close()
    for database in (first_db, second_db):
        database.close()
