"""`gradsight db backup` copies a database that is written to, whole or not at all."""

import threading
from pathlib import Path
from typing import Any

import pytest

from gradsight_server import commands
from gradsight_server.store.database import Database
from tests.server.api.kit import RUN, Running, running
from tests.server.store.kit import Store

CLIPS = ("1.5", "global_norm(max_norm=zscore(z=2.5))", "global_norm(max_norm=percentile(q=10))")


def store_in(path: Path) -> Store:
    database = Database(f"sqlite:///{path}")
    database.migrate()
    return Store(database)


def test_a_backup_of_a_database_in_use_is_a_database_of_one_moment(tmp_path: Path) -> None:
    source, target = tmp_path / "gradsight.db", tmp_path / "copy.db"
    store = store_in(source)
    store.put()
    store.send(list(range(100)), loss=[1.0] * 100)
    ending = threading.Event()

    def go_on() -> None:
        first = 100
        while not ending.is_set():
            store.send([first, first + 1], loss=[1.0, 2.0])
            first += 2

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        assert commands.run(["db", "backup", str(target), "--db", str(source)]) == 0
    finally:
        ending.set()
        writing.join()
        store.db.close()
    copy = store_in(target)
    run = copy.run()
    assert run["num_steps"] == run["last_step"] + 1 >= 100
    assert run["num_steps"] % 2 == 0, "a batch is in it whole or not at all"
    copy.db.close()
    assert {path.name for path in tmp_path.iterdir()} >= {"gradsight.db", "copy.db"}
    assert not list(tmp_path.glob("*.partial"))


def test_a_backup_answers_as_the_database_it_was_made_of(tmp_path: Path) -> None:
    source, target = tmp_path / "gradsight.db", tmp_path / "copy.db"
    with running(db=str(source)) as server:
        server.put()
        for first in range(0, 3000, 1000):
            steps = list(range(first, first + 1000))
            norms = ["NaN" if step % 500 == 7 else 90.0 if step == 1234 else 1 + step * 79 % 101 / 50 for step in steps]
            server.send({"step": steps, "wall_time_s": steps, "grad_norm_before_clip": norms, "max_norm": [2.0] * 1000})
        before = answers(server)
        assert commands.run(["db", "backup", str(target), "--db", str(source)]) == 0
        assert answers(server) == before
    with running(db=str(target)) as copy:
        assert answers(copy) == before


def answers(server: Running) -> list[Any]:
    asked: list[tuple[str, dict[str, Any]]] = [
        *(("what-if", {"clip": clip}) for clip in CLIPS),
        *(("what-if", {"clip": clip, "first_step": 900, "last_step": 2000}) for clip in CLIPS),
        *(("series", {"points": points}) for points in (10, 100)),
        ("distribution", {"max_norm": 1.5}),
        ("diagnosis", {}),
    ]
    return [server.get(f"runs/{RUN}/{path}", **query) for path, query in asked]


def test_what_cannot_be_backed_up_is_said_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there.db"
    store_in(there).db.close()
    before = there.read_bytes()
    for arguments, named in (
        ([str(tmp_path / "copy.db"), "--db", str(tmp_path / "nope.db")], "nope.db"),
        ([str(there), "--db", str(there)], "TARGET"),
        ([str(tmp_path / "no folder" / "copy.db"), "--db", str(there)], "no folder"),
        ([str(tmp_path / "copy.db"), "--db", "postgresql+psycopg://me@host/gradsight"], "pg_dump"),
    ):
        assert commands.run(["db", "backup", *arguments]) == 2
        assert named in capsys.readouterr().err
    assert there.read_bytes() == before
    assert not (tmp_path / "copy.db").exists()
