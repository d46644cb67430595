"""The histogram beside the norm chart and the what-if: one axis, a line to drag, numbers from the server."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import WITHOUT_LAYERS, SentRun, Served, call_of, send_too_tight, wait_for_charts, wait_until

CHARTS = ["norm", "clip_fraction", "clip_coef", "loss"]
FRAMES = """() => [".chart-plot", ".histogram-plot"].map((name) => {
  const plot = document.querySelector(name);
  const { t, h } = plot._fullLayout._size;
  return { top: Math.round(plot.getBoundingClientRect().top + t), height: h, range: plot._fullLayout.yaxis.range };
})"""


@pytest.fixture
def open_page(page: Page, tight: SentRun) -> Page:
    page.goto(tight.url)
    wait_for_charts(page, CHARTS)
    expect(page.locator("what-if-panel strong").first).to_have_text("100\u00a0%")
    return page


def _line(page: Page) -> Locator:
    return page.get_by_role("slider", name="Threshold to try, max_norm")


def _drag(page: Page, by_px: float) -> None:
    box = _line(page).bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + by_px / 2)
    page.mouse.move(x, y + by_px)
    page.mouse.up()


def test_the_histogram_stands_on_the_axis_of_the_norm_chart(open_page: Page) -> None:
    chart, histogram = open_page.evaluate(FRAMES)
    assert chart == histogram


def test_the_threshold_line_stands_at_the_threshold_in_force(open_page: Page) -> None:
    expect(_line(open_page)).to_have_attribute("aria-valuenow", "1")
    expect(_line(open_page)).to_have_attribute("aria-valuetext", "1.0, clips 100\u00a0%")
    expect(open_page.get_by_role("img", name=re.compile("200 gradient norms"))).to_have_attribute(
        "aria-label", "Histogram of 200 gradient norms, 100\u00a0% of them above 1.0"
    )


def test_dragging_the_line_asks_the_server_once_it_rests(open_page: Page) -> None:
    asked: list[str] = []
    open_page.on("request", lambda request: asked.append(request.url) if "/what-if" in request.url else None)
    _drag(open_page, -100_000)  # to the upper edge
    panel = open_page.locator("what-if-panel")
    expect(panel).to_contain_text("0\u00a0% clipped (now 100\u00a0%)")
    expect(panel).to_contain_text("1.0 mean coefficient (now 0.05")
    expect(panel).to_contain_text("later norms would differ")
    assert len(asked) == 1
    assert open_page.locator(".selection").is_hidden()
    panel.get_by_role("button", name="Back to 1.0").click()
    expect(_line(open_page)).to_have_attribute("aria-valuenow", "1")
    expect(panel).to_contain_text("100\u00a0% clipped")


def test_a_double_click_goes_back(open_page: Page) -> None:
    _drag(open_page, -60)
    expect(_line(open_page)).to_have_attribute("data-trial", "true")
    _line(open_page).dblclick()
    expect(_line(open_page)).to_have_attribute("data-trial", "false")


def test_a_threshold_can_be_typed(open_page: Page) -> None:
    field = open_page.get_by_label("What if max_norm")
    field.fill("20")
    expect(open_page.locator("what-if-panel strong").first).to_have_text(re.compile(r"^(4\d|5\d)\u00a0%"))
    expect(_line(open_page)).to_have_attribute("aria-valuenow", "20")
    field.press("ArrowUp")
    expect(field).to_have_value("20.4")
    for wrong in ("-1", "0", ""):
        field.fill(wrong)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(open_page.locator("what-if-panel")).to_contain_text("above 0. These figures are for 20.4.")
    field.blur()
    expect(field).to_have_value("20.4")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    field.press("Escape")
    expect(field).to_have_value("1")


def test_the_line_moves_by_keys(open_page: Page) -> None:
    line = _line(open_page)
    line.focus()
    line.press("ArrowUp")
    expect(line).to_have_attribute("aria-valuenow", "1.02")
    line.press("Shift+ArrowUp")
    expect(line).to_have_attribute("aria-valuenow", "1.22")
    expect(open_page.locator(".cross-hair")).to_be_hidden()
    line.press("Escape")
    expect(line).to_have_attribute("aria-valuenow", "1")


def test_the_recommended_range_clips_ten_to_twenty_percent(open_page: Page) -> None:
    open_page.get_by_role("button", name=re.compile("^Try ")).click()
    expect(open_page.locator("what-if-panel strong").first).to_have_text(re.compile(r"^(9\.\d|1\d|20)\u00a0%"))


def test_live_norms_are_counted_in(open_page: Page, tight: SentRun) -> None:
    expect(open_page.locator("connection-status")).to_have_text("Live")
    send_too_tight(tight, range(200, 210))
    expect(open_page.get_by_role("img", name=re.compile("Histogram of 210 gradient norms"))).to_be_visible()


def test_live_steps_move_the_share_of_clipped_steps(open_page: Page, tight: SentRun) -> None:
    share = open_page.locator("chart-row[data-figure=clip_fraction] .chart-value")
    expect(share).to_have_text("100\u00a0%")
    expect(open_page.locator("connection-status")).to_have_text("Live")
    tight.send(range(200, 210), grad_norm_before_clip=[0.5] * 10, layers=None, layer_step=None, layer_norms=None)
    expect(share).to_have_text("90\u00a0%")


def test_the_threshold_in_force_is_that_of_the_steps_on_screen(page: Page, served: Served) -> None:
    run = served.put(name="changed", streams={"main": {"policy": "global_norm(2.0)"}})
    norms = [0.5 + step % 10 / 5 for step in range(200)]
    thresholds = [1.0 if step < 100 else 2.0 for step in range(200)]
    run.send(range(200), grad_norm_before_clip=norms, max_norm=thresholds, **WITHOUT_LAYERS)
    page.goto(run.url)
    expect(_line(page)).to_have_attribute("aria-valuenow", "2")
    label = page.locator("chart-row[data-figure=norm] .threshold-label")
    expect(label).to_have_text("max_norm 2.0")
    expect(label).to_have_class(re.compile("is-right"))
    page.goto(f"{run.url}?steps=10-90")
    expect(_line(page)).to_have_attribute("aria-valuetext", re.compile("^1.0, clips 69\u00a0%"))
    expect(page.locator("norm-histogram .below")).to_have_text("31\u00a0% below")


def test_a_threshold_that_moves_by_itself_has_no_share_above_one_line(page: Page, served: Served) -> None:
    policy = "global_norm(cosine(start=1.0, end=0.1, total_steps=200))"
    run = served.put(name="moving", streams={"main": {"policy": policy}})
    run.send(range(200), max_norm=[1 - step / 250 for step in range(200)], **WITHOUT_LAYERS)
    page.goto(run.url)
    expect(page.locator("what-if-panel strong").first).to_have_text(re.compile("%"))
    expect(page.locator("norm-histogram")).to_have_attribute("aria-label", "Histogram of 200 gradient norms")
    expect(page.locator("norm-histogram .above")).to_be_hidden()
    _line(page).press("ArrowUp")
    expect(page.locator("norm-histogram .above")).to_be_visible()


def test_where_clipping_is_off_the_line_stands_at_a_suggestion(page: Page, served: Served) -> None:
    run = served.put(name="off", streams={"main": {"policy": None}})
    norms = [1.0 + step % 10 for step in range(200)]
    run.send(range(200), grad_norm_before_clip=norms, max_norm=None, clip_coef=None, **WITHOUT_LAYERS)
    page.goto(run.url)
    expect(_line(page)).to_have_attribute("data-trial", "true")
    expect(page.locator("what-if-panel strong").first).to_have_text(re.compile(r"^(9\.\d|1\d|20)\u00a0%"))
    expect(page.get_by_role("button", name=re.compile("^Back"))).to_be_hidden()


def test_the_line_can_be_used_while_the_histogram_is_missing(
    page: Page, tight: SentRun, complaints: Complaints
) -> None:
    page.route("**/figures/histogram?*", lambda route: route.fulfill(status=503, json={"detail": "busy"}))
    page.goto(tight.url)
    wait_for_charts(page, CHARTS)
    _line(page).press("ArrowUp")
    expect(page.locator("what-if-panel strong").first).to_have_text("100\u00a0%")
    expect(_line(page)).to_have_attribute("aria-valuenow", "1.02")
    complaints.clear()


def test_a_run_without_norms_has_no_what_if(page: Page, served: Served) -> None:
    run = served.put(name="no norms")
    run.send(
        range(60),
        grad_norm_before_clip=None,
        max_norm=None,
        clip_coef=None,
        layers=None,
        layer_step=None,
        layer_norms=None,
    )
    page.goto(run.url)
    wait_for_charts(page, ["loss", "loss_scale"])
    expect(page.locator("what-if-panel")).to_be_hidden()
    expect(_line(page)).to_be_hidden()


def test_on_a_phone_the_histogram_stands_under_the_norm_chart(page: Page, tight: SentRun) -> None:
    tight.post({"events": [{"kind": "note", "step": 7, "message": "here"}]})
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(tight.url)
    wait_until(lambda: page.evaluate("document.querySelector('.histogram-plot')?._fullLayout !== undefined"))
    expect(page.locator(".lane-mark").first).to_be_visible()
    page.locator("norm-histogram").scroll_into_view_if_needed()
    below = ("chart-row[data-figure=norm]", "step-axis", "norm-histogram")
    folded = [page.locator(name).bounding_box() for name in below]
    assert [box["y"] for box in folded if box] == sorted(box["y"] for box in folded if box)
    on_top = """() => {
      const stack = document.querySelector(".stack");
      scrollTo(0, stack.getBoundingClientRect().top + scrollY + 30 - innerHeight);
      const { left, top } = stack.getBoundingClientRect();
      return document.elementFromPoint(left + 20, top + 20)?.closest("event-lane, step-axis")?.localName;
    }"""
    assert page.evaluate(on_top) == "event-lane"  # where only that is in sight
    page.get_by_role("button", name="Show the other charts").click()
    wait_for_charts(page, CHARTS)
    expect(page.locator("norm-histogram")).to_be_visible()
    boxes = [
        page.locator(name).bounding_box()
        for name in ("chart-row[data-figure=norm]", "norm-histogram", "chart-row[data-figure=loss]")
    ]
    tops = [box["y"] for box in boxes if box is not None]
    assert len(tops) == 3
    assert tops == sorted(tops)
    wait_until(lambda: page.evaluate("document.querySelector('.histogram-plot')._fullLayout !== undefined"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_bins_cut_by_the_threshold_are_made_whole(page: Page, served: Served) -> None:
    page.goto(served.url)

    def stairs(role: str, edges: list[float], shares: list[float]) -> dict[str, object]:
        x = [0.0, *(share for share in shares for _ in (0, 1)), 0.0]
        return {"role": role, "key": "", "type": "scatter", "x": x, "y": [edge for edge in edges for _ in (0, 1)]}

    figure = {
        "position": 7,
        "num_norms": 100,
        "layout": {},
        "data": [stairs("below", [1, 2, 3], [0.2, 0.5]), stairs("above", [3, 4, 8], [0.5, 0.3])],
    }
    found = call_of(page, "histogram.js", "decodeHistogram", figure)
    assert found["edges"] == [1, 2, 4, 8]
    assert [round(count) for count in found["counts"]] == [20, 50, 30]
    assert call_of(page, "histogram.js", "shareAbove", found, 4) == pytest.approx(0.3)
