"""What the tests of all rooms share: a browser, and the deselection of what this machine has no device for."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser import FLAGS, find_browser


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests marked `gpu` where there is no CUDA device: not skipped, they were never for this machine."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch  # late: most runs of a part of the tests do without its second of start-up

    if not torch.cuda.is_available():
        config.hook.pytest_deselected(items=on_gpu)
        items[:] = [item for item in items if item not in on_gpu]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium.

    One for each test module rather than for the session, because while Playwright runs, its event loop counts as
    running in this thread, and a test that calls `asyncio.run` fails.
    """
    path = find_browser()
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path, args=FLAGS) as chromium:
        yield chromium
