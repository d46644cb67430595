"""One server for the tests of a module; a page for each, that may make no complaint and ask nobody else."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.web.kit import DEADLINE_S, SentRun, Served, send_too_tight

# Two cores may have more to do than this browser.
expect.set_options(timeout=DEADLINE_S * 1000)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server without a token."""
    found = Served(tmp_path_factory.mktemp("page"))
    found.start()
    yield found
    found.close()


@pytest.fixture(autouse=True)
def _empty(served: Served) -> None:
    served.forget_all()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser of its own, as far as storage and shared workers go."""
    made = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    made.set_default_timeout(DEADLINE_S * 1000)
    yield made
    made.close()


class Complaints(list[str]):
    """What the browser said of a page; a test that provokes some empties it."""


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def page(context: BrowserContext, served: Served, complaints: Complaints) -> Iterator[Page]:
    """A page; no complaint of the browser and no request to anywhere but the server may come from it."""
    made = context.new_page()
    made.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    made.on("pageerror", lambda error: complaints.append(str(error)))
    requests: list[str] = []
    context.on("request", lambda request: requests.append(request.url))
    yield made
    elsewhere = [url for url in requests if not url.startswith((served.url + "/", "data:", "blob:"))]
    assert not elsewhere
    assert not complaints


@pytest.fixture
def run(served: Served) -> SentRun:
    """A run with forty steps in every chart."""
    made = served.put(project="lm", name="baseline", total_steps=100)
    made.send(range(40))
    return made


@pytest.fixture
def tight(served: Served) -> SentRun:
    """A run whose threshold clips every step."""
    made = served.put(project="lm", name="tight", streams={"main": {"policy": "global_norm(1.0)", "scaler": None}})
    send_too_tight(made, range(200))
    return made
