"""What a driver's error means to who wrote: a full disk, a database held by others, or what the driver said."""

import sqlite3
from collections.abc import Iterator

from gradsight_server.errors import DatabaseBusyError, DiskFullError

POSTGRESQL_DISK_FULL = "53100"
DISK_FULL = (
    "The disk is full: nothing of this was stored, and what was stored before is safe. Make room and send again."
)
BUSY = "Another process holds the database: come back later."


def explained(error: BaseException) -> BaseException:
    """The error itself, or in its place the one that names what is behind it."""
    for cause in _behind(error):
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF  # what is above tells the kinds of one error apart
        if code == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) == POSTGRESQL_DISK_FULL:
            return _raised_from(DiskFullError(DISK_FULL), error)
        if code == sqlite3.SQLITE_BUSY:
            return _raised_from(DatabaseBusyError(BUSY), error)
    return error


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
