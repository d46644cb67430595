"""A log on the page: dropped, chosen or pasted it is judged, and kept only if the person says so."""

import re

from playwright.sync_api import Locator, Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import Served

NORMS = [18.0 + step * 7 % 11 / 2 for step in range(200)]
TIGHT = "step,loss,grad_norm,max_norm\n" + "\n".join(f"{i},{4 - i / 200},{norm},1.0" for i, norm in enumerate(NORMS))
OPEN = "step,loss,grad_norm\n" + "\n".join(f"{i},{4 - i / 200},{norm}" for i, norm in enumerate(NORMS))


def drop(page: Page, on: Locator, name: str, text: str) -> None:
    """As a file dragged out of a file browser arrives."""
    dropped = page.evaluate_handle(
        """([name, text]) => {
          const dropped = new DataTransfer();
          dropped.items.add(new File([text], name));
          return dropped;
        }""",
        [name, text],
    )
    on.dispatch_event("drop", {"dataTransfer": dropped})


def test_a_dropped_log_gives_its_verdict_and_becomes_a_run_when_told_to(page: Page, served: Served) -> None:
    page.goto(served.url)
    here = page.locator("first-run log-drop")
    drop(page, here.locator(".drop-zone"), "train.csv", TIGHT)
    expect(here.locator("log-part verdict-badge").first).to_have_text("Too tight")
    expect(here.locator("log-part dd").first).to_contain_text("100 % of the last")
    assert served.client.get("/api/v1/runs").json()["items"] == []
    here.get_by_role("button", name="Keep as a run").click()
    expect(page.locator("run-row .name")).to_have_text(re.compile("train"))
    page.locator("run-row .run-link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("train")


def test_a_file_dropped_anywhere_on_the_list_is_read_and_leads_to_its_run(page: Page, served: Served) -> None:
    served.put(name="there")
    page.goto(served.url)
    expect(page.locator("run-row")).to_have_count(1)
    drop(page, page.locator(".page-head"), "log.csv", TIGHT)
    dialog = page.get_by_role("dialog", name="What does a log say?")
    expect(dialog.locator("log-part verdict-badge").first).to_have_text("Too tight")
    dialog.get_by_role("button", name="Keep as a run").click()
    expect(dialog.get_by_role("button", name="Kept")).to_be_disabled()
    dialog.get_by_role("link", name=re.compile("Open .*log")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("log")
    expect(dialog).to_be_hidden()


def test_a_log_without_a_threshold_is_judged_by_the_one_that_is_told(page: Page, served: Served) -> None:
    served.put(name="there")
    page.goto(served.url)
    page.get_by_role("button", name="Drop a log…").click()
    dialog = page.get_by_role("dialog", name="What does a log say?")
    dialog.locator("input[type=file]").set_input_files(
        {"name": "a.csv", "mimeType": "text/csv", "buffer": OPEN.encode()}
    )
    expect(dialog.locator("log-part verdict-badge").first).to_have_text("Unknown")
    dialog.get_by_label("Threshold in force").fill("2")
    dialog.get_by_role("button", name="Judge again").click()
    expect(dialog.locator("log-part verdict-badge").first).to_have_text("Too tight")


def test_pasted_lines_are_read_and_what_is_no_log_says_why(page: Page, served: Served, complaints: Complaints) -> None:
    page.goto(served.url)
    here = page.locator("first-run log-drop")
    here.get_by_label("Lines of a log").fill("nothing to see")
    here.get_by_role("button", name="Read these lines").click()
    expect(here.locator(".problem")).to_contain_text("pasted log could not be read")
    here.get_by_label("Lines of a log").fill(TIGHT)
    here.get_by_role("button", name="Read these lines").click()
    expect(here.locator("log-part verdict-badge").first).to_have_text("Too tight")
    complaints.clear()
