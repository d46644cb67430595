"""One server for the tests of a module, with one run for each of them."""

from collections.abc import Iterator

import pytest

from tests.postgres import NewDatabase
from tests.server.api.kit import RUN, Running, running, wait_until


@pytest.fixture(scope="module")
def server(new_database: NewDatabase) -> Iterator[Running]:
    """A server without a token. Tests leave its database empty."""
    with new_database("tables") as url, running(db=url) as found:
        yield found


@pytest.fixture
def run_server(server: Running) -> Iterator[Running]:
    """The same with one run that has no steps yet."""
    # What the test before left of a large run is deleted behind its back, and until then the id is taken.
    wait_until(lambda: server.client.put(f"/api/v1/runs/{RUN}").status_code == 200)
    yield server
    server.client.delete(f"/api/v1/runs/{RUN}")
