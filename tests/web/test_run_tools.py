"""What a person does on a run's page beyond looking: one step, older attempts, scales, files, tables, odd addresses."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import ALL_CHARTS, LAYERS, WITHOUT_LAYERS, SentRun, Served, shown_range, wait_for_charts, wait_until


def row(page: Page, name: str) -> Locator:
    return page.locator(f"chart-row[data-figure={name}]")


def take(page: Page, chart: str, what: str) -> None:
    page.get_by_role("button", name=f"Take away: {chart}", exact=True).click()
    page.get_by_role("menuitem", name=what).click()


def test_a_click_on_a_step_shows_everything_about_it(page: Page, run: SentRun) -> None:
    run.send([40], grad_norm_before_clip=["NaN"], skipped=[True], skip_reason=["overflow"], **WITHOUT_LAYERS)
    page.goto(run.url)
    wait_for_charts(page)
    panel = page.locator("step-panel")
    page.locator(".stack").focus()
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(panel.get_by_role("heading", level=2)).to_have_text("Step 5")
    expect(panel).to_contain_text("grad_norm_before_clip1.5000")
    expect(panel.locator(".step-layers .link")).to_have_text(LAYERS)  # the largest norm first
    assert "step=5" in page.url
    panel.get_by_role("button", name="Next step").click()
    expect(panel.get_by_role("heading", level=2)).to_have_text("Step 6")
    page.goto(f"{run.url}?step=40")
    expect(panel).to_contain_text("grad_norm_before_clipNaN")
    expect(panel).to_contain_text("skip_reasonoverflow")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    assert "step=" not in page.url


def test_of_a_point_of_many_steps_the_one_that_stands_out_is_shown(page: Page, served: Served) -> None:
    run = served.put(name="long")
    norms = [50.0 if step == 1502 else 1.0 for step in range(3000)]
    run.send(range(3000), grad_norm_before_clip=norms, **WITHOUT_LAYERS)
    page.goto(run.url)
    wait_for_charts(page, ALL_CHARTS[:-1])
    box = row(page, "norm").locator(".chart-plot").bounding_box()
    assert box is not None
    edges = page.evaluate(
        "(() => { const s = document.querySelector('.chart-plot')._fullLayout._size; return [s.l, s.w]; })()"
    )
    page.mouse.click(box["x"] + edges[0] + edges[1] * 1502.5 / 3000, box["y"] + 60)
    expect(page.locator("step-panel").get_by_role("heading", level=2)).to_have_text("Step 1,502")
    expect(page.locator("step-panel")).to_contain_text("stands out among steps 1,500–1,503")


@pytest.fixture
def resumed(served: Served) -> SentRun:
    """Forty steps, then a second launch from step 20 on with another threshold; a note, metrics, update ratios."""
    made = served.put(name="resumed")
    made.send(range(40), attempt_id="a", attempt_started_at_s=1.0)
    metrics = [{"step": step, "name": "val_loss", "value": 3.0 - step / 100} for step in (20, 29)]
    events = [{"kind": "note", "step": 25, "message": "lowered lr"}]
    numbers: dict[str, Any] = {
        "max_norm": [0.5] * 10,
        "update_ratio": [1e-3] * 10,
        "metrics": metrics,
        "events": events,
    }
    made.send(range(20, 30), attempt_id="b", attempt_started_at_s=2.0, **numbers)
    return made


def test_events_stand_on_the_axis_of_the_charts(page: Page, resumed: SentRun) -> None:
    page.goto(resumed.url)
    wait_until(lambda: [-0.5, 29.5] in shown_range(page))
    lane = page.get_by_role("group", name="Events")
    expect(lane.get_by_role("button", name="20: Attempt 2 began")).to_be_visible()
    expect(lane.get_by_role("button", name="max_norm changed from 1.0 to 0.5")).to_be_visible()
    expect(page.locator("run-timeline")).to_contain_text("Note: lowered lr")
    lane.get_by_role("button", name="25: Note: lowered lr").click()
    wait_until(lambda: [4.5, 29.5] in shown_range(page))


def test_what_a_newer_attempt_replaced_stays_as_a_ghost(page: Page, resumed: SentRun) -> None:
    page.goto(resumed.url)
    expect(page.get_by_role("list", name="What the marks mean")).to_contain_text("older attempt")
    page.locator("#choose-attempt").select_option(value="1")
    wait_until(lambda: [-0.5, 39.5] in shown_range(page))
    expect(page.get_by_role("list", name="What the marks mean")).not_to_contain_text("older attempt")


def test_counts_of_an_older_attempt_are_read_once(page: Page, resumed: SentRun) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    def num_asked(what: str) -> int:
        return sum(f"{resumed.path}/{what}" in url for url in asked)

    page.goto(resumed.url)
    expect(page.locator("run-facts")).to_contain_text("of 30 steps")
    assert num_asked("steps/") == 0
    page.locator("#choose-attempt").select_option(value="1")
    expect(page.locator("run-facts")).to_contain_text("of 40 steps")
    before = num_asked("series"), num_asked("steps/")
    with page.expect_response(lambda answer: f"{resumed.path}/diagnosis" in answer.url):
        resumed.send([30], attempt_id="b", attempt_started_at_s=2.0)
    page.evaluate("fetch('/healthz').then((answer) => answer.text())")  # what follows the diagnosis is asked by now
    expect(page.locator("run-facts")).to_contain_text("of 40 steps")
    assert (num_asked("series"), num_asked("steps/")) == before
    for attempt in ("99", "1.5"):
        page.goto(f"{resumed.url}?attempt={attempt}")
        expect(page.get_by_text(f"There is no attempt {attempt}.")).to_be_visible()
        expect(page.locator("run-facts")).to_contain_text("of 31 steps")
        assert "attempt=" not in page.url


def test_metrics_and_update_ratios_are_charts_where_they_were_recorded(
    page: Page, resumed: SentRun, run: SentRun
) -> None:
    page.goto(resumed.url)
    expect(row(page, "metric").locator(".chart-value")).to_have_text("2.71")
    expect(row(page, "update_ratio").locator(".chart-value")).to_have_text("0.0010")
    page.goto(run.url)
    wait_for_charts(page)
    expect(row(page, "metric")).to_have_count(0)
    expect(row(page, "update_ratio")).to_be_hidden()


def test_single_layers_and_the_threshold_that_is_tried_are_in_the_address(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    line = page.get_by_role("slider", name="Threshold to try, max_norm")
    expect(line).to_have_attribute("aria-valuenow", "1")
    line.press("ArrowUp")
    expect(line).to_have_attribute("aria-valuenow", "1.02")
    page.get_by_label("See one layer…").select_option(LAYERS[1])
    expect(page).to_have_url(re.compile(r"\?(?=.*try=1\.02)(?=.*layer=blocks)"))
    page.reload()
    wait_for_charts(page, [*ALL_CHARTS, "layer"])
    expect(page.locator("chart-row[data-figure=layer]").get_by_role("heading")).to_have_text(LAYERS[1])
    expect(line).to_have_attribute("aria-valuenow", "1.02")
    page.get_by_role("button", name=f"Close the chart of {LAYERS[1]}").click()
    line.press("Escape")
    expect(page).to_have_url(run.url)


def test_paper_is_light_and_as_wide_as_its_charts_and_keeps_the_steps_of_the_timeline(page: Page, run: SentRun) -> None:
    run.post({"events": [{"kind": "note", "step": 7, "message": "here"}]})
    page.emulate_media(color_scheme="dark")
    page.goto(run.url)
    wait_for_charts(page)
    line = """(() => {
      const plot = document.querySelector("chart-row[data-figure=norm] .chart-plot");
      return [document.documentElement.dataset.theme, plot.querySelector(".scatterlayer path.js-line").style.stroke,
              plot._fullLayout.width === plot.clientWidth];
    })()"""
    dark, light = ["dark", "rgb(125, 155, 255)", True], ["light", "rgb(52, 86, 209)", True]
    assert page.evaluate(line) == dark
    assert page.evaluate(f"dispatchEvent(new Event('beforeprint')) && {line}") == light
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})
    expect(page.locator("run-timeline li button")).to_be_visible()
    card, axis = page.locator("section.charts").bounding_box(), page.locator("step-axis").bounding_box()
    assert card is not None
    assert axis is not None
    assert axis["x"] + axis["width"] <= card["x"] + card["width"] <= 718
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1280, "height": 900})
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    wait_until(lambda: page.evaluate(line) == dark)


def test_scale_and_smoothing_are_chosen_and_in_the_address(page: Page, served: Served) -> None:
    run = served.put(name="rough")
    norms = [50.0 if step == 30 else 1.0 for step in range(60)]
    run.send(range(60), grad_norm_before_clip=norms)
    page.goto(run.url)
    wait_for_charts(page)
    page.get_by_label("Upright axes").select_option("linear")
    page.get_by_label("Smoothing").select_option("5")
    plot = "document.querySelector('chart-row[data-figure=norm] .chart-plot')"
    wait_until(lambda: page.evaluate(f"{plot}._fullLayout.yaxis.type") == "linear")
    lines = f"{plot}._fullData.filter((t) => t.mode === 'lines' && !t.fill.includes('self') && t.x.length === 60)"
    wait_until(lambda: page.evaluate(f"{lines}.map((t) => Math.max(...t.y)).includes(50)"))  # the spike is still there
    assert "y=linear" in page.url
    assert "smooth=5" in page.url
    page.reload()
    wait_for_charts(page)
    assert page.evaluate(f"{plot}._fullLayout.yaxis.type") == "linear"
    expect(page.get_by_label("Smoothing")).to_have_value("5")


def test_a_chart_can_be_taken_away_as_numbers_and_as_a_picture(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    with page.expect_download() as numbers:
        take(page, "Norm before clip", "Numbers (CSV)")
    assert numbers.value.suggested_filename == "lm_baseline_Norm-before-clip.csv"
    lines = Path(numbers.value.path()).read_text().splitlines()
    assert lines[:2] == ["step,mean,max_norm,clipped", "0,1.5,1,1"]
    assert len(lines) == 41
    with page.expect_download() as picture:
        take(page, "Layers", "Picture (PNG)")
    assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")


def test_the_numbers_of_a_chart_can_be_read_as_a_table(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    take(page, "Loss", "Show as a table")
    table = page.get_by_role("dialog", name="Loss")
    expect(table.get_by_role("columnheader")).to_have_text(["step", "mean", "lr"])
    expect(table.get_by_role("row")).to_have_count(41)
    page.keyboard.press("Escape")
    expect(table).to_be_hidden()


def test_a_range_without_steps_says_so_and_leads_back(page: Page, run: SentRun) -> None:
    page.goto(f"{run.url}?steps=9000-9100")
    expect(page.locator("chart-stack")).to_contain_text("This run has nothing from step 9,000 to 9,100.")
    page.get_by_role("button", name="Show all steps").click()
    wait_until(lambda: [-0.5, 39.5] in shown_range(page))


def test_a_chart_that_the_server_fails_at_says_so_and_the_others_stay(
    page: Page, run: SentRun, complaints: Complaints
) -> None:
    page.route(re.compile("/figures/loss[?]"), lambda route: route.fulfill(status=500, body="broken"))
    page.goto(run.url)
    expect(row(page, "loss")).to_contain_text("Could not be loaded: The server answered 500")
    expect(row(page, "norm").locator(".main-svg").first).to_be_attached()
    page.unroute_all()
    wait_for_charts(page)  # it is asked for again
    complaints.clear()


def test_what_was_never_recorded_is_not_said_to_be_off(page: Page, served: Served) -> None:
    by_hand = served.put(name="by hand")
    by_hand.post({"step": [0, 1], "grad_norm_before_clip": [1.0, 2.0]})
    page.goto(by_hand.url)
    expect(page.locator(".fact.scale")).to_contain_text("–not recorded")
    expect(page.locator(".fact.skipped")).to_contain_text("–not recorded")


def test_two_fingers_zoom(context: BrowserContext, page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    fingers = context.new_cdp_session(page)
    box = row(page, "norm").locator(".chart-plot").bounding_box()
    assert box is not None
    middle, y = box["x"] + box["width"] / 2, box["y"] + 25

    def touch(kind: str, reach: float | None) -> None:
        ends = [] if reach is None else [middle - reach, middle + reach]
        points = [{"x": x, "y": y, "id": i} for i, x in enumerate(ends)]
        fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 50)
    touch("touchMove", 100)
    touch("touchMove", 200)
    touch("touchEnd", None)
    wait_until(lambda: all(0 < first < last < 39 for first, last in shown_range(page)))


def test_only_a_training_that_allows_it_can_be_set_another_threshold(page: Page, served: Served, run: SentRun) -> None:
    page.goto(run.url)
    expect(page.locator("what-if-panel strong").first).to_be_visible()
    page.get_by_label("What if max_norm").fill("0.7")
    expect(page.locator("what-if-panel")).to_contain_text("(now")
    expect(page.locator("control-offer")).to_be_hidden()
    open_to_it = served.put(name="open", streams={"main": {"policy": "global_norm(1.0)", "allow_control": True}})
    open_to_it.send(range(40))
    page.goto(open_to_it.url)
    page.get_by_label("What if max_norm").fill("0.7")
    page.get_by_role("button", name="Set 0.7 on the live run…").click()
    expect(page.locator("control-offer")).to_contain_text("takes max_norm 0.7 for stream main")
    page.get_by_role("button", name="Leave it").click()
    expect(page.get_by_role("button", name="Set it")).to_be_hidden()


def test_an_alert_stands_at_its_steps_live(page: Page, served: Served) -> None:
    run = served.put(name="bf16")
    run.send(range(40), loss_scale=None)
    page.goto(run.url)
    wait_for_charts(page, [name for name in ALL_CHARTS if name != "loss_scale"])
    run.send(range(40, 44), grad_norm_before_clip=["NaN"] * 4, loss_scale=None, **WITHOUT_LAYERS)
    lane = page.get_by_role("group", name="Events")
    expect(lane.get_by_role("button", name="40: NaN or Inf in 4 steps")).to_be_visible()
    expect(page.locator("run-timeline")).to_contain_text("NaN or Inf in 4 steps")
