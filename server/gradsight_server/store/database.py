"""One database: read sessions, migration under a lock, and the one writer."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from gradsight_server.errors import DatabaseClosedError, NewerDatabaseError
from gradsight_server.store import pending
from gradsight_server.store.engines import begin, keep_wal, make_engine
from gradsight_server.store.faults import explained
from gradsight_server.store.leadership import Leadership
from gradsight_server.store.models import metadata
from gradsight_server.store.prepared import execute
from gradsight_server.store.room import try_to_grow
from gradsight_server.store.rule_book import RuleBook
from gradsight_server.store.writer import GroupWriter

T = TypeVar("T")
ROOM_TIMEOUT_S = 10.0
MIGRATION_LOCK = 0x6772_6164  # the key of PostgreSQL's advisory lock, any constant of our own


class Database:
    """One database: reads from any thread, writes through one."""

    def __init__(self, url: str, *, sync: Literal["normal", "full"] = "normal") -> None:
        self.on_commit: list[Callable[[], None]] = []
        """Called from the writer thread after each commit that wrote."""
        self._engine = make_engine(url, sync, writing=False)
        self._writer_engine = make_engine(url, sync, writing=True)
        self._writer = GroupWriter(
            self._writing, pending.finish, on_commit=self.on_commit, on_end=self._writer_engine.dispose
        )
        self._closed = threading.Event()
        self._rule_book = RuleBook()

    @property
    def queue_depth(self) -> int:
        """How many works wait for the writer."""
        return self._writer.queue_depth

    def migrate(self) -> None:
        """Brings the tables to this version, under a lock that a second server waits for.

        Raises:
            NewerDatabaseError: a newer Gradsight has already been here.
        """
        self._check_open()
        keep_wal(self._engine)
        with self._writing() as conn:
            if conn.dialect.name == "postgresql":
                conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
            config = alembic_config(conn)
            _refuse_newer(conn, ScriptDirectory.from_config(config))
            command.upgrade(config, "head")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read session: everything read in it is of one moment."""
        self._check_open()
        pool = self._engine.pool
        try:
            with begin(self._engine, writing=False) as conn:
                yield conn
        except Exception as error:
            raise explained(error) from error.__cause__
        finally:
            if self._closed.is_set():  # meanwhile: nobody else would close the connection that has just come back
                pool.dispose()

    def write(self, work: Callable[[Connection], T]) -> Future[T]:
        """The future of what `work` returns, done once it is committed.

        What `work` raises fails only this future, and nothing of it is stored. Never blocks.
        """
        return self._writer.submit(work)

    def check_room(self) -> None:
        """Asks again whether there is room, where the disk was full when something was written last.

        Raises:
            DiskFullError: it still is.
        """
        if self._writer.is_full:
            self.write(try_to_grow).result(ROOM_TIMEOUT_S)

    def leadership(self) -> Leadership:
        """A candidate for doing what only one server may do; whoever takes it gives it up before the end."""
        return Leadership(self._engine)

    def vacuum(self) -> None:
        """Gives the room of what was deleted back, and has the engine count anew for its plans.

        SQLite writes the file afresh meanwhile: others' writes wait, and there must be room for a second copy.
        """
        self._check_open()
        if self._engine.dialect.name == "sqlite":
            connection = self._engine.raw_connection()
            try:
                for statement in ("VACUUM", "PRAGMA optimize", "PRAGMA wal_checkpoint(TRUNCATE)"):
                    connection.cursor().execute(statement)
            finally:
                connection.close()
            return
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            for name in metadata.tables:
                execute(conn, f"VACUUM (ANALYZE) {name}")

    @contextmanager
    def administering(self) -> Iterator[Connection]:
        """A connection that commits each statement by itself, for what is done once and by hand."""
        self._check_open()
        try:
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
                yield conn
        except Exception as error:
            raise explained(error) from error.__cause__

    def num_bytes(self) -> int:
        """How much room it takes on disk."""
        with self.reading() as conn:
            if conn.dialect.name == "sqlite":
                pages, size = (
                    conn.exec_driver_sql(f"PRAGMA {what}").scalar_one() for what in ("page_count", "page_size")
                )
                return int(pages * size)
            return int(conn.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())

    def close(self, *, deadline_s: float = 10.0) -> None:
        """Commits what waits, as far as the deadline allows, and lets go of the file. Later calls do nothing."""
        self._writer.close(deadline_s)
        self._closed.set()
        self._engine.dispose()

    def _writing(self) -> AbstractContextManager[Connection]:
        return begin(self._writer_engine, writing=True, **{pending.OPTION: pending.Pending(self._rule_book)})

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise DatabaseClosedError("The database is closed.")


def migrations_folder() -> Path:
    """Where the Alembic scripts are: beside the package in a wheel, at the repository's root in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parents[1] / "migrations"


def alembic_config(conn: Connection) -> Config:
    """What Alembic's commands need to work on this very connection, inside its transaction."""
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    return config


def _refuse_newer(conn: Connection, scripts: ScriptDirectory) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    for revision in MigrationContext.configure(conn).get_current_heads():
        if revision not in known:
            raise NewerDatabaseError(
                f"The database is of revision {revision!r}, made by a newer Gradsight; "
                f"this one knows up to {scripts.get_current_head()!r}: update Gradsight, or name another database."
            )
