"""The page of one run in a real browser: what it draws, how it is read and zoomed."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import (
    ALL_CHARTS,
    LAYERS,
    WITHOUT_LAYERS,
    SentRun,
    Served,
    drawn_charts,
    shown_range,
    wait_for_charts,
    wait_until,
)


def test_every_chart_is_drawn(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("lm / baseline")
    expect(page.locator("run-head")).to_contain_text("step 39 of 100")
    traces = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("chart-row:not([hidden])")].map((row) =>
             [row.dataset.figure, row.querySelector(".chart-plot")._fullData.map((trace) => trace.type)]))"""
    )
    assert "heatmap" in traces["layers"]
    assert all(set(types) == {"scatter"} for name, types in traces.items() if name != "layers")


def test_facts_say_what_share_was_clipped_and_skipped(page: Page, run: SentRun) -> None:
    run.send([40, 41], grad_norm_before_clip=["NaN", "Infinity"], skipped=[True, True], **WITHOUT_LAYERS)
    page.goto(run.url)
    expect(page.locator(".fact.clipped")).to_contain_text("8 of 42 steps")
    expect(page.locator(".fact.skipped")).to_contain_text("2of 42 attempted (4.8\u00a0%)")
    expect(page.locator(".fact.scale")).to_contain_text("65,5362¹⁶")
    expect(page.locator(".fact.norm .fact-value")).to_have_text("NaN or Inf")
    expect(page.locator(".fact.nonfinite")).to_contain_text("2of 42 norms")


def test_what_was_recorded_but_is_not_finite_is_not_called_missing(page: Page, served: Served) -> None:
    run = served.put(name="odd")
    nan, infinite = ["NaN"] * 40, ["Infinity"] * 40
    odd: dict[str, Any] = {"loss": ["-Infinity"] * 40, "max_norm": infinite, "loss_scale": nan, "lr": None}
    run.send(range(40), **odd, **WITHOUT_LAYERS)
    page.goto(run.url)
    wait_for_charts(page, ["norm", "clip_coef"])
    expect(page.locator(".fact.loss")).to_contain_text("−Infnewest")
    expect(page.locator(".fact.scale")).to_contain_text("NaNnewest")
    expect(page.locator(".fact.norm")).to_contain_text("max_norm Inf")
    expect(page.locator("chart-row[data-figure=loss]")).to_contain_text("the run’s newest is −Inf")
    expect(page.locator("chart-row[data-figure=clip_fraction]")).not_to_contain_text("No clipping threshold")


def test_facts_are_of_the_attempt_on_screen_and_count_no_step_twice(page: Page, served: Served) -> None:
    run = served.put(name="resumed")
    for attempt_id, steps, norm in (("a", range(100), 0.5), ("b", range(80, 180), 5.0)):
        norms, losses = [norm] * 100, [norm] * 100
        run.send(steps, attempt_id=attempt_id, grad_norm_before_clip=norms, loss=losses, **WITHOUT_LAYERS)
    page.goto(f"{run.url}?attempt=1")
    expect(page.locator(".fact.norm .fact-value")).to_have_text("0.500")
    expect(page.locator(".fact.loss .fact-value")).to_have_text("0.5000")
    expect(page.locator(".fact.clipped")).to_contain_text("0 of 100 steps")
    page.goto(run.url)
    expect(page.locator(".fact.norm .fact-value")).to_have_text("5.00")
    expect(page.locator(".fact.clipped")).to_contain_text("100 of 180 steps")


def test_facts_do_not_wait_for_the_drawing_library(page: Page, run: SentRun, complaints: Complaints) -> None:
    page.route(re.compile("plotly"), lambda route: route.abort())
    page.goto(run.url)
    expect(page.locator(".fact.norm")).to_contain_text("0.500")
    expect(page.locator("chart-stack")).to_contain_text("The drawing library could not be loaded")
    complaints.clear()


def test_all_charts_share_their_edges(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    edges = page.evaluate(
        """() => [...document.querySelectorAll("chart-row:not([hidden]) .chart-plot")].map((plot) => {
             const { l, w } = plot._fullLayout._size;
             const { left } = plot.getBoundingClientRect();
             return [left + l, left + l + w];
           })"""
    )
    assert len(edges) == 6
    assert all(edge == edges[0] for edge in edges)
    assert all(steps == [-0.5, 39.5] for steps in shown_range(page))
    expect(page.locator(".step-labels")).to_have_count(1)


def test_the_cross_hair_reads_every_chart_at_its_step(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    page.locator(".stack").focus()
    page.keyboard.press("Home")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".step-flag")).to_have_text("5")
    expect(page.locator("chart-row[data-figure=norm]")).to_contain_text("1.50max_norm 1.0clipped")
    expect(page.locator("chart-row[data-figure=clip_coef]")).to_contain_text("0.667")
    expect(page.locator("chart-row[data-figure=loss]")).to_contain_text("3.995lr 3e-4")
    expect(page.locator("[aria-live=polite]")).to_contain_text("step 5. Norm before clip, 1.50")
    page.keyboard.press("Escape")
    expect(page.locator(".cross-hair")).to_be_hidden()


def test_pointing_at_the_map_names_the_layer_and_its_norm(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    plot = page.locator("chart-row[data-figure=layers] .chart-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.4)
    expect(page.locator("chart-row[data-figure=layers] .chart-notes")).to_have_text(LAYERS[1])
    expect(page.locator("chart-row[data-figure=layers] .chart-value")).to_have_text(re.compile(r"0\.(250|750)"))


def test_single_layers_can_be_seen_and_closed_again(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    rows = page.locator("chart-row[data-figure=layer]")
    page.get_by_label("See one layer…").select_option(LAYERS[1])
    wait_for_charts(page, [*ALL_CHARTS, "layer"])
    expect(rows.get_by_role("heading")).to_have_text([LAYERS[1]])
    expect(rows.locator(".chart-value")).to_have_text("0.250")
    plot = page.locator("chart-row[data-figure=layers] .chart-plot")
    plot.scroll_into_view_if_needed()
    plot.click(position={"x": 400, "y": 14})
    expect(rows.get_by_role("heading")).to_have_text([LAYERS[1], LAYERS[0]])
    page.mouse.move(5, 5)  # away from the step that it reads
    run.send([40])
    expect(rows.locator(".chart-value")).to_have_text(["0.750", "1.50"])
    page.get_by_role("button", name=f"Close the chart of {LAYERS[1]}").click()
    expect(rows.get_by_role("heading")).to_have_text([LAYERS[0]])


def test_dragging_zooms_all_charts_and_a_double_click_shows_all(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    wait_for_charts(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    plot = page.locator("chart-row[data-figure=loss] .chart-plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    left, y = box["x"] + box["width"] * 0.4, box["y"] + 30
    page.mouse.move(left, y)
    page.mouse.down()
    page.mouse.move(left + 100, y)
    expect(page.locator(".selection")).to_be_visible()
    page.mouse.move(left + 200, y)
    page.mouse.up()
    wait_until(lambda: all(-0.5 < first < last < 39.5 for first, last in shown_range(page)))
    assert len({tuple(steps) for steps in shown_range(page)}) == 1
    first, last = (int(edge) for edge in shown_range(page)[0])
    range_ = f"first_step={first + 1}&last_step={last}"
    wait_until(lambda: sum("/figures/" in url and range_ in url for url in asked) == 9)
    expect(page.locator("range-picker")).to_contain_text(f"Steps {first + 1}–{last}")
    assert f"steps={first + 1}-{last}" in page.url
    page.mouse.dblclick(left, y)
    wait_until(lambda: all(steps == [-0.5, 39.5] for steps in shown_range(page)))


def test_a_link_opens_at_the_steps_it_names(page: Page, run: SentRun) -> None:
    page.goto(f"{run.url}?steps=10-20")
    wait_for_charts(page)
    assert all(steps == [9.5, 20.5] for steps in shown_range(page))


def test_long_runs_are_drawn_in_buckets_with_their_extremes(page: Page, served: Served) -> None:
    run = served.put(name="long")
    run.send(range(3000), **WITHOUT_LAYERS)
    page.goto(run.url)
    wait_for_charts(page, ["norm", "clip_fraction", "clip_coef", "loss", "loss_scale"])
    expect(page.get_by_role("list", name="What the marks mean")).to_contain_text("smallest to largest of 4 steps")
    page.get_by_role("button", name="Last 1,000").click()
    wait_until(lambda: all(steps == [1999.5, 2999.5] for steps in shown_range(page)))
    expect(page.get_by_role("list", name="What the marks mean")).not_to_contain_text("smallest")


def test_a_chart_without_values_says_why_and_takes_little_room(page: Page, served: Served) -> None:
    run = served.put(name="bf16")
    run.send(range(10), loss_scale=None, **WITHOUT_LAYERS)
    page.goto(run.url)
    wait_for_charts(page, ["norm", "clip_fraction", "clip_coef", "loss"])
    row = page.locator("chart-row[data-figure=loss_scale]")
    expect(row).to_contain_text("No loss scale recorded in this range")
    box = row.bounding_box()
    assert box is not None
    assert box["height"] < 40
    expect(page.locator("chart-row[data-figure=layers]")).to_contain_text("No per-layer norms recorded")


def test_a_threshold_far_away_is_named_at_the_edge(page: Page, served: Served) -> None:
    run = served.put(name="loose")
    run.send(range(10), max_norm=[1e6] * 10)
    page.goto(run.url)
    expect(page.locator("chart-row[data-figure=norm] .threshold-label")).to_have_text("max_norm 1e6 ↑")


def test_a_single_step_can_be_seen(page: Page, served: Served) -> None:
    run = served.put(name="one step")
    run.send([7])
    page.goto(run.url)
    wait_for_charts(page)
    assert page.locator("chart-row[data-figure=norm] .points path").count() > 0


MARKUP = """<b>bold</b> <img src=x onerror=alert(1)> &lt;i&gt; <a href='/'>x</a> ${1} \\"""


def test_markup_in_names_is_shown_as_text(page: Page, served: Served) -> None:
    name = MARKUP
    run = served.put(project=name, name=name, tags=[name], config={"<b>": name})
    run.send(range(3), layers=[name, f"{name}.2"], layer_norms=[[1.0, 2.0]] * 3, stream="main")
    page.goto(run.url)
    wait_for_charts(page)
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{name} / {name}")
    expect(page.locator(".layer-names span").first).to_have_attribute("title", name)
    expect(page.locator(".layer-names span").first).to_contain_text("<b>bold</b")
    assert page.title() == f"{name} · {name} · Gradsight"
    assert page.locator("main").locator("b, i, img, a").count() == 0
    page.goto(served.url)
    expect(page.locator("run-row .name")).to_have_text(name)
    assert page.locator("run-row").locator("b, i, img").count() == 0


def test_streams_and_attempts_can_be_chosen_where_there_are_several(page: Page, served: Served) -> None:
    run = served.put(name="gan")
    run.send(range(10), stream="generator", attempt_id="a")
    run.send(range(20), stream="discriminator", attempt_id="a")
    run.send(range(5, 8), stream="discriminator", attempt_id="b")
    page.goto(run.url)
    page.get_by_label("Stream").select_option("discriminator")
    wait_until(lambda: [-0.5, 7.5] in shown_range(page))
    page.locator("#choose-attempt").select_option(value="1")
    wait_until(lambda: [-0.5, 19.5] in shown_range(page))
    assert "stream=discriminator" in page.url
    assert "attempt=1" in page.url
    page.reload()
    wait_until(lambda: [-0.5, 19.5] in shown_range(page))


def test_a_run_without_steps_says_so(page: Page, served: Served) -> None:
    run = served.put(name="early")
    page.goto(run.url)
    expect(page.locator("chart-stack")).to_contain_text("No steps yet")
    expect(page.locator("run-head")).to_contain_text("no steps yet")
    assert drawn_charts(page) == []


def test_an_address_that_leads_nowhere_says_so_with_a_way_back(
    page: Page, served: Served, complaints: Complaints
) -> None:
    page.goto(f"{served.url}/nope")
    expect(page.locator("main")).to_contain_text("/nope")
    complaints.clear()  # the browser notes the 404
    page.locator("main a").click()
    expect(page.locator("first-run")).to_be_visible()


@pytest.mark.parametrize("run_id", ["f" * 32, "not-an-id"])
def test_an_unknown_run_is_named_with_a_way_back(
    page: Page, served: Served, run_id: str, complaints: Complaints
) -> None:
    page.goto(f"{served.url}/runs/{run_id}")
    expect(page.locator("main")).to_contain_text(f"There is no run {run_id}.")
    page.get_by_role("link", name="All runs", exact=True).click()
    expect(page.locator("first-run")).to_be_visible()
    complaints.clear()


def test_charts_take_the_colours_of_the_theme(page: Page, run: SentRun) -> None:
    colour = """() => document.querySelector("chart-row[data-figure=norm] .js-line").style.stroke"""
    page.goto(run.url)
    wait_for_charts(page)
    assert page.evaluate(colour) == "rgb(52, 86, 209)"
    page.emulate_media(color_scheme="dark")
    wait_until(lambda: page.evaluate(colour) == "rgb(125, 155, 255)")


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_does_not_scroll_sideways(page: Page, served: Served, run: SentRun, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(run.url)
    wait_for_charts(page, ["norm"])
    page.get_by_role("button", name="Show the other charts").click()
    wait_for_charts(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto(served.url)
    expect(page.locator("run-row")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    served.forget_all()
    expect(page.locator("first-run")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_on_a_phone_the_steps_stay_in_sight_while_the_charts_are(page: Page, run: SentRun) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(run.url)
    wait_for_charts(page, ["norm"])
    page.get_by_role("button", name="Show the other charts").click()
    wait_for_charts(page)
    page.locator("chart-row[data-figure=norm]").evaluate("(row) => row.scrollIntoView()")
    page.mouse.move(195, 300)  # as a finger has no place when it is away, this is what a phone shows at all times
    axis = page.locator("step-axis")
    wait_until(lambda: (box := axis.bounding_box()) is not None and round(box["y"] + box["height"]) == 844)
    last = page.locator("chart-row[data-figure=layers]")
    last.evaluate("(row) => row.scrollIntoView({ block: 'start' })")
    ends = page.evaluate(
        """() => ["chart-row[data-figure=layers]", "step-axis"].map((name) => {
             const { top, bottom } = document.querySelector(name).getBoundingClientRect();
             return { top, bottom };
           })"""
    )
    assert abs(ends[0]["bottom"] - ends[1]["top"]) < 2
