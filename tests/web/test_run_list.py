"""The list of runs in a real browser: before the first run, live, filtered, and as a way to a run."""

from playwright.sync_api import Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import Served


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
    expect(row.locator(".clipped .value")).to_have_text("20\u00a0%")
    expect(row.locator(".norm .value")).to_have_text("0.500")
    expect(row.locator("run-state")).to_have_text("running")
    run.post({"events": [{"kind": "finished"}]})
    expect(row.locator("run-state")).to_have_text("finished")


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
