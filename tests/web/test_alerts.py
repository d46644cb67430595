"""Alerts in a real browser: said wherever one is, counted, listed and acknowledged; their rules and targets."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.web.conftest import Complaints
from tests.web.kit import WITHOUT_LAYERS, SentRun, Served

NOT_SCALED = {"main": {"precision": "bf16", "scaler": None}}


@pytest.fixture
def steady(served: Served) -> SentRun:
    """A run with a hundred calm steps."""
    run = served.put(project="lm", name="steady", streams=NOT_SCALED)
    run.send(range(100), loss_scale=None, **WITHOUT_LAYERS)
    return run


def break_down(run: SentRun, first: int = 100) -> None:
    """A burst of NaN, which alone makes one alert."""
    steps = range(first, first + 8)
    run.send(steps, grad_norm_before_clip=["NaN" for _ in steps], clip_coef=None, loss_scale=None, **WITHOUT_LAYERS)


def test_an_alert_is_said_counted_listed_and_acknowledged(page: Page, served: Served, steady: SentRun) -> None:
    page.goto(served.url)
    expect(page.locator("run-row")).to_have_count(1)
    expect(page.locator("connection-status")).to_have_text("Live")
    expect(page.locator("alert-bell")).to_be_hidden()
    break_down(steady)
    toast = page.locator(".toast")
    expect(toast.first).to_contain_text(re.compile("NaN or Inf|dead"))
    expect(toast.first).to_contain_text("lm / steady")
    expect(page).to_have_title(re.compile(r"^\(\d\) Runs · Gradsight$"))
    expect(page.locator("run-row .row-alerts")).to_be_visible()
    page.get_by_role("link", name="Alerts").first.click()
    row = page.locator("alert-row").first
    expect(row).to_contain_text("lm / steady · steps 100")
    expect(page).to_have_title(re.compile(r"^\(\d\) Alerts · Gradsight$"))
    while page.locator("alert-row button").count():
        before = page.locator("alert-row").count()
        page.locator("alert-row button").first.click()
        expect(page.locator("alert-row")).to_have_count(before - 1)
    expect(page.get_by_text("No open alerts")).to_be_visible()
    expect(page).to_have_title("Alerts · Gradsight")
    page.get_by_label("State").select_option("now")
    expect(page.locator("alert-row").first).to_contain_text("acknowledged by 127.0.0.1")
    page.reload()
    expect(page.get_by_label("State")).to_have_value("now")
    page.locator("alert-row .alert-title").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("steady")
    assert "steps=80-" in page.url


def test_an_alert_reaches_every_page_and_tab(
    context: BrowserContext, page: Page, served: Served, steady: SentRun
) -> None:
    other = context.new_page()
    for tab, path in ((page, "/settings"), (other, f"/compare?runs={steady.id}")):
        tab.goto(served.url + path)
        expect(tab.locator("connection-status")).to_have_text("Live")
    break_down(steady)
    for tab in (page, other):
        expect(tab.locator(".toast").first).to_be_visible()
        expect(tab).to_have_title(re.compile(r"^\(\d\) "))
    page.get_by_role("button", name="Close this message").first.click()
    served.forget_all()
    for tab in (page, other):
        expect(tab).not_to_have_title(re.compile(r"^\("))


def test_an_alert_that_has_passed_by_the_time_it_is_heard_of_is_shown_too(
    page: Page, served: Served, steady: SentRun
) -> None:
    page.goto(f"{served.url}/settings")
    expect(page.locator("connection-status")).to_have_text("Live")
    norms = ["NaN"] * 3 + [0.5] * 97
    steady.send(range(100, 200), grad_norm_before_clip=norms, clip_coef=None, loss_scale=None, **WITHOUT_LAYERS)
    expect(page.locator(".toast").first).to_contain_text("NaN or Inf")
    assert served.client.get("/api/v1/alerts", params={"state": "open"}).json()["items"] == []


def test_a_system_notification_comes_where_nobody_looks_and_it_was_allowed(
    context: BrowserContext, page: Page, served: Served, steady: SentRun
) -> None:
    """The notification itself is the system's: what is looked at is the asking, and that it is made once."""
    context.grant_permissions(["notifications"], origin=served.url)
    page.add_init_script(
        """window.shown = [];
        const Real = Notification;
        window.Notification = class extends Real {
          constructor(title, options) { super(title, options); window.shown.push([title, options.body]); }
        };"""
    )
    page.goto(f"{served.url}/settings")
    expect(page.locator("notify-switch button[data-state=off]")).to_have_attribute("aria-pressed", "true")
    page.locator("notify-switch button[data-state=on]").click()
    expect(page.locator("notify-switch button[data-state=on]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("connection-status")).to_have_text("Live")
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true})")
    break_down(steady)
    expect(page.locator(".toast").first).to_be_visible()
    shown = page.evaluate("window.shown")
    assert shown
    assert shown[0][1] == "lm / steady"


def test_alerts_that_cannot_be_read_say_so_and_can_be_tried_again(
    page: Page, served: Served, complaints: Complaints
) -> None:
    page.route("**/api/v1/alerts?*", lambda route: route.fulfill(status=500, json={"detail": "broken"}))
    page.goto(f"{served.url}/alerts")
    expect(page.locator("connection-status")).to_have_text("Live")
    expect(page.get_by_text("The alerts could not be loaded. broken")).to_be_visible()
    page.unroute("**/api/v1/alerts?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("No open alerts")).to_be_visible()
    complaints.clear()


def test_a_rule_is_tried_changed_saved_and_put_back(page: Page, served: Served, steady: SentRun) -> None:
    break_down(steady)
    page.goto(f"{served.url}/settings")
    rule = page.locator("alert-rule[data-kind=nonfinite_burst]")
    rule.locator("summary").click()
    rule.get_by_role("button", name="Try on the last 7 days").click()
    expect(rule.locator(".rule-preview")).to_contain_text(
        re.compile(r"fired 1\u00a0time in 1 of .*lm / steady", re.DOTALL)
    )
    rule.get_by_label("Threshold").fill("20")
    rule.get_by_label("Threshold").press("Tab")
    rule.get_by_role("button", name="Try on the last 7 days").click()
    expect(rule.locator(".rule-preview")).to_contain_text("It would not have fired")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".toast")).to_contain_text("Alert rules saved")
    expect(page.get_by_role("button", name="Save")).to_be_hidden()
    page.reload()
    expect(rule.locator(".rule-origin")).to_have_text("changed for all projects")
    expect(rule.locator(".rule-brief").first).to_contain_text("threshold 20")
    rule.locator("summary").click()
    rule.get_by_role("button", name="Back to default").click()
    page.get_by_role("button", name="Save").click()
    expect(rule.locator(".rule-origin")).to_have_text("as shipped")
    assert served.client.get("/api/v1/alert-rules").json()["items"][1]["threshold"] == 3


def test_a_number_out_of_bounds_is_not_taken(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/settings")
    rule = page.locator("alert-rule[data-kind=skip_rate]")
    rule.locator("summary").click()
    rule.get_by_label("Threshold").fill("7")
    rule.get_by_label("Threshold").press("Tab")
    expect(page.get_by_role("button", name="Save")).to_be_hidden()


def test_rules_of_one_project_leave_the_others(page: Page, served: Served, steady: SentRun) -> None:
    page.goto(f"{served.url}/settings")
    page.get_by_label("Rules for").select_option(label="Project lm")
    toggle = page.get_by_label("Alert at: Norm spike")
    expect(toggle).to_be_checked()
    toggle.uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.locator("alert-rule[data-kind=norm_spike] .rule-origin")).to_have_text("changed for this project")
    page.get_by_label("Rules for").select_option(label="All projects")
    expect(page.locator("alert-rule[data-kind=norm_spike] .rule-origin")).to_have_text("as shipped")
    expect(toggle).to_be_checked()
    served.client.put("/api/v1/alert-rules", params={"project": "lm"}, json={"rules": []}).raise_for_status()


def test_without_targets_the_settings_say_how_to_name_some(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/settings")
    expect(page.locator("notification-targets")).to_contain_text("GRADSIGHT_NOTIFICATIONS=")


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[str]]]:
    """Where messages go: an address of this machine, and what came."""
    came: list[str] = []

    class Post(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the base class calls it so
            came.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Post)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"json://127.0.0.1:{server.server_port}/", came
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_target_is_tested_from_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receiver: tuple[str, list[str]], context: BrowserContext
) -> None:
    url, came = receiver
    nobody = {"url": "json://127.0.0.1:9/", "name": "gone", "severity": "critical"}
    monkeypatch.setenv("GRADSIGHT_NOTIFICATIONS", json.dumps([{"url": url, "name": "team"}, nobody]))
    with closing(Served(tmp_path)) as other:
        other.start()
        page = context.new_page()
        page.goto(f"{other.url}/settings")
        expect(page.locator(".target")).to_have_count(2)
        page.get_by_role("button", name="Send a test to team").click()
        expect(page.locator(".target[data-name=team] .target-answer")).to_contain_text("Sent in")
        assert "Gradsight" in "".join(came)
        page.get_by_role("button", name="Send a test to gone").click()
        expect(page.locator(".target[data-name=gone] .target-answer")).to_contain_text("Failed:")
