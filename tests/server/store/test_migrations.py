"""The migrated schema is the one in models.py, whoever migrates, and however many at once."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, inspect, text

from gradsight_server.errors import NewerDatabaseError
from gradsight_server.store import models, runs
from gradsight_server.store.database import Database, alembic_config, migrations_folder
from gradsight_server.store.ticks import ticks_after
from tests.server.store.kit import RUN, Store


def test_the_migrated_schema_equals_the_tables_in_models(db: Database) -> None:
    with db.reading() as conn:
        assert compare_metadata(MigrationContext.configure(conn), models.metadata) == []


def test_the_migrated_tables_keep_what_comparison_does_not_see(db: Database, empty_url: str) -> None:
    created = Database(empty_url)
    try:
        created.write(models.metadata.create_all).result(timeout=10)
        with db.reading() as migrated_conn, created.reading() as created_conn:
            assert _definitions(migrated_conn) == _definitions(created_conn)
    finally:
        created.close()


SQLITE_DEFINITIONS = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
POSTGRESQL_DEFINITIONS = """
    SELECT table_name || '.' || column_name,
           concat_ws(' ', rank() OVER (PARTITION BY table_name ORDER BY ordinal_position),
                     data_type, character_maximum_length, is_nullable, column_default)
      FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
      FROM pg_constraint WHERE connamespace = 'public'::regnamespace
"""


def _definitions(conn: Connection) -> dict[str, str]:
    asked = SQLITE_DEFINITIONS if conn.dialect.name == "sqlite" else POSTGRESQL_DEFINITIONS
    rows = conn.execute(text(asked))
    return {name: " ".join(sql.split()) for name, sql in rows if not name.startswith(("alembic_", "sqlite_"))}


def test_down_takes_every_table_away_and_up_brings_it_back(db: Database) -> None:
    def down(conn: Connection) -> None:
        command.downgrade(alembic_config(conn), "base")

    db.write(down).result(timeout=10)
    with db.reading() as conn:
        assert set(inspect(conn).get_table_names()) == {"alembic_version"}
    db.migrate()
    with db.reading() as conn:
        assert set(models.metadata.tables) <= set(inspect(conn).get_table_names())


def test_what_runs_say_of_themselves_survives_the_way_down_and_up(store: Store) -> None:
    store.put(config={"lr": 0.5}, frameworks={"torch": "2.13"})
    store.write(lambda conn: runs.patch_run(conn, RUN, now_s=1.0, notes="why"))
    before = store.run()
    store.write(lambda conn: command.downgrade(alembic_config(conn), "0001"))
    store.db.migrate()
    assert store.run() == before


def test_live_positions_survive_the_way_down_and_up_and_go_on(store: Store) -> None:
    store.send([0], loss=[1.0])
    before = store.read(ticks_after, 0, limit=100)
    store.write(lambda conn: command.downgrade(alembic_config(conn), "0002"))
    store.db.migrate()
    assert store.read(ticks_after, 0, limit=100) == before
    store.send([1], loss=[1.0])
    assert [tick.position for tick in store.read(ticks_after, before[-1].position, limit=100)] == [
        before[-1].position + 1
    ]


def test_migrating_again_changes_nothing(db: Database) -> None:
    with db.reading() as conn:
        before = _definitions(conn)
    db.migrate()
    with db.reading() as conn:
        assert _definitions(conn) == before


def test_a_database_of_a_newer_version_is_refused_in_a_sentence_and_left_alone(db: Database) -> None:
    db.write(lambda conn: conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))).result(timeout=10)
    with pytest.raises(NewerDatabaseError, match=r"'9999'.*update Gradsight"):
        db.migrate()
    with db.reading() as conn:
        assert conn.scalar(text("SELECT version_num FROM alembic_version")) == "9999"


def test_a_migration_that_fails_leaves_nothing_behind(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def upgrade_and_fail(config: object, revision: str) -> None:
        real_upgrade(config, revision)  # type: ignore[arg-type]
        raise RuntimeError("power cut")

    real_upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", upgrade_and_fail)
    db = Database(empty_url)
    try:
        with pytest.raises(RuntimeError, match="power cut"):
            db.migrate()
        with db.reading() as conn:
            assert inspect(conn).get_table_names() == []
    finally:
        db.close()


def test_processes_that_migrate_one_new_database_at_once_do_not_clash(empty_url: str) -> None:
    code = (
        "import sys; from gradsight_server.store.database import Database\n"
        "db = Database(sys.argv[1]); print('ready', flush=True); sys.stdin.readline(); db.migrate(); db.close()"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, empty_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")


def test_the_migrations_are_found_in_this_checkout() -> None:
    assert (migrations_folder() / "env.py").is_file()
    assert migrations_folder() == Path(__file__).parents[3] / "migrations"
