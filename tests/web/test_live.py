"""The live stream in a real browser: steps without a reload, one connection for all tabs, a server that comes back."""

import re

from playwright.sync_api import BrowserContext, Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import SentRun, Served, last_drawn_step, shown_range, wait_for_charts, wait_until


def test_new_steps_arrive_without_a_reload_and_without_reading_figures_again(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    expect(page.locator("connection-status")).to_have_text("Live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for step in range(40, 45):
        run.send([step])
    wait_until(lambda: last_drawn_step(page) == 44)
    wait_until(lambda: all(steps == [-0.5, 44.5] for steps in shown_range(page)))
    expect(page.locator("run-head")).to_contain_text("step 44 of 100")
    assert not [url for url in asked if "/figures/" in url]


def test_the_first_step_brings_the_charts(page: Page, served: Served) -> None:
    run = served.put(name="early")
    page.goto(run.url)
    expect(page.locator("chart-stack")).to_contain_text("No steps yet")
    run.send([0, 1])
    wait_for_charts(page)
    expect(page.locator("run-head")).to_contain_text("step 1")


def test_a_chart_appears_once_its_column_does(page: Page, served: Served) -> None:
    run = served.put(name="late scale")
    run.send([0, 1], loss_scale=None)
    page.goto(run.url)
    expect(page.locator("chart-row[data-figure=loss_scale]")).to_contain_text("No loss scale recorded in this range")
    run.send([2, 3])
    wait_for_charts(page)


def test_a_replaced_step_is_read_again(page: Page, run: SentRun) -> None:
    highest = """() => Math.max(...document.querySelector("chart-row[data-figure=norm] .chart-plot")._fullData[0].y)"""
    page.goto(run.url)
    wait_for_charts(page)
    assert page.evaluate(highest) == 1.5
    run.post({"step": [20], "grad_norm_before_clip": [90.0]})
    wait_until(lambda: page.evaluate(highest) == 90.0)


def test_marks_and_gaps_arrive_live(page: Page, run: SentRun) -> None:
    marks = """() => document.querySelectorAll("chart-row[data-figure=norm] .scatterlayer .points path").length"""
    page.goto(run.url)
    wait_for_charts(page)
    before = page.evaluate(marks)
    run.send([40], grad_norm_before_clip=["NaN"], skipped=[True])
    run.send([41])
    expect(page.get_by_role("list", name="What the marks mean")).to_contain_text("skippedNaN or Inf")
    wait_until(lambda: page.evaluate(marks) >= before + 2)


def test_a_zoomed_view_stays_until_told_to_follow(page: Page, run: SentRun) -> None:
    page.goto(f"{run.url}?steps=10-19")
    wait_for_charts(page)
    run.send([40, 41])
    expect(page.locator("run-head")).to_contain_text("step 41")
    assert all(steps == [9.5, 19.5] for steps in shown_range(page))
    page.get_by_role("button", name="Follow").click()
    wait_until(lambda: all(steps == [31.5, 41.5] for steps in shown_range(page)))
    run.send([42])
    wait_until(lambda: all(steps == [32.5, 42.5] for steps in shown_range(page)))


def test_the_page_says_when_it_is_disconnected_and_goes_on_by_itself(
    page: Page, served: Served, run: SentRun, complaints: Complaints
) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    served.kill()
    expect(page.locator("connection-status")).to_contain_text("Disconnected, trying again. Last contact ")
    served.start()
    run.send([40, 41])
    expect(page.locator("connection-status")).to_have_text("Live")
    wait_until(lambda: last_drawn_step(page) == 41)
    run.send([42])
    wait_until(lambda: last_drawn_step(page) == 42)
    complaints.clear()


def test_a_page_that_could_not_be_fetched_comes_by_itself_once_the_server_is_back(
    context: BrowserContext, page: Page, served: Served, complaints: Complaints
) -> None:
    page.goto(f"{served.url}/alerts")
    expect(page.locator("connection-status")).to_have_text("Live")
    served.kill()
    page.get_by_role("link", name="Settings").click()
    expect(page.locator("main")).to_contain_text("The server does not answer. The page is loaded again by itself")
    expect(page).to_have_title(re.compile("Settings"))
    served.start()
    expect(page.locator("main").get_by_role("heading", level=1)).to_have_text("Settings")
    # A file that the server no longer has, as after an update: the page is loaded anew, once.
    page.evaluate("sessionStorage.clear()")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    context.route("**/pages/runs.js", lambda route: route.fulfill(status=404))
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator("main")).to_contain_text("Loading it again did not help.")
    assert asked.count(f"{served.url}/") == 1
    context.unroute("**/pages/runs.js")
    page.get_by_role("link", name="Try again").click()
    expect(page.locator("main").get_by_role("heading", level=1)).to_have_text("Runs")
    complaints.clear()


def test_a_deleted_run_says_so(page: Page, served: Served, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    expect(page.locator("connection-status")).to_have_text("Live")
    served.forget_all()
    expect(page.locator("main")).to_contain_text("This run was deleted.")


def test_two_tabs_share_one_connection(context: BrowserContext, page: Page, served: Served, run: SentRun) -> None:
    wait_until(lambda: served.num_streams_open() == 0)
    other_run = served.put(name="other")
    other_run.send([0])
    other = context.new_page()
    page.goto(run.url)
    other.goto(other_run.url)
    for tab in (page, other):
        wait_for_charts(tab)
        expect(tab.locator("connection-status")).to_have_text("Live")
    run.send([40])
    other_run.send([1])
    wait_until(lambda: last_drawn_step(page) == 40 and last_drawn_step(other) == 1)
    wait_until(lambda: served.num_streams_open() == 1)
    other.close()
    run.send([41])
    wait_until(lambda: last_drawn_step(page) == 41)


def test_without_shared_workers_a_tab_connects_by_itself(context: BrowserContext, page: Page, run: SentRun) -> None:
    context.add_init_script("delete window.SharedWorker")
    page.goto(run.url)
    wait_for_charts(page)
    expect(page.locator("connection-status")).to_have_text("Live")
    run.send([40])
    wait_until(lambda: last_drawn_step(page) == 40)


def test_a_hidden_tab_draws_once_it_is_seen(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    run.send([40])
    expect(page.locator("run-head")).to_contain_text("step 40")
    assert last_drawn_step(page) == 39
    page.evaluate(hide, False)
    wait_until(lambda: last_drawn_step(page) == 40)


def test_a_page_opened_before_its_run_fills_once_the_run_is_made(
    page: Page, served: Served, complaints: Complaints
) -> None:
    run = served.put(name="late")
    served.forget_all()
    page.goto(run.url)
    expect(page.locator("main")).to_contain_text("There is no run")
    expect(page.locator("connection-status")).to_have_text("Live")
    run.put(name="late")
    run.send([0, 1])
    wait_for_charts(page)
    complaints.clear()


def test_a_malformed_run_id_in_one_tab_leaves_the_others_connected(
    context: BrowserContext, page: Page, served: Served, run: SentRun
) -> None:
    other = context.new_page()
    other.goto(f"{served.url}/runs/not-an-id")
    expect(other.locator("main")).to_contain_text("There is no run not-an-id.")
    page.goto(run.url)
    wait_for_charts(page)
    for tab in (page, other):
        expect(tab.locator("connection-status")).to_have_text("Live")


def test_live_steps_fill_the_last_bucket_of_a_long_run(page: Page, served: Served) -> None:
    run = served.put(name="long")
    run.send(range(3000))
    page.goto(run.url)
    wait_for_charts(page)
    expect(page.locator("connection-status")).to_have_text("Live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for step in range(3000, 3003):
        run.send([step])
    wait_until(lambda: all(steps == [-0.5, 3002.5] for steps in shown_range(page)))
    line = """() => {
      const plot = document.querySelector("chart-row[data-figure=norm] .chart-plot");
      const { x, y } = plot._fullData.find((trace) => trace.mode.startsWith("lines") && trace.fill !== "toself");
      return [x.length, x.at(-1), y.at(-1)];
    }"""
    wait_until(lambda: page.evaluate(line) == [751, 3000, (1.5 + 0.5 + 0.5) / 3])
    assert not [url for url in asked if "/figures/" in url]
