"""A hand on the threshold: asked of a run that allows it, delivered until its process says what became of it."""

from typing import Any

import httpx
import pytest
from sqlalchemy import update

from gradsight_server import alert_schemas as shapes
from gradsight_server.store import models
from tests.server.api.kit import RUN, Running

OTHER = f"{1:032x}"


def allow(server: Running, stream: str = "main", **record: Any) -> None:
    known = {"policy": "global_norm(1.0)", "allow_control": True} | record
    server.put(streams={stream: known})


def ask(server: Running, **wish: Any) -> httpx.Response:
    answer: httpx.Response = server.client.put(f"/api/v1/runs/{RUN}/control", json=wish)
    return answer


def state(server: Running) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"runs/{RUN}/control")
    shapes.ControlAnswer.model_validate(found, strict=True)
    return found


def applied(wish: dict[str, Any], step: int) -> dict[str, Any]:
    said = {"kind": "max_norm_changed", "step": step, "message": "1 → 2", "control_id": wish["id"]}
    return {"events": [said]}


def test_a_wish_goes_out_with_every_answer_until_the_run_says_that_it_holds(run_server: Running) -> None:
    allow(run_server)
    run_server.send({"step": [0], "max_norm": [1.0]})
    asked = run_server.checked(ask(run_server, max_norm=2.0, by="Ada"))
    (wish,) = asked["wishes"]
    assert (wish["state"], wish["max_norm"], wish["previous_max_norm"], wish["by"]) == ("asked", 2.0, 1.0, "Ada")
    for batch in ({"step": [1], "max_norm": [1.0]}, {}):
        assert run_server.send(batch)["control"] == [
            {"id": wish["id"], "max_norm": 2.0, "stream": "main", "pattern": None}
        ]
    answer = run_server.send(applied(wish, 7))
    assert answer["control"] == []
    run_server.send(applied(wish, 9))
    (settled,) = state(run_server)["wishes"]
    assert (settled["state"], settled["applied_step"], settled["message"]) == ("applied", 7, "1 → 2")
    assert run_server.send({})["control"] == []
    events = {event["kind"]: event for event in run_server.get(f"runs/{RUN}/events")["items"]}
    assert events["control"]["message"] == "max_norm 1 → 2, asked by Ada"
    assert events["max_norm_changed"]["message"] == "1 → 2"


def test_a_newer_wish_takes_the_place_of_one_that_waits_and_can_take_it_back(run_server: Running) -> None:
    allow(run_server)
    run_server.send({"step": [0], "max_norm": [1.0]})
    first = run_server.checked(ask(run_server, max_norm=2.0))["wishes"][0]
    second = run_server.checked(ask(run_server, max_norm=1.0))["wishes"][0]
    assert second["id"] > first["id"]
    assert [(wish["id"], wish["max_norm"]) for wish in run_server.send({})["control"]] == [(second["id"], 1.0)]
    run_server.send(applied(first, 1))
    assert [wish["state"] for wish in state(run_server)["wishes"]] == ["asked"]


def test_what_the_process_refuses_is_shown_as_refused(run_server: Running) -> None:
    allow(run_server)
    run_server.send({"step": [0]})
    wish = run_server.checked(ask(run_server, max_norm=2.0))["wishes"][0]
    said = {"kind": "control_refused", "message": "the group has no parameters", "control_id": wish["id"]}
    run_server.send({"events": [said]})
    (settled,) = state(run_server)["wishes"]
    assert (settled["state"], settled["message"], settled["applied_step"]) == (
        "refused", "the group has no parameters", None,
    )  # fmt: skip


def test_any_stream_of_the_newest_launch_hears_of_it_and_an_older_launch_does_not(run_server: Running) -> None:
    allow(run_server, "generator")
    run_server.send({"step": [0], "attempt_id": "a", "attempt_started_at_s": 1.0}, stream="generator")
    run_server.send({"step": [0], "attempt_id": "b", "attempt_started_at_s": 2.0}, stream="generator")
    run_server.checked(ask(run_server, max_norm=2.0, stream="generator"))
    newest = run_server.send({"attempt_id": "b"}, stream="discriminator")
    assert [(wish["stream"], wish["max_norm"]) for wish in newest["control"]] == [("generator", 2.0)]
    assert run_server.send({"attempt_id": "a"}, stream="generator")["control"] == []


def test_a_wish_dies_with_the_launch_it_was_asked_of(run_server: Running) -> None:
    allow(run_server)
    run_server.send({"step": [0], "attempt_id": "a", "attempt_started_at_s": 1.0})
    (wish,) = run_server.checked(ask(run_server, max_norm=2.0))["wishes"]
    later = {"attempt_id": "b", "attempt_started_at_s": 2.0}
    assert run_server.send(later | {"step": [1]})["control"] == []
    (expired,) = state(run_server)["wishes"]
    assert (expired["state"], "later one began" in expired["message"]) == ("expired", True)
    run_server.checked(ask(run_server, max_norm=3.0))
    assert [asked["max_norm"] for asked in run_server.send(later)["control"]] == [3.0]
    newer = run_server.send({"attempt_id": "c", "attempt_started_at_s": 3.0})
    assert newer["control"] == run_server.send(later)["control"] == []
    run_server.send({"attempt_id": "b"} | applied({"id": wish["id"] + 1}, 9))
    assert state(run_server)["wishes"][0]["state"] == "applied", "what an older launch's spool says late is true"


def test_a_silent_run_refuses_until_it_is_heard_of_again(run_server: Running) -> None:
    allow(run_server)
    run_server.send({"step": [0]})
    long_ago = update(models.runs).values(last_seen_s=models.runs.c.last_seen_s - 60)
    run_server.app.state.database.write(lambda conn: conn.execute(long_ago)).result(10)
    refused = ask(run_server, max_norm=2.0)
    assert (refused.status_code, "silent" in refused.json()["detail"]) == (409, True)
    assert "silent" in state(run_server)["thresholds"][0]["reason"]
    run_server.send({})
    assert ask(run_server, max_norm=2.0).status_code == 200


def test_of_groups_the_pattern_must_be_named(run_server: Running) -> None:
    policy = 'groups("*router*": global_norm(0.1), "*norm*": global_norm(max_norm=zscore()), "*": global_norm(1.0))'
    allow(run_server, policy=policy)
    run_server.send({"step": [0]})
    run_server.send({"step": [0], "max_norm": [0.2]}, stream="main/*router*")
    for wrong, said in ((None, "name the pattern"), ("*x*", "no group '*x*'"), ("*norm*", "moves by itself")):
        refused = ask(run_server, max_norm=2.0, pattern=wrong)
        assert refused.status_code == 409
        assert said in refused.json()["detail"]
    (wish,) = run_server.checked(ask(run_server, max_norm=0.5, pattern="*router*"))["wishes"]
    assert (wish["pattern"], wish["previous_max_norm"]) == ("*router*", 0.2)
    run_server.checked(ask(run_server, max_norm=3.0, pattern="*"))
    assert [(w["pattern"], w["max_norm"]) for w in run_server.send({})["control"]] == [("*router*", 0.5), ("*", 3.0)]
    found = {threshold["pattern"]: threshold for threshold in state(run_server)["thresholds"] if threshold["pattern"]}
    assert {pattern: found[pattern]["is_allowed"] for pattern in found} == {
        "*router*": True, "*norm*": False, "*": True,
    }  # fmt: skip


def test_a_group_can_be_named_by_the_stream_that_it_records(run_server: Running) -> None:
    """As the page does, which shows a group by its stream."""
    allow(run_server, policy='groups("0.*": global_norm(0.1), "*": global_norm(1.0))')
    run_server.send({"step": [0]})
    run_server.send({"step": [0], "max_norm": [0.2]}, stream="main/0.*")
    (wish,) = run_server.checked(ask(run_server, max_norm=0.5, stream="main/0.*"))["wishes"]
    assert (wish["stream"], wish["pattern"], wish["previous_max_norm"]) == ("main", "0.*", 0.2)
    (asked,) = run_server.send({})["control"]
    assert (asked["stream"], asked["pattern"], asked["max_norm"]) == ("main", "0.*", 0.5)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"allow_control": False}, "does not allow it"),
        ({"policy": None}, "does not clip"),
        ({"policy": "global_norm(max_norm=percentile())"}, "moves by itself"),
        ({"policy": "global_norm(cosine(start=1.0, end=0.1, total_steps=10))"}, "moves by itself"),
        ({"policy": "value(0.5)"}, "no max_norm to change"),
        ({"policy": "tensor_adaptive()"}, "no max_norm to change"),
        ({"policy": "of_the_future(1)"}, "not known"),
    ],
)
def test_a_run_that_cannot_refuses_with_the_reason(run_server: Running, record: dict[str, Any], said: str) -> None:
    allow(run_server, **record)
    run_server.send({"step": [0]})
    refused = ask(run_server, max_norm=2.0)
    assert (refused.status_code, refused.json()["error"]) == (409, "ControlRefused")
    assert said in refused.json()["detail"]
    found = state(run_server)
    assert found["wishes"] == []
    assert [(threshold["is_allowed"], said in threshold["reason"]) for threshold in found["thresholds"]] == [
        (False, True)
    ]


def test_a_run_without_groups_has_no_patterns_and_no_streams_it_does_not_have(run_server: Running) -> None:
    allow(run_server, policy="tensor_norm(1.0)")
    assert "not begun" in ask(run_server, max_norm=2.0).json()["detail"]
    run_server.send({"step": [0]})
    assert "leave pattern out" in ask(run_server, max_norm=2.0, pattern="*").json()["detail"]
    assert "no stream 'x'; it has main" in ask(run_server, max_norm=2.0, stream="x").json()["detail"]
    assert ask(run_server, max_norm=2.0).status_code == 200


@pytest.mark.parametrize("kind", ["finished", "failed"])
def test_a_run_that_has_ended_refuses(run_server: Running, kind: str) -> None:
    allow(run_server)
    run_server.send({"step": [0], "events": [{"kind": kind}]})
    refused = ask(run_server, max_norm=2.0)
    assert (refused.status_code, kind in refused.json()["detail"]) == (409, True)


@pytest.mark.parametrize("value", [0, -1.0, "NaN", "Infinity", "-Infinity", None, "2", True])
def test_a_threshold_must_be_a_positive_finite_number(run_server: Running, value: Any) -> None:
    allow(run_server)
    run_server.send({"step": [0]})
    refused = ask(run_server, max_norm=value)
    assert refused.status_code == 422
    assert "max_norm" in refused.json()["detail"]
    assert run_server.send({})["control"] == []


def test_nothing_but_the_threshold_can_be_asked_for(run_server: Running) -> None:
    allow(run_server)
    run_server.send({"step": [0]})
    refused = ask(run_server, max_norm=1.0, lr=1.0)
    assert (refused.status_code, "lr" in refused.json()["detail"]) == (422, True)
    missing = run_server.client.put(f"/api/v1/runs/{OTHER}/control", json={"max_norm": 1.0})
    assert missing.status_code == run_server.client.get(f"/api/v1/runs/{OTHER}/control").status_code == 404
