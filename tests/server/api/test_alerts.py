"""Alerts over REST: listed, acknowledged, in the live stream, told to targets; rules that are checked and tried."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from gradsight_server import alert_schemas as shapes
from gradsight_server.alerts import courier
from gradsight_server.errors import SettingsError
from gradsight_server.settings import load_settings
from gradsight_server.store import models
from tests.postgres import NewDatabase
from tests.server.api.kit import RUN, Running, next_of, running, wait_until
from tests.server.api.receiver import Receiver, receiving

NAMED = {"name": "<b>bold</b> *run* @everyone", "project": "lm"}
BURST = {
    "step": [0, 1, 2, 3],
    "grad_norm_before_clip": [1.0, "NaN", "NaN", "Infinity"],
    "first_nonfinite_layer": [None, "blocks.0.attn", "blocks.0.attn", "head"],
}


@pytest.fixture(scope="module")
def hook() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture(scope="module")
def telling(new_database: NewDatabase, hook: Receiver) -> Iterator[Running]:
    """A server that tells the receiver."""
    targets = [
        {"url": hook.url, "name": "all"},
        {"url": f"{hook.url}/2", "name": "vision only", "project": "vision-*"},
    ]
    with pytest.MonkeyPatch.context() as patch, new_database("tables") as url:
        patch.setattr(courier, "BURST", 1_000_000)
        patch.setattr(courier, "REFILL_S", 1e-6)
        patch.setattr(courier, "FIRST_RETRY_S", 0.2)
        with running(db=url, notifications=tuple(targets), public_url="https://grad.example.org/") as server:
            wait_until(lambda: server.app.state.background.is_leader)
            yield server


@pytest.fixture
def told(telling: Running, hook: Receiver) -> Iterator[Running]:
    """The same with one run, which has no steps yet, and the default rules."""
    hook.refuses = False
    hook.got.clear()
    telling.put(**NAMED)
    yield telling
    hook.refuses = False
    hook.open.set()
    wait_until(lambda: all(target["num_waiting"] == 0 for target in telling.get("notification-targets")["items"]))
    for run in telling.get("runs")["items"]:
        telling.client.delete(f"/api/v1/runs/{run['id']}")
        put_rules(telling, project=run["project"])
    put_rules(telling)


def items(server: Running, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get("alerts", **query)["items"]
    return found


def test_a_burst_reaches_the_list_the_run_the_answer_the_browser_and_the_webhook(told: Running, hook: Receiver) -> None:
    with told.live() as events:
        position = next(events).data["position"]
        answer = told.send(BURST)
        live = next_of(events, "alert").data
    with told.live(after=position) as events:
        assert next_of(events, "alert").data == live, "who comes back hears of it too"
    (alert,) = items(told)
    shapes.AlertPage.model_validate(told.get(f"runs/{RUN}/alerts"), strict=True)
    assert live == alert | {"change": "opened"}
    assert (alert["kind"], alert["state"], alert["severity"]) == ("nonfinite_burst", "open", "critical")
    assert (alert["first_step"], alert["last_step"], alert["layer"]) == (1, 3, "blocks.0.attn")
    assert [(notice["id"], notice["kind"]) for notice in answer["alerts"]] == [(alert["id"], "nonfinite_burst")]
    assert told.get(f"runs/{RUN}")["open_alerts"] == {"info": 0, "warning": 0, "critical": 1}
    assert told.get("runs")["items"][0]["open_alerts"]["critical"] == 1
    assert 'gradsight_open_alerts{severity="critical"} 1.0' in told.client.get("/metrics").text
    wait_until(lambda: len(hook.got) == 1)
    (message,) = hook.got
    assert message["title"] == "Gradsight: critical alert"
    assert message["message"].splitlines() == [
        "NaN or Inf in 3 steps, first in blocks.0.attn",
        "run <b>bold</b> *run* @\u200beveryone (project lm)",
        "steps 1 to 3, value 3, first bad layer blocks.0.attn",
        f"https://grad.example.org/runs/{RUN}",
    ]


def test_an_acknowledged_alert_keeps_who_and_when_and_is_open_no_more(told: Running) -> None:
    told.send(BURST)
    path = f"/api/v1/runs/{RUN}/alerts/1/acknowledge"
    with told.live() as events:
        next(events)
        found = told.checked(told.client.post(path, json={"by": "Ada"}))
        assert any(event.name == "alert" and event.data["change"] == "acknowledged" for event in events)
    shapes.AlertShape.model_validate(found, strict=True)
    assert (found["state"], found["acknowledged_by"]) == ("acknowledged", "Ada")
    again = told.checked(told.client.post(path))
    assert (again["acknowledged_by"], again["acknowledged_at_s"]) == ("Ada", found["acknowledged_at_s"])
    assert told.get(f"runs/{RUN}")["open_alerts"]["critical"] == 0
    assert told.client.post(f"/api/v1/runs/{RUN}/alerts/9/acknowledge").status_code == 404
    assert told.client.post(f"/api/v1/runs/{'f' * 32}/alerts/1/acknowledge").status_code == 404


def test_without_a_name_who_acknowledged_is_an_address(told: Running) -> None:
    told.send(BURST)
    found = told.checked(told.client.post(f"/api/v1/runs/{RUN}/alerts/1/acknowledge"))
    assert found["acknowledged_by"] == "127.0.0.1"


def test_lists_are_filtered_and_paged(told: Running) -> None:
    others = [f"{i:032x}" for i in range(1, 4)]
    for i, run_id in enumerate(others):
        told.put(run_id, project="vision-a" if i else "lm")
        told.send(BURST, run_id=run_id)
        told.send({"step": list(range(4, 60)), "grad_norm_before_clip": [1.0] * 56}, run_id=run_id) if i else None
    told.send(BURST)
    assert len(items(told)) == 4
    assert {item["run_id"] for item in items(told, state="open")} == {RUN, others[0]}
    assert len(items(told, state="open,resolved", severity="critical")) == 4
    assert items(told, severity="info,warning") == []
    assert {item["run_id"] for item in items(told, project="vision-a")} == set(others[1:])
    assert [item["run_id"] for item in items(told, run=others[2])] == [others[2]]
    first = told.get("alerts", limit=3)
    rest = told.get("alerts", limit=3, cursor=first["next_cursor"])
    assert [item["run_id"] for item in first["items"] + rest["items"]] == [item["run_id"] for item in items(told)]
    assert rest["next_cursor"] is None
    for wrong in ({"state": "bad"}, {"severity": "ok"}, {"kind": "x"}, {"limit": 0}, {"cursor": "x"}, {"run": "x"}):
        assert told.client.get("/api/v1/alerts", params=wrong).status_code == 422, wrong
    assert told.client.get(f"/api/v1/runs/{'f' * 32}/alerts").status_code == 404


# Delivery


def test_a_target_that_refuses_gets_everything_later_in_order_and_shows_as_failing(
    told: Running, hook: Receiver
) -> None:
    refused_before, hook.refuses = hook.num_refused, True
    told.send(BURST)
    wait_until(lambda: hook.num_refused > refused_before)

    def target() -> dict[str, Any]:
        found = told.get("notification-targets")
        shapes.TargetList.model_validate(found, strict=True)
        first: dict[str, Any] = found["items"][0]
        return first

    wait_until(lambda: target()["state"] == "failing")
    num_sent = target()["num_sent"]
    assert target()["num_waiting"] == 1
    assert "503" in target()["last_error"]
    assert "secret" not in json.dumps(told.get("notification-targets"))
    other = f"{1:032x}"
    told.put(other, project="lm", name="second")
    told.send(BURST, run_id=other)
    hook.refuses = False
    wait_until(lambda: target()["state"] == "ok")
    wait_until(lambda: target()["num_waiting"] == 0)
    assert [("second" in text) for text in hook.texts] == [False, True]
    assert (target()["num_sent"], target()["last_error"]) == (num_sent + 2, None)


def test_a_target_that_hangs_keeps_neither_steps_nor_other_targets_waiting(url: str, hook: Receiver) -> None:
    with receiving() as slow:
        slow.open.clear()
        targets = ({"url": f"{slow.url}?rto=30"}, {"url": hook.url})
        hook.got.clear()
        with running(db=url, notifications=targets) as server:
            server.put()
            server.send(BURST)
            wait_until(lambda: slow.num_asked == 1)
            wait_until(lambda: len(hook.got) == 1)
            for step in range(4, 24):
                assert server.send({"step": [step], "loss": [1.0]})["accepted_steps"] == 1
            server.put(f"{1:032x}")
            server.send(BURST, run_id=f"{1:032x}")
            wait_until(lambda: len(hook.got) == 2)
            assert slow.got == []
            slow.open.set()
            wait_until(lambda: len(slow.got) == 2)


def test_many_messages_at_once_go_as_one(told: Running, hook: Receiver) -> None:
    asked_before, refused_before, hook.refuses = hook.num_asked, hook.num_refused, True
    hook.open.clear()
    told.send(BURST)
    wait_until(lambda: hook.num_asked > asked_before)
    for i in range(1, 31):
        told.put(f"{i:032x}", name=f"run {i}", project="lm")
        told.send(BURST, run_id=f"{i:032x}")
    hook.open.set()
    wait_until(lambda: hook.num_refused > refused_before)
    hook.refuses = False
    wait_until(lambda: bool(hook.got))
    (message,) = hook.got
    assert message["title"] == "Gradsight: 31 alerts"
    lines = message["message"].splitlines()
    assert lines[1] == "critical: NaN or Inf in 3 steps, first in blocks.0.attn (run run 1, project lm)"
    assert lines[-2:] == ["… and 11 more", "https://grad.example.org"]


def test_a_test_message_says_of_each_target_whether_it_came(told: Running, hook: Receiver) -> None:
    found = told.checked(told.client.post("/api/v1/notification-targets/test"))
    shapes.TargetTests.model_validate(found, strict=True)
    assert [(item["name"], item["ok"]) for item in found["items"]] == [("all", True), ("vision only", True)]
    assert sorted(hook.texts)[0].startswith("This is a test of the notification target all.")
    hook.refuses = True
    one = told.checked(told.client.post("/api/v1/notification-targets/test", json={"name": "all"}))
    assert [(item["ok"], "503" in item["error"]) for item in one["items"]] == [(False, True)]
    refused = told.client.post("/api/v1/notification-targets/test", json={"name": "nobody"})
    assert refused.status_code == 422
    assert "'nobody'" in refused.json()["detail"]


# Rules


def rule(found: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(item for item in found["items"] if item["kind"] == kind)


def put_rules(server: Running, *rules: dict[str, Any], **scope: str) -> Any:
    return server.checked(server.client.put("/api/v1/alert-rules", json={"rules": list(rules)}, params=scope))


def test_rules_are_changed_at_a_scope_and_inherited_below(told: Running) -> None:
    defaults = told.get("alert-rules")
    shapes.AlertRules.model_validate(defaults, strict=True)
    assert len(defaults["items"]) == 11
    put_rules(told, {"kind": "nonfinite_burst", "threshold": 2, "window": 30})
    put_rules(told, {"kind": "nonfinite_burst", "severity": "info"}, project="lm")
    found = put_rules(told, {"kind": "nonfinite_burst", "enabled": False}, run=RUN)
    shapes.AlertRules.model_validate(found, strict=True)
    mine = rule(found, "nonfinite_burst")
    assert (mine["threshold"], mine["window"], mine["severity"], mine["enabled"]) == (2, 30, "info", False)
    assert (mine["origin"], mine["change"]["enabled"], mine["change"]["threshold"]) == ("run", False, None)
    assert mine["default"]["threshold"] == 3
    other = rule(told.get("alert-rules", project="other"), "nonfinite_burst")
    assert (other["enabled"], other["severity"], other["origin"], other["threshold"]) == (True, "critical", "global", 2)
    told.send(BURST)
    assert items(told) == [], "turned off for this run"
    put_rules(told, run=RUN)
    told.send({"step": [4, 5, 6], "grad_norm_before_clip": ["NaN"] * 3})
    assert [item["severity"] for item in items(told)] == ["info"]


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([{"kind": "nope"}], "'nope'"),
        ([{"kind": "nonfinite_burst", "threshold": 30}], "30 in 20 steps can never be"),
        ([{"kind": "nonfinite_burst", "window": 2.5}], "2.5"),
        ([{"kind": "skip_streak", "window": 20}], "has no window"),
        ([{"kind": "skip_rate", "threshold": 1}], "below 1"),
        ([{"kind": "norm_spike", "threshold": 1}], "above 1"),
        ([{"kind": "norm_spike", "sustain": 150}], "at most 100"),
        ([{"kind": "silent_run", "threshold": 1}], "above 1"),
        ([{"kind": "dead_run", "severity": "bad"}], "'bad'"),
        ([{"kind": "dead_run", "cool_down_s": -1}], "cool_down_s"),
        ([{"kind": "dead_run"}, {"kind": "dead_run"}], "once"),
        ([{"kind": "dead_run", "colour": 1}], "colour"),
        ([{"kind": "norm_spike", "threshold": "NaN"}], "threshold"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_and_changes_nothing(
    telling: Running, rules: list[dict[str, Any]], said: str
) -> None:
    before = telling.get("alert-rules")
    refused = telling.client.put("/api/v1/alert-rules", json={"rules": rules})
    assert refused.status_code == 422
    assert said in refused.json()["detail"]
    assert telling.get("alert-rules") == before


def test_a_wider_change_that_leaves_a_narrower_rule_impossible_names_its_scope(told: Running) -> None:
    told.put(project="lm")
    burst = {"kind": "nonfinite_burst"}

    def refused(window: int, **scope: str) -> str:
        before = told.get("alert-rules", **scope)
        change = burst | {"window": window}
        answer = told.client.put("/api/v1/alert-rules", json={"rules": [change]}, params=scope)
        preview = told.client.post("/api/v1/alert-rules/preview", json={"rule": change}, params=scope)
        assert answer.status_code == preview.status_code == 422
        assert answer.json()["detail"] == preview.json()["detail"]
        assert told.get("alert-rules", **scope) == before
        return str(answer.json()["detail"])

    put_rules(told, burst | {"threshold": 15}, project="lm")
    assert refused(10).startswith("In project 'lm', which changes this rule itself: nonfinite_burst: 15 in 10 steps")
    put_rules(told, burst | {"window": 10}, project="other")
    put_rules(told, burst | {"threshold": 18}, run=RUN)
    assert f"In run '{RUN}'" in refused(16)
    assert f"In run '{RUN}'" in refused(16, project="lm")
    put_rules(told, burst | {"window": 30})
    put_rules(told, burst | {"threshold": 25}, project="lm")
    answer = told.client.put("/api/v1/alert-rules", json={"rules": []})
    assert (answer.status_code, "25 in 20" in answer.text) == (422, True), "going back to the defaults too"
    for scope in ({"run": RUN}, {"project": "lm"}, {"project": "other"}, {}):
        put_rules(told, **scope)


def test_what_is_impossible_already_stands_in_the_way_of_no_other_change(told: Running) -> None:
    impossible = {"scope": "project", "scope_id": "lm", "kind": "nonfinite_burst", "updated_at_s": 0.0}
    row = impossible | {"settings": {"threshold": 30}}
    told.app.state.database.write(lambda conn: conn.execute(insert(models.alert_rules), [row])).result(10)
    put_rules(told, {"kind": "dead_run", "window": 30})


def test_a_rule_that_fires_on_healthy_runs_is_warned_about(told: Running) -> None:
    found = put_rules(told, {"kind": "norm_spike", "threshold": 1.5}, {"kind": "silent_run", "least_s": 2})
    assert "healthy" in rule(found, "norm_spike")["warnings"][0]
    assert "validating" in rule(found, "silent_run")["warnings"][0]
    assert rule(found, "dead_run")["warnings"] == []


def test_a_preview_tells_how_often_a_rule_would_have_fired_and_on_what_it_looked(told: Running) -> None:
    now_s = time.time()
    for i, age_s in enumerate((100.0, 200.0, 3e6)):
        run_id = f"{i + 1:032x}"
        told.put(run_id, project="lm" if i else "other", name=f"run {i}")
        for bump in range(3):
            norms: list[Any] = [1.0] * 100 + ["NaN"] * 2 + [1.0] * 18
            begin = 120 * bump
            times = [now_s - age_s + (begin + k) * 0.001 for k in range(120)]
            told.send(
                {"step": list(range(begin, begin + 120)), "grad_norm_before_clip": norms, "wall_time_s": times},
                run_id=run_id,
            )
    assert items(told) == [], "two of twenty are no burst by default"

    def preview(change: dict[str, Any], days: float = 7.0, **scope: str) -> dict[str, Any]:
        body = {"rule": {"kind": "nonfinite_burst"} | change, "days": days}
        found: dict[str, Any] = told.checked(told.client.post("/api/v1/alert-rules/preview", json=body, params=scope))
        shapes.RulePreview.model_validate(found, strict=True)
        return found

    assert preview({})["num_fired"] == 0
    found = preview({"threshold": 2})
    assert (found["num_fired"], found["num_repeats"]) == (2, 4)
    assert sorted((run["run_name"], run["num_fired"], run["first_step"]) for run in found["runs"]) == [
        ("run 0", 1, 101),
        ("run 1", 1, 101),
    ]
    assert (found["covered"]["num_runs"], found["covered"]["num_steps"]) == (3, 720)
    assert found["covered"]["is_complete"]
    assert found["warnings"]
    assert preview({"threshold": 2, "cool_down_s": 0})["num_fired"] == 6
    assert preview({"threshold": 2}, days=60.0)["num_fired"] == 3
    assert preview({"threshold": 2}, project="lm")["num_fired"] == 1
    assert preview({"threshold": 2}, run=f"{1:032x}")["num_fired"] == 1
    assert told.get("alert-rules") == told.get("alert-rules"), "nothing was changed"
    for wrong in ({"threshold": 99}, {"colour": 1}, {"threshold": -1}):
        body = {"rule": {"kind": "nonfinite_burst"} | wrong}
        assert told.client.post("/api/v1/alert-rules/preview", json=body).status_code == 422


def test_a_preview_counts_one_cause_once_where_a_policy_has_groups(told: Running) -> None:
    told.put(streams={"main": {"policy": 'groups("0.*": 0.1, "*": 1.0)'}})
    norms: list[Any] = [1.0] * 50 + ["NaN"] * 5
    for stream in ("main", "main/0.*", "main/*"):
        told.send({"step": list(range(55)), "grad_norm_before_clip": norms}, stream=stream)
    assert [item["stream"] for item in items(told)] == ["main"]
    body = {"rule": {"kind": "nonfinite_burst"}}
    found = told.checked(told.client.post("/api/v1/alert-rules/preview", json=body))
    assert (found["num_fired"], found["covered"]["num_steps"]) == (1, 55)


def test_a_preview_of_silence_counts_long_pauses(told: Running) -> None:
    times = [time.time() - 1000 + step for step in range(100)] + [time.time() - 1000 + 300]
    told.send({"step": list(range(101)), "loss": [1.0] * 101, "wall_time_s": times})
    body = {"rule": {"kind": "silent_run"}}
    found = told.checked(told.client.post("/api/v1/alert-rules/preview", json=body))
    assert (found["num_fired"], found["runs"][0]["first_step"]) == (1, 100)


def test_settings_that_cannot_be_are_refused_without_showing_the_secret(tmp_path: Path) -> None:

    for wrong in ('[{"url": "json://host/hidden", "severity": "bad"}]', "[hidden", '[{"address": "hidden"}]'):
        with pytest.raises(SettingsError) as caught:
            load_settings(notifications=wrong)
        assert "hidden" not in str(caught.value)
    with pytest.raises(SettingsError, match="public_url"):
        load_settings(public_url="grad.example.org")
