"""The verdicts on the page of a run: words first, evidence on asking, kept current; and the findings under them."""

import re
from typing import get_args

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from gradsight_server.diagnosis.answer import ClippingVerdict, ScalingVerdict
from gradsight_server.diagnosis.rules import RULES
from gradsight_server.diagnosis.texts import CATALOGUES
from gradsight_server.judging.telling import SAID
from tests.web.conftest import Complaints
from tests.web.kit import (
    WITHOUT_LAYERS,
    SentRun,
    Served,
    call_of,
    send_too_tight,
    shown_range,
    wait_for_charts,
    wait_until,
)

CLIPPING = "verdict-card:nth-of-type(1)"
LOSS_SCALE = "verdict-card:nth-of-type(2)"
NONFINITE = "verdict-card:nth-of-type(3)"


def test_the_verdict_says_what_is_wrong_with_its_numbers_and_what_to_try(page: Page, tight: SentRun) -> None:
    page.goto(tight.url)
    card = page.locator(CLIPPING)
    expect(card.locator(".verdict-word")).to_have_text("Too tight, warning")
    expect(card).to_have_attribute("data-tone", "warning")
    expect(card.locator(".verdict-lead")).to_contain_text("of the last")
    expect(card.locator(".verdict-lead")).to_contain_text("the median norm is 20")
    expect(card.locator(".verdict-rest")).to_contain_text("Raise max_norm to")
    expect(page.locator(LOSS_SCALE).locator(".verdict-word")).to_have_text("Not used")
    expect(page.locator(NONFINITE).locator(".verdict-word")).to_have_text("None, healthy")


def test_verdicts_do_not_wait_for_the_drawing_library(page: Page, tight: SentRun, complaints: Complaints) -> None:
    page.route(re.compile("plotly"), lambda route: route.abort())
    page.goto(tight.url)
    expect(page.locator(CLIPPING)).to_contain_text("Too tight")
    expect(page.locator("what-if-panel")).to_contain_text("100\u00a0% clipped")
    complaints.clear()


def test_a_healthy_run_is_told_so_calmly(page: Page, run: SentRun) -> None:
    run.send(range(40, 120), **WITHOUT_LAYERS)
    page.goto(run.url)
    expect(page.locator(f"{CLIPPING} .verdict-word")).to_have_text("Healthy, healthy")
    expect(page.locator("verdict-card[data-tone=warning], verdict-card[data-tone=critical]")).to_have_count(0)
    expect(page.locator("finding-row[data-severity=warning]")).to_have_count(0)


def test_what_is_not_known_yet_says_what_is_missing(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    card = page.locator(CLIPPING)
    expect(card.locator(".verdict-word")).to_have_text("Unknown")
    expect(card).to_have_attribute("data-tone", "quiet")
    expect(card).to_contain_text("There are 40 finite gradient norms, a verdict wants 50.")


def test_a_run_without_steps_waits_for_its_verdict(page: Page, served: Served) -> None:
    page.goto(served.put(name="early").url)
    expect(page.locator(".verdict-word")).to_have_text(["Not yet"] * 3)
    expect(page.locator("verdict-card button")).to_have_count(3)
    assert not page.locator("verdict-card button").first.is_visible()


def test_why_opens_numbers_and_rule_and_closes_again(page: Page, tight: SentRun) -> None:
    page.goto(tight.url)
    why = page.get_by_role("button", name="Why Too tight? Clipping")
    expect(why).to_have_attribute("aria-expanded", "false")
    why.press("Enter")
    panel = page.locator(".why")
    expect(panel.get_by_role("heading", level=2)).to_be_focused()
    expect(panel).to_contain_text("Why: The clipping threshold is too tight")
    expect(panel).to_contain_text("Median norm unscaled, before clipping")
    expect(panel).to_contain_text("clipping_too_tight")
    expect(panel).to_contain_text("Above 50%")
    expect(why).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(why).to_be_focused()


def test_a_link_opens_at_the_evidence(page: Page, tight: SentRun) -> None:
    page.goto(f"{tight.url}?why=clipping")
    expect(page.locator(".why")).to_contain_text("The clipping threshold is too tight")


def test_a_dead_run_names_its_layer_and_gives_code_to_copy(context: BrowserContext, page: Page, served: Served) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    run = served.put(name="dead", streams={"main": {"policy": "global_norm(1.0)", "precision": "bf16", "scaler": None}})
    run.send(range(100), **WITHOUT_LAYERS)
    lost = range(100, 120)
    layer = ["blocks.<b>1</b>.weight" for _ in lost]
    nan = ["NaN" for _ in lost]
    run.send(lost, grad_norm_before_clip=nan, loss=nan, first_nonfinite_layer=layer, **WITHOUT_LAYERS)
    page.goto(run.url)
    card = page.locator(NONFINITE)
    expect(card.locator(".verdict-word")).to_have_text("Dead since step 100, critical")
    expect(card.locator("code")).to_have_text(layer[0])
    card.get_by_role("button").click()
    snippet = page.locator(".why code-snippet")
    expect(snippet.locator("code")).to_contain_text("torch.autograd.set_detect_anomaly(True)")
    snippet.get_by_role("button", name="Copy").click()
    expect(snippet.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    compile(copied, "snippet.py", "exec")


def test_a_finding_shows_its_steps_in_the_charts(page: Page, served: Served) -> None:
    run = served.put(name="collapsed")
    norms = [1.0 + 0.01 * (step % 7) if step < 150 else 1e-5 for step in range(300)]
    run.send(range(300), grad_norm_before_clip=norms, clip_coef=None, **WITHOUT_LAYERS)
    page.goto(run.url)
    wait_for_charts(page, ["norm", "clip_fraction", "loss", "loss_scale"])
    finding = page.locator("finding-row", has_text="The gradient norm has collapsed")
    expect(finding).to_have_attribute("data-severity", re.compile("warning|critical"))
    expect(finding.locator(".finding-advice")).to_contain_text("It fell from")
    finding.get_by_role("button", name=re.compile("^step")).click()
    wait_until(lambda: shown_range(page)[0] != [-0.5, 299.5])
    expect(page.locator(".marked")).to_be_visible()
    finding.get_by_role("button", name="The gradient norm has collapsed").click()
    expect(finding).to_contain_text("Norm before")
    expect(finding).to_contain_text("norm_collapsed")
    page.get_by_role("button", name="All", exact=True).click()
    wait_until(lambda: shown_range(page)[0] == [-0.5, 299.5])
    expect(page.locator(".marked")).to_be_hidden()


def test_a_verdict_changes_while_one_looks(page: Page, run: SentRun) -> None:
    page.goto(run.url)
    expect(page.locator(f"{CLIPPING} .verdict-word")).to_have_text("Unknown")
    expect(page.locator("connection-status")).to_have_text("Live")
    send_too_tight(run, range(40, 400))
    expect(page.locator(f"{CLIPPING} .verdict-word")).to_have_text("Too tight, warning")
    expect(page.locator("run-timeline")).to_contain_text("Clipping became too tight")


def test_a_diagnosis_that_cannot_be_read_says_so_and_can_be_tried_again(
    page: Page, tight: SentRun, complaints: Complaints
) -> None:
    page.route("**/diagnosis?*", lambda route: route.fulfill(status=503, json={"detail": "busy"}))
    page.goto(tight.url)
    expect(page.get_by_text("The diagnosis could not be loaded. busy")).to_be_visible()
    wait_for_charts(page, ["norm", "clip_fraction", "clip_coef", "loss"])
    page.unroute("**/diagnosis?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(f"{CLIPPING} .verdict-lead")).to_contain_text("clipped")
    expect(page.locator(".diagnosis-problem")).to_be_hidden()
    complaints.clear()


def test_each_stream_has_verdicts_of_its_own(page: Page, served: Served) -> None:
    run = served.put(name="gan")
    send_too_tight(run, range(200))
    run.send(range(200), stream="other", **WITHOUT_LAYERS)
    page.goto(run.url)
    expect(page.locator(f"{CLIPPING} .verdict-word")).to_have_text("Too tight, warning")
    page.get_by_label("Stream").select_option("other")
    expect(page.locator(f"{CLIPPING} .verdict-word")).to_have_text("Healthy, healthy")
    page.get_by_role("link", name="main: Clipping, Too tight").click()
    expect(page.locator(f"{CLIPPING} .verdict-word")).to_have_text("Too tight, warning")
    expect(page.get_by_text("Another stream needs a look:")).to_be_hidden()
    # In the list the share is that of `main`: it stands beside no verdict of another stream.
    served.forget_all()
    other = served.put(name="gan")
    other.send(range(200), loss_scale=None, **WITHOUT_LAYERS)
    send_too_tight(other, range(200), stream="other")
    page.goto(served.url)
    expect(page.locator("run-row .clipping verdict-badge")).to_have_text("Too tight")
    expect(page.locator("run-row .clipping .muted")).to_have_text("")


def test_the_end_of_a_run_is_on_its_timeline(page: Page, tight: SentRun) -> None:
    tight.post({"events": [{"kind": "failed", "message": "out of <b>memory</b>"}]})
    page.goto(tight.url)
    expect(page.locator("run-timeline li").first).to_contain_text("Failed: out of <b>memory</b>")


def test_every_verdict_has_a_word(page: Page, served: Served) -> None:
    page.goto(served.url)
    names = [f"verdict.clipping.{verdict}" for verdict in get_args(ClippingVerdict)]
    names += [f"verdict.loss_scaling.{verdict}" for verdict in get_args(ScalingVerdict)]
    assert not [name for name in names if call_of(page, "texts.js", "knownText", name) is None]


def test_every_number_of_the_catalogue_has_a_name(page: Page, served: Served) -> None:
    page.goto(served.url)
    texts = [text for pair in CATALOGUES["en"].values() for text in pair]
    found = {name for text in texts for name in re.findall(r"\{(\w+)(?::[\w ]+)?\}", text)}
    numbers = found - {"names", "recommended_low", "recommended_high"}
    assert not [name for name in numbers if call_of(page, "texts.js", "knownText", f"evidence.{name}") is None]


def test_rules_are_those_of_the_diagnosis_word_for_word(page: Page, served: Served) -> None:
    page.goto(served.url)
    shown = page.evaluate(
        """async () => {
          const main = document.querySelector("script[type=module]").src;
          return (await import(new URL("lib/rules.js", main))).RULES;
        }"""
    )
    assert shown == {rule.code: rule.border for group in RULES.values() for rule in group}, "mend web/lib/rules.js"


def test_the_page_has_its_own_words_for_what_verdicts_say_of_their_changes(page: Page, served: Served) -> None:
    page.goto(served.url)
    for message in SAID.values():
        assert call_of(page, "texts.js", "knownText", f"timeline.said.{message}") is not None, "mend web/texts"


@pytest.mark.parametrize(
    ("advice", "brief"),
    [
        (
            "95 % were clipped; the threshold is 1.0. Raise it. Or not.",
            ("95 % were clipped; the threshold is 1.0.", "Raise it. Or not."),
        ),
        ("Stop. Look here:\n\n    code()\n\nTurn it off.", ("Stop.", "")),
        ("", ("", "")),
    ],
    ids=["sentences", "code", "nothing"],
)
def test_a_card_shows_the_advice_in_brief(page: Page, served: Served, advice: str, brief: tuple[str, str]) -> None:
    page.goto(served.url)
    found = call_of(page, "advice.js", "inBrief", advice)
    assert (found["lead"], found["rest"]) == brief
