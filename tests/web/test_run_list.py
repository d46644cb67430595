"""The list of runs in a real browser: before the first run, live, filtered, and as a way to a run."""

import re
import time

from playwright.sync_api import Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import WITHOUT_LAYERS, SentRun, Served, call_of, send_too_tight, wait_until


def test_before_the_first_run_the_page_says_how_to_send_one(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    code = page.locator("first-run code")
    expect(code.first).to_contain_text(f'server="{served.url}"')
    expect(code.nth(1)).to_contain_text(f"curl -X PUT {served.url}/api/v1/runs/")
    python = code.first.inner_text()
    compile(python, "first.py", "exec")
    assert len(python.splitlines()) == 5


def test_the_first_run_takes_the_place_of_the_recipe(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(page.locator("first-run")).to_be_visible()
    expect(page.locator("connection-status")).to_have_text("Live")
    served.put(project="lm", name="first")
    expect(page.locator("run-row .name")).to_have_text("first")
    expect(page.locator("first-run")).to_have_count(0)


def test_rows_follow_their_runs(page: Page, served: Served) -> None:
    run = served.put(project="lm", name="baseline", total_steps=100)
    page.goto(served.url)
    row = page.locator("run-row")
    expect(row).to_contain_text("no steps yet")
    expect(page.locator("connection-status")).to_have_text("Live")
    run.send(range(10))
    expect(row.locator(".step .value")).to_have_text("9 / 100")
    expect(row.locator(".clipping .value")).to_have_text("20\u00a0%")
    expect(row.locator(".norm .value")).to_have_text("0.500")
    expect(row.locator("run-state")).to_have_text("running")
    run.post({"events": [{"kind": "finished"}]})
    expect(row.locator("run-state")).to_have_text("finished")


def test_rows_carry_their_verdicts_and_badges_lead_to_the_evidence(page: Page, tight: SentRun) -> None:
    page.goto(tight.url.removesuffix(tight.path))
    badges = page.locator("run-row verdict-badge:visible")
    expect(badges).to_have_text(["Too tight", "Not used", "None"])
    expect(badges.first).to_have_attribute("data-tone", "warning")
    tight.send([200], grad_norm_before_clip=[0.5], clip_coef=[1.0], loss_scale=None, **WITHOUT_LAYERS)
    expect(page.locator("run-row .clipping .muted")).to_have_text("99.5\u00a0%")
    for width in (1440, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert badges.first.evaluate("(badge) => badge.lastChild.scrollWidth <= badge.lastChild.clientWidth"), width
    page.get_by_role("link", name="Clipping: Too tight. Open the evidence.").click()
    expect(page.locator(".why")).to_contain_text("The clipping threshold is too tight")


def test_unhealthy_runs_come_first_until_told_otherwise(page: Page, served: Served) -> None:
    sick = served.put(name="a-sick", started_at_s=1_000.0)
    send_too_tight(sick, range(200))
    well = served.put(name="b-well", started_at_s=2_000.0)
    well.send(range(200), layers=None, layer_step=None, layer_norms=None)
    served.put(name="c-new", started_at_s=3_000.0)
    page.goto(served.url)
    names = page.locator("run-row .name")
    expect(names).to_have_text(["a-sick", "b-well", "c-new"])
    page.get_by_label("Sort").select_option(label="Newest first")
    expect(names).to_have_text(["c-new", "b-well", "a-sick"])
    page.reload()
    expect(page.get_by_label("Sort")).to_have_value("-started_at_s")
    expect(names).to_have_text(["c-new", "b-well", "a-sick"])


def test_a_run_that_falls_ill_moves_up(page: Page, served: Served) -> None:
    for name in ("one", "two"):
        served.put(name=name).send(range(60), layers=None, layer_step=None, layer_norms=None)
    page.goto(served.url)
    expect(page.locator("connection-status")).to_have_text("Live")
    last = page.locator("run-row").last
    name = last.locator(".name").inner_text()
    run_id = last.get_attribute("data-run")
    assert run_id is not None
    send_too_tight(SentRun(served, run_id), range(60, 600))
    expect(page.locator("run-row .name").first).to_have_text(name)
    expect(page.locator("run-row verdict-badge").nth(1)).to_have_text("Too tight")


def test_a_deleted_run_leaves_the_list(page: Page, served: Served) -> None:
    served.put(name="gone")
    page.goto(served.url)
    expect(page.locator("run-row")).to_have_count(1)
    expect(page.locator("connection-status")).to_have_text("Live")
    served.forget_all()
    expect(page.locator("first-run")).to_be_visible()


def test_the_filter_narrows_the_list(page: Page, served: Served) -> None:
    for name in ("alpha", "beta"):
        served.put(project="lm", name=name)
    page.goto(served.url)
    expect(page.locator("run-row")).to_have_count(2)
    page.get_by_role("searchbox").fill("alp")
    expect(page.locator("run-row .name")).to_have_text(["alpha"])
    page.get_by_role("searchbox").fill("nothing")
    expect(page.get_by_text("No run matches “nothing”.")).to_be_visible()


def test_a_long_list_makes_only_the_rows_in_sight_and_reads_on_by_itself(page: Page, served: Served) -> None:
    for i in range(120):
        served.put(name=f"run-{i:03}", started_at_s=1_000.0 + i)
    page.goto(f"{served.url}/?sort=name")
    rows = page.locator("run-row")
    expect(page.locator(".page-head [role=status]").first).to_have_text("120")
    expect(rows.first.locator(".name")).to_have_text("run-000")
    assert rows.count() < 50
    expect(page.get_by_role("table")).to_have_attribute("aria-rowcount", "121")
    last = page.locator("run-row .name", has_text="run-119")

    def at_the_end() -> bool:
        page.evaluate("void scrollTo(0, document.documentElement.scrollHeight)")
        return True

    wait_until(lambda: at_the_end() and last.is_visible())
    assert rows.count() < 50
    expect(page.locator("connection-status")).to_have_text("Live")
    wait_until(lambda: at_the_end() and last.is_visible())
    expect(rows.last).to_have_attribute("aria-rowindex", "121")
    page.reload()
    expect(rows.first).to_be_visible()
    served.forget_all()
    served.forget_all()
    expect(page.locator("first-run")).to_be_visible()


def test_runs_beyond_the_pages_that_are_here_are_counted_once(page: Page, served: Served) -> None:
    runs = [served.put(name=f"run-{i:03}") for i in range(103)]
    page.goto(f"{served.url}/?sort=name")
    count = page.locator(".page-head [role=status]").first
    expect(page.locator("connection-status")).to_have_text("Live")
    expect(count).to_have_text("103")
    runs[102].put(name="a-run")
    expect(page.locator("run-row .name").first).to_have_text("a-run")
    expect(count).to_have_text("103")
    served.client.delete(f"/api/v1{runs[101].path}").raise_for_status()
    expect(count).to_have_text("102")


def test_what_was_found_besides_leaves_the_name_its_room(page: Page, served: Served) -> None:
    run = served.put(project="gan", name="generator and its critic")
    layer_norms = [[9.0, 9.0]] * 200
    run.send(range(200), layers=["a", "b"], layer_norms=layer_norms, loss_scale=None)
    badge = page.locator(".cell.run > verdict-badge")
    for width in (1440, 360):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(served.url)
        expect(badge).to_have_attribute("title", "Layers do not add up")
        name, beside = page.locator("run-row .name").bounding_box(), badge.bounding_box()
        link = page.locator(".run-link bdi").bounding_box()
        assert name is not None
        assert beside is not None
        assert link is not None
        assert link["width"] > 60
        assert link["x"] + link["width"] <= beside["x"] + 1


def test_filters_narrow_the_list_and_stay_in_the_address(page: Page, served: Served) -> None:
    served.put(project="lm", name="alpha", tags=["prod"])
    served.put(project="gan", name="beta", tags=["prod", "odd"])
    done = served.put(project="lm", name="gamma")
    done.post({"events": [{"kind": "finished"}]})
    page.goto(served.url)
    names = page.locator("run-row .name")
    expect(names).to_have_count(3)
    page.get_by_label("Project", exact=True).select_option(label="lm (2)")
    expect(names).to_have_count(2)
    page.get_by_label("State", exact=True).select_option(label="Finished")
    expect(names).to_have_text(["gamma"])
    assert "project=lm" in page.url
    assert "status=finished" in page.url
    page.reload()
    expect(names).to_have_text(["gamma"])
    page.get_by_label("State", exact=True).select_option(label="Any state")
    page.get_by_label("Tag", exact=True).select_option(label="prod (2)")
    expect(names).to_have_text(["alpha"])
    page.get_by_label("Project", exact=True).select_option(label="All projects")
    expect(names).to_have_count(2)


def test_a_run_that_no_longer_fits_the_filter_leaves(page: Page, served: Served) -> None:
    run = served.put(name="short")
    page.goto(f"{served.url}/?status=running")
    expect(page.locator("run-row")).to_have_count(1)
    expect(page.locator("connection-status")).to_have_text("Live")
    run.post({"events": [{"kind": "finished"}]})
    expect(page.get_by_text("No run matches these filters.")).to_be_visible()


def test_selected_runs_are_archived_and_taken_out_again(page: Page, served: Served) -> None:
    for name in ("one", "two", "three"):
        served.put(name=name)
    page.goto(f"{served.url}/?sort=name")
    page.get_by_label("Select one").check()
    page.get_by_label("Select two").click(modifiers=["Shift"])
    expect(page.locator("run-selection")).to_contain_text("3\u00a0runs selected")
    page.get_by_label("Select three").uncheck()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.locator("run-row .name")).to_have_text(["three"])
    expect(page.locator(".toast")).to_contain_text("2\u00a0runs archived")
    page.get_by_label("State", exact=True).select_option(label="Archived")
    expect(page.locator("run-row .name")).to_have_text(["one", "two"])
    page.get_by_label("Select all runs shown").check()
    page.get_by_role("button", name="Take out of the archive").click()
    page.get_by_label("State", exact=True).select_option(label="Any state")
    expect(page.locator("run-row")).to_have_count(3)


def test_runs_are_deleted_only_after_the_word_is_typed(page: Page, served: Served) -> None:
    for name in ("one", "two", "three"):
        served.put(name=name)
    page.goto(f"{served.url}/?sort=name")
    page.get_by_label("Select one").check()
    page.get_by_role("button", name="Delete…").click()
    dialog = page.get_by_role("dialog")
    typed = dialog.get_by_label("Type the run’s name to go on: one")
    expect(dialog.get_by_role("button", name="Delete for good")).to_be_disabled()
    typed.fill("tow")
    typed.press("Enter")
    expect(dialog).to_be_visible()
    typed.fill("one")
    dialog.get_by_role("button", name="Delete for good").click()
    expect(page.locator("run-row .name")).to_have_text(["three", "two"])
    page.get_by_label("Select all runs shown").check()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type the number of runs to go on: 2").fill("2")
    page.get_by_label("Type the number of runs to go on: 2").press("Enter")
    expect(page.locator("first-run")).to_be_visible()
    assert served.client.get("/api/v1/runs").json()["items"] == []


def test_a_deletion_that_fails_says_so_and_keeps_the_run(page: Page, served: Served, complaints: Complaints) -> None:
    served.put(name="kept")
    page.goto(served.url)
    refuse = {"status": 503, "json": {"detail": "busy"}}
    page.route("**/api/v1/runs/*", lambda route: route.fulfill(**refuse))
    page.get_by_label("Select kept").check()
    page.get_by_role("button", name="Delete…").click()
    page.get_by_label("Type the run’s name").fill("kept")
    page.get_by_role("button", name="Delete for good").click()
    expect(page.locator(".toast[data-tone=critical]")).to_have_text(
        re.compile("1 of 1 runs could not be changed.*busy")
    )
    expect(page.locator("run-row")).to_have_count(1)
    complaints.clear()


def test_tags_of_several_runs_are_ticked_and_added(page: Page, served: Served) -> None:
    both, one = served.put(name="a", tags=["x", "y"]), served.put(name="b", tags=["x"])
    page.goto(f"{served.url}/?sort=name")
    page.get_by_label("Select all runs shown").check()
    page.get_by_role("button", name="Tags…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("x", exact=True)).to_be_checked()
    dialog.get_by_label("x", exact=True).uncheck()
    dialog.get_by_label("New tags").fill("new, 新")
    dialog.get_by_role("button", name="Save tags").click()
    expect(page.locator("run-row").first.locator(".run-tags")).to_have_text("ynew新")
    tags = [served.client.get(f"/api/v1{run.path}").json()["tags"] for run in (both, one)]
    assert tags == [["y", "new", "新"], ["new", "新"]]


def test_the_norm_is_drawn_beside_its_threshold_and_grows_live(page: Page, tight: SentRun) -> None:
    page.goto(tight.url.removesuffix(tight.path))
    expect(page.locator("connection-status")).to_have_text("Live")
    send_too_tight(tight, range(200, 210))
    spark = page.locator("spark-line")
    expect(spark).to_have_attribute("aria-label", re.compile(r"norm .* to .*, threshold 1\.00"))
    expect(spark.locator(".spark-norm")).to_have_attribute("d", re.compile("^M"))
    tight.send([210], grad_norm_before_clip=["NaN"], clip_coef=None)
    expect(spark.locator(".spark-nonfinite")).to_have_count(1)


def test_nan_and_not_recorded_are_two_things(page: Page, served: Served) -> None:
    served.put(name="nan").send([0], grad_norm_before_clip=["NaN"])
    served.put(name="none").send([0], grad_norm_before_clip=None)
    page.goto(f"{served.url}/?sort=name")
    norms = page.locator("run-row .norm .value")
    expect(norms).to_have_text(["NaN", "–"])
    expect(norms.first).to_have_attribute("title", "The newest value was recorded, and is not finite")
    expect(norms.last).to_have_attribute("title", "The newest step came without this value")


def test_how_long_is_left_is_said_where_the_end_is_known(page: Page, served: Served) -> None:
    now_s = time.time()
    for name, total_steps in (("known", 1000), ("open", None)):
        run = served.put(name=name, total_steps=total_steps)
        run.send(range(40), wall_time_s=[now_s - 40 + step for step in range(40)])
    page.goto(f"{served.url}/?sort=name")
    left = page.locator("run-row .left")
    expect(left).to_have_text(["16\u00a0min left", ""])


def test_the_list_is_walked_by_keys(page: Page, served: Served) -> None:
    for name in ("one", "three", "two"):
        served.put(name=name)
    page.goto(f"{served.url}/?sort=name")
    expect(page.locator("run-row")).to_have_count(3)
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="one")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_label("Select three")).to_be_checked()
    page.keyboard.press("k")
    expect(page.get_by_role("link", name="one")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("run-selection")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("jjx two?")
    expect(page.get_by_role("searchbox")).to_have_value("jjx two?")
    page.get_by_role("searchbox").fill("two")
    expect(page.locator("run-row .name")).to_have_text(["two"])
    page.get_by_role("searchbox").press("ArrowDown")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="two")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("two")
    page.keyboard.press("g")
    page.keyboard.press("r")
    expect(page.locator("run-list")).to_be_visible()


def test_odd_names_keep_the_table_in_shape(page: Page, served: Served) -> None:
    for name in ("🙂" * 256, "مرحبا بالعالم", "<img src=x onerror=alert(1)>", "a" * 256):
        served.put(project="p" * 200, name=name)
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(served.url)
        expect(page.locator("run-row")).to_have_count(4)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        heights = page.evaluate("[...document.querySelectorAll('run-row')].map((row) => row.offsetHeight)")
        assert len(set(heights)) == 1


def test_a_row_leads_to_its_run_and_back_again(page: Page, served: Served) -> None:
    run = served.put(project="lm", name="baseline")
    page.goto(served.url)
    page.get_by_role("link", name="baseline").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("lm / baseline")
    assert page.url == run.url
    page.go_back()
    expect(page.locator("run-row")).to_have_count(1)


def test_a_list_that_cannot_be_read_says_so_and_can_be_tried_again(
    page: Page, served: Served, complaints: Complaints
) -> None:
    served.put(name="there")
    page.route("**/api/v1/runs?*", lambda route: route.fulfill(status=503, json={"detail": "busy"}))
    page.goto(served.url)
    expect(page.locator("connection-status")).to_have_text("Live")
    expect(page.get_by_text("The runs could not be loaded. busy")).to_be_visible()
    page.unroute("**/api/v1/runs?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("run-row")).to_have_count(1)
    page.goto(f"{served.url}/?tag=%00")
    expect(page.get_by_text("The runs could not be loaded.")).to_be_visible()
    page.get_by_label("Tag", exact=True).select_option("")
    expect(page.locator("run-row")).to_have_count(1)
    complaints.clear()


def test_the_largest_step_fits_its_cell_and_the_title_says_it_whole(page: Page, served: Served) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    run = served.put(name="long", total_steps=2**53 - 1)
    run.send([2**53 - 1], **WITHOUT_LAYERS)
    page.goto(served.url)
    cell = page.locator("run-row .cell.step")
    expect(cell.locator(".value")).to_have_attribute("title", "9,007,199,254,740,991 / 9,007,199,254,740,991")
    lefts = "(cell) => [cell.querySelector('.value'), cell].map((part) => part.getBoundingClientRect().left)"
    value, edge = cell.evaluate(lefts)
    assert value >= edge


def test_a_message_about_a_name_of_256_letters_is_cut_to_a_few_lines(page: Page, served: Served) -> None:
    page.goto(served.url)
    words = "project / " + 256 * "W"
    call_of(page, "toasts.js", "sayToast", {"tone": "warning", "title": 256 * "M", "words": words})
    toast = page.locator(".toast")
    expect(toast.locator(".toast-words")).to_have_attribute("title", f"{256 * 'M'}\n{words}")
    box = toast.bounding_box()
    assert box is not None
    assert box["height"] < 130
