"""A real, migrated database for every test, on each engine."""

from collections.abc import Iterator

import pytest

from gradsight_server.store.database import Database
from tests.server.store.kit import Store


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
