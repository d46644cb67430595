"""New databases for the benchmarks, on either engine, and how much room they take."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from gradsight_server.store.database import Database

Engine = Literal["sqlite", "postgresql"]
ENGINES = ("sqlite", "postgresql")


@contextmanager
def new_database(engine: Engine, folder: Path) -> Iterator[str]:
    """The URL of an empty database of this version."""
    if engine == "sqlite":
        with _migrated(f"sqlite:///{folder / 'gradsight.db'}") as url:
            yield url
        return
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests import postgres  # late: needs the driver and PostgreSQL's binaries

    postgres.SETTINGS |= {
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "shared_buffers": "256MB",
    }
    with postgres.running_cluster() as cluster, cluster.database() as name, _migrated(cluster.url(name)) as url:
        yield url


@contextmanager
def _migrated(url: str) -> Iterator[str]:
    database = Database(url)
    database.migrate()
    database.close()
    yield url


def num_bytes(url: str) -> int:
    """How much room a database takes, once everything is in it and nothing in its log."""
    database = Database(url)
    try:
        return database.num_bytes()
    finally:
        database.close()
