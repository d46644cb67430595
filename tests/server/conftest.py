"""Where a test's own database is, on each engine."""

from collections.abc import Iterator

import pytest

from tests.postgres import Cluster, NewDatabase


@pytest.fixture
def url(new_database: NewDatabase) -> Iterator[str]:
    """Where a new database is."""
    with new_database("tables") as found:
        yield found


@pytest.fixture
def empty_url(new_database: NewDatabase) -> Iterator[str]:
    """Where a database is that nobody has migrated."""
    with new_database("nothing") as found:
        yield found


@pytest.fixture
def postgresql_url(postgres: Cluster, migrated: str) -> Iterator[str]:
    """Where a new PostgreSQL database is, for what only that engine can do; such a test is marked `postgresql`."""
    with postgres.database(migrated) as name:
        yield postgres.url(name)
