"""What a driver's error means: a full disk, a database held by others or out of reach, or what the driver said."""

import re
import sqlite3
from collections.abc import Iterator

import sqlalchemy.exc

from gradsight_server.errors import DatabaseBusyError, DiskFullError

POSTGRESQL_DISK_FULL = "53100"
POSTGRESQL_OUT_OF_REACH = re.compile("08...|53300|57P0[1-5]")
"""The connection is lost, there are too many of them, or the server is starting or stopping."""
POSTGRESQL_TRY_AGAIN = ("23503", "23505", "40001", "40P01")
"""Two transactions stood in each other's way: this one was given up, or the other has deleted what this one's rows
hang on, or made the same row, since this one looked."""
DISK_FULL = (
    "The disk is full: nothing of this was stored, and what was stored before is safe. Make room and send again."
)
BUSY = "Another process holds the database: come back later."
OUT_OF_REACH = "The database cannot be reached: come back later."


def explained(error: BaseException) -> BaseException:
    """The error itself, or in its place the one that names what is behind it."""
    for cause in _behind(error):
        extended = getattr(cause, "sqlite_errorcode", 0)
        code = extended & 0xFF  # what is above tells the kinds of one error apart
        # A file or a quota that may not grow is no SQLITE_FULL: SQLite knows that word of the operating system alone.
        is_full = code == sqlite3.SQLITE_FULL or extended == sqlite3.SQLITE_IOERR_WRITE
        if is_full or _sqlstate(cause) == POSTGRESQL_DISK_FULL:
            return _raised_from(DiskFullError(DISK_FULL), error)
        if code == sqlite3.SQLITE_BUSY:
            return _raised_from(DatabaseBusyError(BUSY), error)
        if _is_out_of_reach(cause):
            return _raised_from(DatabaseBusyError(OUT_OF_REACH), error)
    return error


def is_passing(error: BaseException) -> bool:
    """Whether the same again may do: another transaction stood in the way, and what it left is there to be read now."""
    return any(_sqlstate(cause) in POSTGRESQL_TRY_AGAIN for cause in _behind(error))


def _is_out_of_reach(error: BaseException) -> bool:
    if isinstance(error, sqlalchemy.exc.TimeoutError):
        return True  # every connection that we may open is in use
    if not type(error).__module__.startswith("psycopg"):
        return False
    state = _sqlstate(error)
    if state is None:  # told by the driver, not by the server
        return type(error).__name__ in ("OperationalError", "ConnectionTimeout")
    return POSTGRESQL_OUT_OF_REACH.fullmatch(state) is not None


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None)


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it: once SQLite has rolled back, every later statement fails for another reason."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            yield found
            waiting += [found.__context__, found.__cause__, getattr(found, "orig", None)]


def _raised_from(explained: BaseException, error: BaseException) -> BaseException:
    explained.__cause__ = error
    return explained
