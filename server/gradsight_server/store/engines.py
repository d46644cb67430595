"""How the two engines are set up: SQLite's pragmas, PostgreSQL's pool, and how their transactions begin."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event, make_url

BUSY_TIMEOUT_S = 10.0
READING_CONNECTIONS = 8
"""Kept open to PostgreSQL by one server; twice as many at most, while many read at once."""
POOL_TIMEOUT_S = 10.0
WRITING = "gradsight_writing"
# A machine that vanishes holds its locks until PostgreSQL notices: within half a minute instead of two hours.
KEEPALIVES = "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"


def make_engine(url: str, sync: Literal["normal", "full"], *, writing: bool) -> Engine:
    """An engine for many readers, or for the one writer: readers who wait for each other never make it wait."""
    if make_url(url).get_backend_name() == "sqlite":
        return _sqlite(url, sync)
    size = 1 if writing else READING_CONNECTIONS
    engine = create_engine(
        url,
        json_serializer=_json,
        pool_size=size,
        max_overflow=size,
        pool_timeout=POOL_TIMEOUT_S,
        pool_pre_ping=True,
    )
    event.listen(engine, "connect", _keep_alive)
    return engine


@contextmanager
def begin(engine: Engine, *, writing: bool, **options: Any) -> Iterator[Connection]:
    """A transaction. One that only reads sees one moment; SQLite's that writes holds the lock from its first word."""
    options[WRITING] = writing
    if engine.dialect.name == "postgresql" and not writing:
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect().execution_options(**options) as conn, conn.begin():
        yield conn


def keep_wal(engine: Engine) -> None:
    """Puts an SQLite file into WAL mode, for good. While another process does the same, SQLite is busy at once."""
    if engine.dialect.name != "sqlite":
        return
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        connection = engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        finally:
            connection.close()


def _sqlite(url: str, sync: str) -> Engine:
    engine = create_engine(url, json_serializer=_json, max_overflow=-1)  # readers never wait for a connection

    @event.listens_for(engine, "connect")
    def set_pragmas(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.isolation_level = None  # sqlite3 would begin on its own, too late and never IMMEDIATE
        for pragma in (
            f"busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}",
            "foreign_keys = ON",
            f"synchronous = {sync.upper()}",
        ):
            dbapi_connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(conn: Connection) -> None:
        writing = conn.get_execution_options().get(WRITING, False)
        conn.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _keep_alive(dbapi_connection: Any, _record: Any) -> None:
    dbapi_connection.execute(KEEPALIVES)
    dbapi_connection.commit()


def _json(value: Any) -> str:
    """JSON as both engines take it: non-finite numbers become null."""
    return msgspec.json.encode(value).decode()
