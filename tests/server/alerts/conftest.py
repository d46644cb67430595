"""A real, migrated database for every test that asks for one, on each engine."""

from collections.abc import Iterator

import pytest

from gradsight_server.store.database import Database
from tests.server.store.kit import Store


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """A database with one run."""
    database = Database(url)
    database.migrate()
    made = Store(database)
    made.put()
    yield made
    database.close()
