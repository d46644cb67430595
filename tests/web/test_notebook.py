"""`run.show()`: the page of a run inside another page on the same machine, as a notebook has it."""

from playwright.sync_api import BrowserContext, expect

from tests.web.kit import SentRun

NOTEBOOK = "http://localhost:1/notebook.html"


def test_a_notebook_on_this_machine_may_show_the_page_in_a_frame(context: BrowserContext, run: SentRun) -> None:
    page = context.new_page()
    frame = f'<iframe src="{run.url}" width="100%" height="700"></iframe>'
    page.route(NOTEBOOK, lambda route: route.fulfill(content_type="text/html", body=frame))
    page.goto(NOTEBOOK)
    expect(page.frame_locator("iframe").get_by_role("heading", level=1)).to_contain_text("baseline")


def test_a_page_from_elsewhere_may_not(context: BrowserContext, run: SentRun) -> None:
    page = context.new_page()
    frame = f'<iframe src="{run.url}"></iframe>'
    page.route("http://elsewhere.example/", lambda route: route.fulfill(content_type="text/html", body=frame))
    with page.expect_console_message(lambda said: "frame-ancestors" in said.text):
        page.goto("http://elsewhere.example/")
