"""What targets get: text in which nothing is markup, whatever names hold and whatever the service makes of it."""

import warnings
from typing import Any

import pytest

from gradsight_server.alerts.messages import Note, Waiting, note_of, plain
from gradsight_server.alerts.notify import _sender, body_for, targets_of
from gradsight_server.errors import SettingsError
from gradsight_server.settings import NotificationTarget, Settings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import apprise
    from apprise.plugins.base import NotifyBase

NASTY = "<b>x</b> *y* _z_ [l](http://evil) `c` &amp;"
NOTE = Note("Gradsight: test", (f"run {NASTY}", "step 3"), "https://grad-a.example.org/runs/0a")


def at(**target: str) -> NotificationTarget:
    return NotificationTarget.model_validate(target)


def told(**change: Any) -> Waiting:
    payload: dict[str, Any] = {
        "alert_id": 1,
        "change": "opened",
        "kind": "nonfinite_burst",
        "title": "NaN or Inf in 3 steps",
        "run_name": "baseline",
        "stream": "main",
        "attempt": 1,
        "first_step": 5,
        "last_step": 7,
        "num_repeats": 0,
        "value": 3.0,
        "layer": None,
        "opened_at_s": 1.0,
    }
    return Waiting(1, "ab" * 16, "lm", "critical", payload | change, 1.0)


def sent_by(shown_as: str) -> tuple[str, str]:
    """(title, body) as a service of Apprise's with this format gets them."""

    def send(service: Any, body: str, title: str = "", **_: Any) -> bool:
        got.append((title, body))
        return True

    fields = {"notify_format": shown_as, "service_name": "Capture", "request_rate_per_sec": 0, "send": send}
    service: Any = type("Capture", (NotifyBase,), fields)
    got: list[tuple[str, str]] = []
    assert _sender(service())(NOTE, "critical") is None
    return got[0]


def test_text_arrives_as_it_is_with_the_link_on_a_line_of_its_own() -> None:
    title, body = sent_by("text")
    assert (title, body.splitlines()) == (NOTE.title, [*NOTE.lines, NOTE.link])


def test_in_html_tags_arrive_as_text() -> None:
    _, body = sent_by("html")
    assert "<b>" not in body
    assert "&lt;b&gt;x&lt;/b&gt;" in body
    assert "&amp;amp;" in body


def test_in_markdown_marks_arrive_as_text_and_the_link_as_a_link() -> None:
    _, body = sent_by("markdown")
    assert r"\*y\* \_z\_ \[l\]\(http://evil\) \`c\`" in body
    assert r"\<b" in body
    assert body.splitlines()[-1] == NOTE.link
    assert body.count("  \n") == 2


@pytest.mark.parametrize(
    "url", ["discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "mmost://localhost/3ccdd113474722377935"]
)
def test_chats_that_read_markdown_in_text_get_it_escaped_too(url: str) -> None:
    body, _ = body_for(apprise.Apprise.instantiate(url), NOTE)
    assert r"\*y\*" in body


def test_names_neither_break_out_of_their_line_nor_call_everybody() -> None:
    assert plain("a\nb\x1b[31m\u202e") == "a b [31m "
    assert plain("@everyone @here @anna") == "@\u200beveryone @\u200bhere @anna"
    assert len(plain("x" * 5000)) == 200
    note = note_of([told(run_name="evil\nhttps://other.example.org")], public_url=None)
    assert note.lines[1] == "run evil https://other.example.org (project lm)"


def test_a_message_says_run_steps_value_layer_and_where_to_look() -> None:
    note = note_of([told(layer="head", stream="generator", attempt=2, num_repeats=2)], public_url="http://g")
    assert note == Note(
        "Gradsight: critical alert",
        (
            "NaN or Inf in 3 steps, for the 3rd time",
            "run baseline (project lm), stream generator, launch 2",
            "steps 5 to 7, value 3, first bad layer head",
        ),
        f"http://g/runs/{'ab' * 16}",
    )
    silent = note_of([told(first_step=None, last_step=None, value=None)], public_url=None)
    assert silent.lines == ("NaN or Inf in 3 steps", "run baseline (project lm)")


def test_targets_are_told_what_they_ask_for() -> None:
    configured = at(url="json://localhost", project="vision-*", severity="critical")
    (target,) = targets_of([configured])
    assert [target.wants(Waiting(1, "", project, severity, {}, 0.0)) for project, severity in (
        ("vision-a", "critical"), ("vision-a", "warning"), ("lm", "critical"),
    )] == [True, False, False]  # fmt: skip


def test_targets_without_a_name_go_by_their_service_and_no_two_by_one_name() -> None:
    urls = [at(url=f"json://localhost/{i}") for i in range(2)]
    assert [target.name for target in targets_of(urls)] == ["JSON", "JSON 2"]
    twice = [at(url="json://localhost", name="a")] * 2
    with pytest.raises(SettingsError, match="'a'"):
        targets_of(twice)


def test_an_address_that_apprise_cannot_use_is_refused_without_being_shown() -> None:
    for url, shown in (("nosuch://user:hidden@host", "nosuch://…"), ("hidden", "no scheme")):
        with pytest.raises(SettingsError, match=r"notifications\[0\]") as caught:
            targets_of([at(url=url)])
        assert shown in str(caught.value)
        assert "hidden" not in str(caught.value)


def test_where_nobody_can_know_the_address_there_is_no_link() -> None:
    assert Settings(public_url="https://g/").address == "https://g"
    assert Settings(port=8420).address == "http://127.0.0.1:8420"
    assert Settings(port=0).address is None
    assert Settings(host="0.0.0.0", insecure_no_auth=True).address is None


def test_a_failure_says_what_the_service_says() -> None:
    (target,) = targets_of([at(url="json://127.0.0.1:9/secret")])
    problem = target.send(NOTE, "critical")
    assert problem
    assert "secret" not in problem
