"""What a person chooses in this browser, and the server's state: theme, language, storage."""

import re

from playwright.sync_api import Browser, BrowserContext, Page, expect

from gradsight_server.diagnosis.texts import CATALOGUES
from tests.web.conftest import Complaints
from tests.web.kit import SentRun, Served, wait_for_charts, wait_until

GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(247, 248, 250)", "rgb(14, 17, 22)"


def test_a_theme_is_chosen_kept_and_worn_by_every_tab_and_chart(
    context: BrowserContext, page: Page, served: Served, tight: SentRun
) -> None:
    other = context.new_page()
    other.goto(tight.url)
    wait_for_charts(other, ["norm", "clip_fraction", "clip_coef", "loss"])
    colour = "document.querySelector('chart-row[data-figure=norm] .chart-plot')._fullLayout.font.color"
    before = other.evaluate(colour)
    page.goto(f"{served.url}/settings")
    assert page.evaluate(GROUND) == LIGHT
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(GROUND) == DARK
    wait_until(lambda: other.evaluate(GROUND) == DARK)
    wait_until(lambda: other.evaluate(colour) != before)
    page.reload()
    assert page.evaluate(GROUND) == DARK
    expect(page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="System").click()
    assert page.evaluate(GROUND) == LIGHT
    page.emulate_media(color_scheme="dark")
    wait_until(lambda: page.evaluate(GROUND) == DARK)


def test_the_theme_is_there_before_the_page_is_painted(page: Page, served: Served, complaints: Complaints) -> None:
    page.emulate_media(color_scheme="dark")
    page.route("**/main.js", lambda route: route.abort())
    page.goto(served.url, wait_until="domcontentloaded")
    assert page.evaluate(GROUND) == DARK
    complaints.clear()


def test_the_page_speaks_chinese_where_that_is_chosen(page: Page, served: Served, tight: SentRun) -> None:
    page.goto(f"{served.url}/settings")
    page.get_by_label("Language").select_option(label="简体中文")
    expect(page.get_by_role("heading", level=1)).to_have_text("设置")
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    page.goto(tight.url)
    badge = page.locator("verdict-card").first
    expect(badge).to_contain_text("过紧")
    expect(badge).to_contain_text(re.compile("最近 .* 步中有 100 % 被裁剪"))
    page.get_by_role("link", name="运行").first.click()
    expect(page.locator("run-row verdict-badge:visible").first).to_have_text("过紧")
    page.goto(f"{served.url}/?lang=en")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


def test_a_browser_that_prefers_chinese_is_answered_so(browser: Browser, served: Served) -> None:
    context = browser.new_context(locale="zh-CN")
    chinese = context.new_page()
    chinese.goto(served.url)
    expect(chinese.get_by_role("heading", name="还没有运行")).to_be_visible()
    context.close()


def test_no_english_is_left_on_the_chinese_pages(page: Page, served: Served, tight: SentRun) -> None:
    """Latin letters are names, code and units there: no two English words follow each other."""
    pages = {"/?lang=zh": "run-row", f"/compare?runs={tight.id}&lang=zh": "compare-chart", "/alerts?lang=zh": "h1"}
    for path, there in {**pages, "/settings?lang=zh": "alert-rule", f"{tight.path}?lang=zh": "verdict-card"}.items():
        page.goto(served.url + path)
        expect(page.locator(there).first).to_be_visible()
        words = page.evaluate(
            """() => {
              const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
              const found = [];
              while (texts.nextNode()) {
                const { data, parentElement } = texts.currentNode;
                const isOurs = !parentElement.closest("code, pre, noscript, .name, .project, svg, option");
                if (isOurs) found.push(data);
              }
              return found;
            }"""
        )
        english = [text for text in words if re.search(r"\b[a-z]{3,} [a-z]{2,}\b", text)]
        assert not english, path


def test_the_server_knows_every_language_of_the_page(page: Page, served: Served) -> None:
    page.goto(served.url)
    spoken = page.evaluate(
        """async () => {
          const main = document.querySelector("script[type=module]").src;
          return Object.keys((await import(new URL("lib/language.js", main))).LANGUAGES);
        }"""
    )
    assert set(spoken) == set(CATALOGUES)


def test_the_settings_tell_of_server_and_storage(page: Page, served: Served, tight: SentRun) -> None:
    page.goto(f"{served.url}/settings")
    state = page.locator("server-state")
    expect(state).to_contain_text("open to all who reach it")
    expect(state).to_contain_text(re.compile(r"Runs\s*1"))
    expect(state).to_contain_text(re.compile(r"Steps\s*200"))
    expect(state).to_contain_text("sqlite:///runs.db")


def test_a_server_that_cannot_tell_its_state_leaves_the_rest(
    page: Page, served: Served, complaints: Complaints
) -> None:
    page.route("**/api/v1/server", lambda route: route.fulfill(status=500, json={"detail": "broken"}))
    page.goto(f"{served.url}/settings")
    problem = page.locator("server-state .problem")
    expect(problem).to_contain_text("The server’s state could not be read. broken")
    page.get_by_role("button", name="Dark").click()
    page.unroute("**/api/v1/server")
    problem.get_by_role("button", name="Try again").click()
    expect(page.locator("server-state")).to_contain_text("Version")
    complaints.clear()
