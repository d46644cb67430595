"""A real, migrated SQLite file for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gradsight_server.store.database import Database
from tests.server.store.kit import Store


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'gradsight.db'}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = Database(url)
    database.migrate()
    yield database
    database.close()


@pytest.fixture
def store(db: Database) -> Store:
    """A database with one run."""
    made = Store(db)
    made.put()
    return made
