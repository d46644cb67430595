"""One server for the tests of a module, with one run for each of them."""

from collections.abc import Iterator

import pytest

from tests.server.api.kit import RUN, Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server without a token. Tests leave its database empty."""
    with running(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture
def run_server(server: Running) -> Iterator[Running]:
    """The same with one run that has no steps yet."""
    server.put()
    yield server
    server.client.delete(f"/api/v1/runs/{RUN}")
