"""`gradsight db …`: what is done to a database from outside of a server."""

import time

from gradsight_server.serve import open_or_explain
from gradsight_server.settings import load_settings
from gradsight_server.store import citus, retention
from gradsight_server.store.backup import sqlite_file


def compact(**options: object) -> str:
    """Applies retention, gives free room back to the disk, and says in a sentence what came of it.

    Raises:
        SettingsError: there is no such database.
    """
    settings = load_settings(**options)
    sqlite_file(settings.db_url)  # opening one that is not there would make it
    database = open_or_explain(settings)
    try:
        before = database.num_bytes()
        keep = retention.Keep(days=settings.keep_raw_days, steps=settings.keep_raw_steps)
        num_attempts = retention.sweep(database, keep, now_s=time.time())
        database.vacuum()
        after = database.num_bytes()
    finally:
        database.close()
    removed = f"raw steps of {num_attempts} attempt{'s' * (num_attempts != 1)} were removed; " if num_attempts else ""
    return f"{settings.shown_db}: {removed}{before / 1e6:.1f} MB before, {after / 1e6:.1f} MB now."


def distribute(**options: object) -> None:
    """Spreads the tables over a Citus cluster, and prints each step.

    Raises:
        SettingsError: the database has no Citus; it says what is missing.
    """
    settings = load_settings(**options)
    database = open_or_explain(settings)
    try:
        with database.administering() as conn:
            citus.distribute(conn, lambda step: print(step, flush=True))
    finally:
        database.close()
