"""What the tests of all rooms share: a browser, both database engines, and what is left out on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
from playwright.sync_api import Browser, sync_playwright

from gradsight_server.store.database import Database
from tests.browser import FLAGS, find_browser
from tests.postgres import Cluster, NewDatabase, find_postgres, running_cluster

NO_POSTGRES = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what this machine has no CUDA device or PostgreSQL for: not skipped, it was never for this machine."""
    if _marked(items, "gpu"):
        import torch  # late: most runs of a part of the tests do without its second of start-up

        if not torch.cuda.is_available():
            _deselect(config, items, "gpu")
    if _marked(items, "postgresql") and find_postgres() is None:
        config.stash[NO_POSTGRES] = _deselect(config, items, "postgresql")


def _marked(items: list[pytest.Item], name: str) -> list[pytest.Item]:
    return [item for item in items if item.get_closest_marker(name)]


def _deselect(config: pytest.Config, items: list[pytest.Item], name: str) -> int:
    gone = _marked(items, name)
    config.hook.pytest_deselected(items=gone)
    items[:] = [item for item in items if item not in gone]
    return len(gone)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says in a line where the half of the tests that needs PostgreSQL was left out."""
    if num_tests := config.stash.get(NO_POSTGRES, 0):
        line = f"{num_tests} tests on PostgreSQL left out: its binaries are not here (tests/postgres.py installs them)"
        terminalreporter.write_line(line, yellow=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium.

    One for each test module rather than for the session, because while Playwright runs, its event loop counts as
    running in this thread, and a test that calls `asyncio.run` fails.
    """
    path = find_browser()
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path, args=FLAGS) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """A PostgreSQL of this test run's own."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def migrated(postgres: Cluster) -> Iterator[str]:
    """A PostgreSQL database with our tables, to copy."""
    with postgres.database() as name:
        database = Database(postgres.url(name))
        database.migrate()
        database.close()
        yield name


@pytest.fixture(scope="session", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def engine(request: pytest.FixtureRequest) -> str:
    """Which database engine a test runs on: it runs once on each."""
    return str(request.param)


@pytest.fixture(scope="session")
def new_database(engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> NewDatabase:
    """Makes databases on that engine that nothing has been written to, and gives their URL until the block ends.

    With "tables" they need no migration on PostgreSQL, where that takes a while; with "nothing" they are empty.
    """
    if engine == "sqlite":
        return lambda _: nullcontext(f"sqlite:///{tmp_path_factory.mktemp('db') / 'gradsight.db'}")
    cluster: Cluster = request.getfixturevalue("postgres")

    @contextmanager
    def made(inside: str) -> Iterator[str]:
        template = request.getfixturevalue("migrated") if inside == "tables" else "template0"
        with cluster.database(template) as name:
            yield cluster.url(name)

    return made
