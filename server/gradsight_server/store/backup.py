"""A copy of an SQLite database while a server writes to it."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import make_url

from gradsight_server.errors import SettingsError


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for another engine.

    Raises:
        SettingsError: there is no such file.
    """
    place = make_url(url)
    if place.get_backend_name() != "sqlite":
        return None
    file = Path(place.database or "")
    if not file.is_file():
        raise SettingsError(f"db must be a database that is there, got {str(file)!r}.")
    return file


def back_up(url: str, target: Path) -> None:
    """Copies the database as it is at one moment; the target is there whole or not at all.

    Raises:
        SettingsError: there is nothing to copy from, the target is in the way, or the engine has a tool of its own.
    """
    source = sqlite_file(url)
    if source is None:
        raise SettingsError(
            f"a backup of PostgreSQL is made by its own pg_dump: pg_dump --format=custom --file={target} "
            f"{make_url(url).database or 'gradsight'}"
        )
    if target.exists():
        raise SettingsError(f"TARGET must be a file that is not there yet, got {str(target)!r}.")
    partial = target.with_name(f"{target.name}.partial")
    try:
        # In one step: others write meanwhile, and a backup in several would begin anew with each of their commits.
        with closing(sqlite3.connect(source)) as reading, closing(sqlite3.connect(partial)) as writing:
            reading.backup(writing)
        os.replace(partial, target)
    except (sqlite3.Error, OSError) as error:
        raise SettingsError(f"{str(source)!r} could not be copied to {str(target)!r}: {error}.") from error
    finally:
        partial.unlink(missing_ok=True)
