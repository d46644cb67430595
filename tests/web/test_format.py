"""Numbers and times as the page writes them, asked of the page's own module in a browser."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.web.kit import Served, call_of

NO_BREAK = "\u00a0"


@pytest.fixture(scope="module")
def module_page(browser: Browser, served: Served) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(served.url)
    yield page
    page.close()


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (("integer", 65536), "65,536"),
        (("integer", None), "–"),
        (("number", 20.123), "20.1"),
        (("number", 0.0600), "0.0600"),
        (("number", 9.996), "10.0"),
        (("number", 999.6), "1,000"),
        (("number", 12345.6), "12,346"),
        (("number", 0.0000123), "1.23e-5"),
        (("number", 1.2e-5, 2), "1.2e-5"),
        (("number", 3e-4), "3e-4"),
        (("number", 1e6), "1e6"),
        (("number", -0.5), "−0.500"),
        (("number", 0), "0"),
        (("plain", 1), "1"),
        (("plain", 0.25), "0.25"),
        (("percent", 0, 10), f"0{NO_BREAK}%"),
        (("percent", 1, 100_000), f"<{NO_BREAK}0.01{NO_BREAK}%"),
        (("percent", 9999, 10_000), f"99.9{NO_BREAK}%"),
        (("percent", 1, 0), "–"),
        (("powerOfTwo", 16), "2¹⁶"),
        (("powerOfTwo", -3), "2⁻³"),
        (("lossScale", 65536), "65,536"),
        (("lossScale", 2**32), "2³²"),
        (("lossScale", 0.5), "0.5000"),
        (("maxNorm", 1), "1.0"),
        (("maxNorm", 0.1), "0.1"),
        (("rate", 3.14), f"3.1{NO_BREAK}steps/s"),
        (("rate", 0.02), f"50{NO_BREAK}s/step"),
        (("duration", 8880), f"2{NO_BREAK}h 28{NO_BREAK}min"),
        (("ago", 1), "now"),
        (("ago", 12.7), f"12{NO_BREAK}s{NO_BREAK}ago"),
        (("ago", 7200), f"2{NO_BREAK}h{NO_BREAK}ago"),
        (("abbreviated", 124_439_808), f"124{NO_BREAK}M"),
        (("stepLabel", 1_250_000, 50_000), f"1.25{NO_BREAK}M"),
        (("stepLabel", 12_500, 500), "12,500"),
        (("stepLabel", 2_000_000_000_000_000, 2e15), f"2,000{NO_BREAK}T"),
        (("stepLabel", 12_345_678_100, 1e8), f"12.3{NO_BREAK}B"),
        (("stepLabel", 12_345_678_100, 100), f"12,345.6781{NO_BREAK}M"),
    ],
    ids=str,
)
def test_numbers_are_written_as_people_read_them(module_page: Page, call: tuple[Any, ...], written: str) -> None:
    name, *arguments = call
    assert call_of(module_page, "format.js", name, *arguments) == written


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (("linearTicks", [0, 1.05], 3), [0, 0.5, 1]),
        (("logTicks", [0.8, 400], 7), [1, 3, 10, 30, 100, 300]),
        (("logTicks", [1e-6, 1e6], 7), [1e-6, 1e-4, 1e-2, 1, 1e2, 1e4, 1e6]),
        (("powerOfTwoTicks", [2**13, 2**18], 3), [2**14, 2**16, 2**18]),
    ],
    ids=str,
)
def test_ticks_stand_at_round_values(module_page: Page, call: tuple[Any, ...], values: list[float]) -> None:
    name, *arguments = call
    assert call_of(module_page, "axes.js", name, *arguments)["values"] == values
