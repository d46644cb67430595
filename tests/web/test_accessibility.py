"""Each page in both themes under axe-core: nothing serious. And by hand: a phone's width, reduced motion, focus."""

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.web.kit import SentRun, Served, send_too_tight, wait_for_charts

GRAVE = ("serious", "critical")


@pytest.fixture
def filled(served: Served) -> list[SentRun]:
    tight = served.put(project="lm", name="tight", tags=["prod"], total_steps=1000, config={"lr": 1.0})
    send_too_tight(tight, range(200))
    bf16 = {"main": {"precision": "bf16", "scaler": None}}
    sick = served.put(project="gan", name="sick", config={"lr": 2.0}, streams=bf16)
    sick.send(range(60), loss_scale=None)
    sick.send(range(60, 70), grad_norm_before_clip=["NaN"] * 10, clip_coef=None, loss_scale=None)
    return [tight, sick]


@pytest.fixture(params=["light", "dark"])
def themed(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme=request.param, reduced_motion="reduce"
    )
    context.set_default_timeout(20_000)
    yield context.new_page()
    context.close()


def grave_findings(page: Page) -> list[str]:
    found: dict[str, Any] = Axe().run(page).response
    return [
        f"{violation['id']} ({violation['impact']}): {violation['help']}: "
        + "; ".join(node["html"][:160] for node in violation["nodes"][:4])
        for violation in found["violations"]
        if violation["impact"] in GRAVE
    ]


def test_the_list_of_runs_has_no_serious_finding(themed: Page, served: Served, filled: list[SentRun]) -> None:
    themed.goto(served.url)
    expect(themed.locator("run-row verdict-badge:visible").first).to_be_visible()
    themed.get_by_label("Select tight").check()
    assert grave_findings(themed) == []
    themed.get_by_role("button", name="Delete…").click()
    assert grave_findings(themed) == []
    themed.keyboard.press("Escape")
    themed.keyboard.press("?")
    assert grave_findings(themed) == []


def test_the_page_before_the_first_run_has_none(themed: Page, served: Served) -> None:
    themed.goto(served.url)
    expect(themed.locator("first-run")).to_be_visible()
    assert grave_findings(themed) == []


def test_the_page_of_a_run_has_none(themed: Page, filled: list[SentRun]) -> None:
    themed.goto(f"{filled[0].url}?why=clipping")
    expect(themed.locator(".why")).to_be_visible()
    wait_for_charts(themed, ["norm", "clip_fraction", "clip_coef", "loss"])
    assert grave_findings(themed) == []


def test_the_comparison_has_none(themed: Page, served: Served, filled: list[SentRun]) -> None:
    themed.goto(f"{served.url}/compare?runs={','.join(run.id for run in filled)}")
    expect(themed.locator("compare-settings tbody tr").first).to_be_visible()
    assert grave_findings(themed) == []


def test_the_alerts_have_none(themed: Page, served: Served, filled: list[SentRun]) -> None:
    themed.goto(f"{served.url}/alerts?state=all")
    expect(themed.locator("alert-row").first).to_be_visible()
    assert grave_findings(themed) == []


def test_the_settings_have_none(themed: Page, served: Served) -> None:
    themed.goto(f"{served.url}/settings")
    themed.locator("alert-rule[data-kind=norm_spike] summary").click()
    expect(themed.locator("server-state dd").first).to_be_visible()
    assert grave_findings(themed) == []


def test_a_page_that_is_none_has_none(themed: Page, served: Served) -> None:
    themed.goto(f"{served.url}/runs/a/b")
    expect(themed.get_by_role("heading", level=1)).to_be_visible()
    assert grave_findings(themed) == []


@pytest.mark.parametrize("width", [360, 3840])
def test_no_page_scrolls_sideways(browser: Browser, served: Served, filled: list[SentRun], width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    page = context.new_page()
    compare = f"/compare?runs={','.join(run.id for run in filled)}"
    for path, there in (
        ("/", "run-row"),
        (filled[0].path, "verdict-card"),
        (compare, "compare-chart"),
        ("/alerts?state=all", "alert-row"),
        ("/settings", "alert-rule"),
    ):
        page.goto(served.url + path)
        expect(page.locator(there).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    context.close()


def test_nothing_moves_for_those_who_ask_for_that(themed: Page, served: Served, filled: list[SentRun]) -> None:
    themed.goto(served.url)
    expect(themed.locator("run-row").first).to_be_visible()
    moving = themed.evaluate("document.getAnimations().length")
    assert moving == 0
