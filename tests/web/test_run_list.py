"""The list of runs in a real browser: before the first run, live, filtered, and as a way to a run."""

from playwright.sync_api import Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import SentRun, Served, send_too_tight


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


def test_long_lists_come_in_parts(page: Page, served: Served) -> None:
    for i in range(103):
        served.put(name=f"run-{i}")
    page.goto(served.url)
    expect(page.locator("run-row")).to_have_count(100)
    page.get_by_role("button", name="Show more runs").click()
    expect(page.locator("run-row")).to_have_count(103)
    expect(page.get_by_role("button", name="Show more runs")).to_be_hidden()
    served.forget_all()
    served.forget_all()


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
    complaints.clear()
