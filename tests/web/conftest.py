"""One server for the tests of a module; a page for each, that may make no complaint and ask nobody else."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    ViewportSize,
    expect,
)

from tests.web.kit import DEADLINE_S, SentRun, Served, send_too_tight

SIZE: ViewportSize = {"width": 1280, "height": 900}

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


def _context(browser: Browser) -> BrowserContext:
    made = browser.new_context(viewport=SIZE, color_scheme="light")
    made.set_default_timeout(DEADLINE_S * 1000)
    return made


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """The tab that the tests of a module share: a new one would compile Plotly and ask for 100 files once more."""
    context = _context(browser)
    yield context.new_page()
    context.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser of its own, as far as storage and shared workers go: for permissions, scripts and further tabs."""
    made = _context(browser)
    yield made
    made.close()


class Complaints(list[str]):
    """What the browser said of a page; a test that provokes some empties it."""


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def page(request: pytest.FixtureRequest, served: Served, complaints: Complaints) -> Iterator[Page]:
    """A page; no complaint of the browser and no request to anywhere but the server may come from it.

    It is the module's tab, wiped; a new one in `context` where the test asks for that too.
    """
    is_shared = "context" not in request.fixturenames
    page: Page = request.getfixturevalue("tab") if is_shared else request.getfixturevalue("context").new_page()
    urls: list[str] = []

    def note_words(said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            complaints.append(said.text)

    def note_error(error: Error) -> None:
        complaints.append(str(error))

    def note_request(asked: Request) -> None:
        urls.append(asked.url)

    page.on("console", note_words)
    page.on("pageerror", note_error)
    page.context.on("request", note_request)
    yield page
    page.remove_listener("console", note_words)
    page.remove_listener("pageerror", note_error)
    page.context.remove_listener("request", note_request)
    if is_shared:
        _wipe(page, served)
    elsewhere = [url for url in urls if not url.startswith((served.url + "/", "data:", "blob:"))]
    assert not elsewhere
    assert not complaints


def _wipe(page: Page, served: Served) -> None:
    """Leaves nothing of a test in its tab. Stays at the server, as the browser would take a new process elsewhere."""
    page.unroute_all(behavior="ignoreErrors")
    page.goto(f"{served.url}/healthz")
    page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    page.context.clear_cookies()
    page.set_viewport_size(SIZE)
    page.emulate_media(color_scheme="light")
    page.mouse.move(0, 0)


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
