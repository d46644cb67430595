"""Runs side by side in a real browser: over one axis, by step or time, with what differs in their set-up."""

import re
from collections.abc import Sequence

from playwright.sync_api import Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import WITHOUT_LAYERS, SentRun, Served, wait_until


def compared(served: Served, runs: Sequence[SentRun], more: str = "") -> str:
    return f"{served.url}/compare?runs={','.join(run.id for run in runs)}{more}"


def two_runs(served: Served) -> tuple[SentRun, SentRun]:
    """One of 40 steps in 40 s, one of 20 steps that took twice as long each."""
    first = served.put(project="lm", name="first", config={"lr": 3e-4, "model": {"depth": 12}}, total_steps=100)
    first.send(range(40), wall_time_s=[1000.0 + step for step in range(40)])
    second = served.put(project="lm", name="second", config={"lr": 1e-3, "model": {"depth": 12}}, total_steps=100)
    second.send(range(20), wall_time_s=[5000.0 + 2 * step for step in range(20)], loss_scale=None)
    return first, second


def numbers_drawn(page: Page, chart: str) -> list[str]:
    return page.locator(f"compare-chart[data-chart={chart}] .end").all_text_contents()


def axis(page: Page) -> list[str]:
    return page.locator("compare-chart.has-axis text[text-anchor=middle]").all_text_contents()


def test_selected_runs_are_drawn_over_one_axis_with_what_differs(page: Page, served: Served) -> None:
    two_runs(served)
    page.goto(f"{served.url}/?sort=name")
    page.get_by_label("Select all runs shown").check()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare")
    expect(page.locator(".compare-list .name")).to_have_text(["first", "second"])
    wait_until(lambda: sorted(numbers_drawn(page, "norm")) == ["1", "2"])
    assert numbers_drawn(page, "loss_scale") == ["1"]
    expect(page.locator("compare-chart[data-chart=norm] .limit")).to_have_count(2)
    rows = page.locator("compare-settings tbody tr")
    expect(rows).to_have_text([re.compile(r"config\.lr.*0\.0003.*0\.001")])
    page.get_by_label("Show all").check()
    expect(page.locator("compare-settings tbody")).to_contain_text("config.model.depth")


def test_runs_are_aligned_by_step_or_by_time_and_the_link_says_so(page: Page, served: Served) -> None:
    page.goto(compared(served, two_runs(served)))
    wait_until(lambda: axis(page)[-1:] == ["35"])
    page.get_by_role("button", name="By time").click()
    wait_until(lambda: any("s" in label for label in axis(page)))
    assert "align=time" in page.url
    page.reload()
    expect(page.get_by_role("button", name="By time")).to_have_attribute("aria-pressed", "true")
    wait_until(lambda: any("s" in label for label in axis(page)))


def test_dragging_zooms_and_a_double_click_shows_all(page: Page, served: Served) -> None:
    page.goto(compared(served, two_runs(served)))
    wait_until(lambda: axis(page)[:1] == ["0"])
    box = page.locator(".compare-stack").bounding_box()
    assert box is not None
    middle = box["y"] + 120
    page.mouse.move(box["x"] + box["width"] * 0.4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, middle, steps=4)
    page.mouse.up()
    expect(page.get_by_role("button", name="Show all steps")).to_be_visible()
    assert re.search(r"range=1\d-2\d", page.url)
    wait_until(lambda: "0" not in axis(page))
    page.locator(".compare-stack").dblclick(position={"x": 300, "y": 120})
    wait_until(lambda: axis(page)[:1] == ["0"])
    assert "range" not in page.url


def test_the_cross_hair_reads_every_run_and_answers_to_keys(page: Page, served: Served) -> None:
    page.goto(compared(served, two_runs(served)))
    wait_until(lambda: axis(page)[:1] == ["0"])
    page.locator(".compare-stack").press("ArrowRight")
    expect(page.locator("compare-chart[data-chart=norm] .compare-reading")).to_have_text(["1 1.50", "2 1.50"])
    page.keyboard.press("Escape")
    expect(page.locator(".compare-reading")).to_have_count(0)
    # Of a point of many steps the mean is read, and from where to where it goes.
    long = served.put(name="long")
    long.send(range(6000), **WITHOUT_LAYERS)
    page.goto(compared(served, [long, served.put(name="empty")]))
    wait_until(lambda: axis(page)[:1] == ["0"])
    page.locator(".compare-stack").press("ArrowRight")
    expect(page.locator("compare-chart[data-chart=norm] .compare-reading")).to_contain_text("(0.500 to 1.50)")
    expect(page.locator("compare-chart[data-chart=norm]")).to_contain_text("smallest to largest of a point’s steps")


def test_a_run_is_added_by_name_and_taken_out(page: Page, served: Served) -> None:
    first, second = two_runs(served)
    page.goto(compared(served, [first]))
    expect(page.get_by_text("Pick two to eight runs")).to_be_visible()
    page.get_by_label("Add a run by name or id").fill(second.id)
    page.get_by_role("button", name="Add").click()
    expect(page.locator(".compare-list .name")).to_have_text(["first", "second"])
    assert second.id in page.url
    page.get_by_role("button", name="Take first out of the comparison").click()
    expect(page.locator(".compare-list .name")).to_have_text(["second"])


def test_curves_follow_their_runs(page: Page, served: Served) -> None:
    first, second = two_runs(served)
    page.goto(compared(served, [first, second]))
    wait_until(lambda: axis(page)[-1:] == ["35"])
    expect(page.locator("connection-status")).to_have_text("Live")
    first.send(range(40, 90))
    wait_until(lambda: axis(page)[-1:] == ["80"])
    expect(page.locator(".compare-list li").first).to_contain_text("step 89")


def test_a_run_that_is_gone_and_a_range_of_nonsense_leave_the_others(
    page: Page, served: Served, complaints: Complaints
) -> None:
    first, second = two_runs(served)
    gone, wrong = SentRun(served, "f" * 32), SentRun(served, "nonsense")
    page.goto(compared(served, [first, gone, second, wrong], "&range=9-3&align=sideways"))
    expect(page.locator(".compare-list .name")).to_have_text(["first", "second"])
    expect(page.locator("compare-page .notice")).to_contain_text("There is no run")
    expect(page.locator("compare-page .notice")).to_contain_text("32 hex digits")
    wait_until(lambda: axis(page)[:1] == ["0"])
    complaints.clear()


def test_steps_skipped_and_norms_not_finite_are_marked_in_a_row_of_their_run(page: Page, served: Served) -> None:
    first, second = two_runs(served)
    second.send([20, 21], grad_norm_before_clip=["NaN", 0.5], skipped=[True, False], loss_scale=None)
    page.goto(compared(served, [first, second]))
    norm = page.locator("compare-chart[data-chart=norm]")
    expect(norm.locator(".legend-item")).to_have_text(["NaN or Inf", "skipped"])
    expect(norm.locator(".mark-run")).to_have_text(["2"])
    expect(norm.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(r"second: points with NaN or Inf 1, with skipped steps 1$")
    )
    for kind in ("nonfinite", "skipped"):
        assert str(norm.locator(f".mark-{kind}").get_attribute("d")).count("M") == 1
    expect(page.locator("compare-chart[data-chart=loss] .legend-item")).to_have_count(0)


def test_the_loss_is_drawn_on_a_log_axis_when_asked_and_the_link_says_so(page: Page, served: Served) -> None:
    first, second = two_runs(served)
    first.send([40], loss=[400.0])

    def loss_ticks() -> list[str]:
        ticks = page.locator("compare-chart[data-chart=loss] text[text-anchor=end]")
        return ticks.all_text_contents()

    page.goto(compared(served, [first, second]))
    wait_until(lambda: "0" in loss_ticks())
    page.get_by_label("Upright axes").select_option("log")
    wait_until(lambda: "0" not in loss_ticks() and {"10", "100"} <= set(loss_ticks()))
    assert "y=log" in page.url
    page.reload()
    wait_until(lambda: {"10", "100"} <= set(loss_ticks()))
    assert "0" not in loss_ticks()
