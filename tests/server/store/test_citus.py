"""The tables can be spread over a Citus cluster: by their keys, by the statements, and step by step.

There is no Citus here. What it would refuse is told from our own tables, and what it is asked for is recorded by
functions of its names in a plain PostgreSQL, where the foreign keys are as real as there.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, PrimaryKeyConstraint, Table, UniqueConstraint, text

from gradsight import wire
from gradsight_server.commands import run
from gradsight_server.errors import SettingsError
from gradsight_server.store import citus, deletion, export, models, retention, runs, sparklines
from gradsight_server.store.citus import plan
from gradsight_server.store.database import Database
from gradsight_server.store.distribution import norm_distribution
from gradsight_server.store.events import events
from gradsight_server.store.evidence import evidence
from gradsight_server.store.layer_totals import layer_totals
from gradsight_server.store.layers import layer_matrix
from gradsight_server.store.one_step import one_step
from gradsight_server.store.series import series
from tests.server.store.kit import RUN, Store

RECORDING = """
    CREATE TABLE asked (place bigserial, what text, name text, beside text);
    CREATE VIEW citus_tables AS
        SELECT name::regclass AS table_name, what AS citus_table_type FROM asked WHERE what <> 'truncate';
    CREATE FUNCTION create_distributed_table(name regclass, by text, colocate_with text) RETURNS void LANGUAGE sql AS
        $$ INSERT INTO asked (what, name, beside) VALUES ('distributed', name::text, colocate_with) $$;
    CREATE FUNCTION create_reference_table(name regclass) RETURNS void LANGUAGE sql AS
        $$ INSERT INTO asked (what, name) VALUES ('reference', name::text) $$;
    CREATE FUNCTION truncate_local_data_after_distributing_table(name regclass) RETURNS void LANGUAGE sql AS
        $$ INSERT INTO asked (what, name) VALUES ('truncate', name::text) $$;
"""


def test_every_table_has_a_place_and_all_of_a_run_is_in_one() -> None:
    places = {table.name: kind for table, kind in plan().items()}
    assert places.keys() == models.metadata.tables.keys()
    big = ("runs", "steps", "layer_blocks", "buckets", "bucket_blobs", "metrics", "events", "streams", "attempts")
    assert {places[name] for name in big} == {"distributed"}
    assert places["alert_rules"] == "reference"
    assert {name for name, kind in places.items() if kind == "local"} == {"ticks", "outbox", "notification_targets"}


def test_citus_could_enforce_every_key() -> None:
    """A unique key and a foreign key of a distributed table contain what it is distributed by."""
    assert list(breaches()) == []


def breaches() -> Iterator[str]:
    kinds = plan()
    for table, kind in kinds.items():
        if kind == "reference" and "run_id" in table.columns:
            yield f"{table.name} belongs to runs, but its primary key lacks run_id"
        for name, columns in unique_keys(table):
            if kind == "distributed" and "run_id" not in columns:
                yield f"{table.name}.{name} is unique without run_id"
        for key in table.foreign_key_constraints:
            pairs = {(element.parent.name, element.column.name) for element in key.elements}
            target = kinds[key.referred_table]
            if (kind, target) not in (("distributed", "distributed"), ("distributed", "reference")):
                yield f"{table.name} ({kind}) refers to {key.referred_table.name} ({target})"
            elif target == "distributed" and ("run_id", "run_id") not in pairs:
                yield f"{table.name} refers to {key.referred_table.name} without run_id"


def unique_keys(table: Table) -> Iterator[tuple[str, list[str]]]:
    for constraint in table.constraints:
        if isinstance(constraint, PrimaryKeyConstraint | UniqueConstraint):
            yield str(constraint.name), [column.name for column in constraint.columns]
    for index in table.indexes:
        if index.unique:
            yield str(index.name), [column.name for column in index.columns]


def test_run_id_is_of_one_type_everywhere() -> None:
    """Else Citus would not put the tables side by side."""
    types = {repr(table.c.run_id.type) for table, kind in plan().items() if kind == "distributed"}
    assert len(types) == 1


def test_sqlite_is_told_that_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "distribute", "--db", str(tmp_path / "gradsight.db")]) == 2
    assert "this database is SQLite" in capsys.readouterr().err


@pytest.mark.postgresql
def test_a_postgresql_without_citus_is_told_what_is_missing(
    postgresql_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "distribute", "--db", postgresql_url]) == 2
    said = capsys.readouterr().err
    for word in ("no Citus extension", "shared_preload_libraries", "CREATE EXTENSION citus", "Nothing was changed"):
        assert word in said


@pytest.fixture
def database(postgresql_url: str) -> Iterator[Database]:
    found = Database(postgresql_url)
    yield found
    found.close()


@pytest.fixture
def recording(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(citus, "check", lambda conn: "13.0")
    with database.administering() as conn:
        conn.execute(text(RECORDING))
        yield conn


def asked(conn: Connection) -> list[tuple[str, str, str | None]]:
    return [(row.what, row.name, row.beside) for row in conn.execute(text("SELECT * FROM asked ORDER BY place"))]


def foreign_keys(conn: Connection) -> list[str]:
    query = (
        "SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid) AS said FROM pg_constraint WHERE contype = 'f'"
    )
    return sorted(row.said for row in conn.execute(text(query)))


@pytest.mark.postgresql
def test_each_table_is_asked_for_once_and_the_foreign_keys_are_there_again(
    recording: Connection, database: Database
) -> None:
    before = foreign_keys(recording)
    said: list[str] = []
    citus.distribute(recording, said.append)
    made = [row for row in asked(recording) if row[0] != "truncate"]
    assert made[0] == ("distributed", "runs", "default")
    assert {row[2] for row in made[1:] if row[0] == "distributed"} == {"runs"}
    assert {name: what for what, name, _ in made} == {
        table.name: kind for table, kind in plan().items() if kind != "local"
    }
    assert len([row for row in asked(recording) if row[0] == "truncate"]) == len(made)
    assert foreign_keys(recording) == before
    assert len(before) > 5
    again: list[str] = []
    citus.distribute(recording, again.append)
    assert len(asked(recording)) == 2 * len(made)
    assert again == ["Citus 13.0", "nothing was left to do"]
    store = Store(database)
    store.put()
    store.send([0, 1], loss=[1.0, 2.0])
    assert store.run()["num_steps"] == 2


@pytest.mark.postgresql
def test_what_was_broken_off_is_taken_up_where_it_was(recording: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    before = foreign_keys(recording)
    real = citus._move

    def broken(conn: Connection, table: Table, kind: citus.Kind) -> None:
        if table.name == "steps":
            raise RuntimeError("a node went away")
        real(conn, table, kind)

    monkeypatch.setattr(citus, "_move", broken)
    with pytest.raises(RuntimeError, match="a node went away"):
        citus.distribute(recording, lambda _: None)
    monkeypatch.setattr(citus, "_move", real)
    citus.distribute(recording, lambda _: None)
    names = [name for what, name, _ in asked(recording) if what != "truncate"]
    assert len(names) == len(set(names)) == len([kind for kind in plan().values() if kind != "local"])
    assert foreign_keys(recording) == before


@pytest.mark.postgresql
def test_a_table_that_is_something_else_already_is_named(recording: Connection) -> None:
    recording.execute(text("INSERT INTO asked (what, name) VALUES ('reference', 'steps')"))
    with pytest.raises(SettingsError, match="steps is reference already, but has to be distributed"):
        citus.distribute(recording, lambda _: None)


@pytest.mark.postgresql
@pytest.mark.parametrize("version", ["9.5", "10.2-1"])
def test_an_old_citus_is_refused(version: str, monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    with database.administering() as conn:
        monkeypatch.setattr(type(conn), "scalar", lambda *_: version)
        with pytest.raises(SettingsError, match=f"Citus {version} is too old"):
            citus.check(conn)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What PostgreSQL is asked from now on, in one line each."""
    import psycopg  # late: only where there is PostgreSQL

    found: set[str] = set()
    for name in ("execute", "executemany"):
        real = getattr(psycopg.Cursor, name)

        def noting(cursor: Any, query: Any, *rest: Any, _real: Any = real, **options: Any) -> Any:
            found.add(" ".join(str(query).split()))
            return _real(cursor, query, *rest, **options)

        monkeypatch.setattr(psycopg.Cursor, name, noting)
    return found


def do_everything(store: Store) -> None:
    """A run's life, and the lists it is in."""
    other = "f" * 32
    store.put(streams={"main": {}}, config={"lr": 0.1})
    store.put(other)
    steps = list(range(3000))
    norms: dict[str, Any] = {"layers": ["a", "b"], "layer_step": steps, "layer_norms": [[1.0, 2.0]] * 3000}
    for _ in range(2):
        store.send(steps, attempt_id="a", attempt_started_at_s=1.0, grad_norm_before_clip=[1.0] * 3000, **norms)
    metrics = [wire.Metric(step=1, name="m", value=1.0)]
    store.send([2500], attempt_id="b", loss=[1.0], dropped={"queue": 1}, metrics=metrics)
    store.send(events=[wire.Event(kind="finished")], attempt_id="b")
    store.read(series, RUN, columns=("loss",), points=50)
    store.read(layer_matrix, RUN, points=50)
    store.read(layer_totals, RUN)
    store.read(norm_distribution, RUN)
    store.read(evidence, RUN)
    store.read(one_step, RUN, 5)
    store.read(events, RUN)
    for sort in ("-started_at_s", "severity", "name"):
        store.read(runs.list_runs, sort=sort, q="a", tag="b", now_s=1.0)
    store.run()
    sparklines.refresh(store.db, now_s=1e9)
    retention.sweep(store.db, retention.Keep(steps=2048), now_s=1e9)
    store.write(lambda conn: runs.patch_run(conn, RUN, now_s=1.0, notes="n", archived=True))
    found = store.read(export.contents, RUN)
    for launch in found.launches:
        store.read(export.next_slice, launch, 0, max_layers=found.max_layers)
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=1.0))
    deletion.sweep(store.db)


@pytest.mark.postgresql
def test_what_is_done_with_a_run_is_a_statement_about_that_run_alone(database: Database, statements: set[str]) -> None:
    """Citus changes, locks and joins rows within a shard: it must see from the statement that there is one."""
    do_everything(Store(database))
    distributed = [table.name for table, kind in plan().items() if kind == "distributed"]
    looked_at = 0
    for said in statements:
        named = [name for name in distributed if re.search(rf"(FROM|JOIN|INTO|UPDATE) {name}\b", said)]
        if not named:
            continue
        looked_at += 1
        changes = re.match(r"UPDATE|DELETE", said) or re.search(r"FOR (NO KEY |KEY )?(UPDATE|SHARE)", said)
        if changes:
            outside = re.sub(r"\(SELECT [^()]*\)", "", said)
            assert re.search(rf"{named[0]}\.run_id = %", outside), said
        for target, condition in re.findall(r"JOIN (\w+) ON (.*?)(?= LEFT| JOIN| WHERE| ORDER|$)", said):
            assert re.search(r"\w+\.run_id = \w+\.run_id", condition), f"{target}: {said}"
    assert looked_at > 40
