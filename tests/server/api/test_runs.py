"""Runs, series, layers, steps and events over REST: documented shapes, checked queries, one form of error."""

import uuid
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from pydantic import BaseModel

from gradsight import wire
from gradsight_server import schemas
from tests.server.api.kit import RUN, Running, running

HYPHENATED = str(uuid.UUID(RUN))


def refused(answer: httpx.Response, status: int) -> str:
    """The detail of a refusal, in the one form all have."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    said = answer.json()
    assert said.keys() == {"error", "detail"}
    detail: str = said["detail"]
    return detail


def api(server: Running, method: str, path: str, **options: Any) -> httpx.Response:
    return server.client.request(method, f"/api/v1/{path}", **options)


def test_a_run_is_put_looked_at_patched_and_deleted(server: Running) -> None:
    put = server.put(project="lm", name="baseline", tags=["a"], config={"lr": 3e-4}, total_steps=100)
    assert (put["project"], put["name"], put["total_steps"], put["state"]) == ("lm", "baseline", 100, "running")
    merged = server.put(config={"seed": 1})
    assert merged["name"] == "baseline"
    assert server.get(f"runs/{RUN}")["config"] == {"lr": 3e-4, "seed": 1}
    patched = server.checked(api(server, "PATCH", f"runs/{RUN}", json={"name": "new", "archived": True}))
    assert (patched["name"], patched["archived"], patched["tags"]) == ("new", True, ["a"])
    assert api(server, "DELETE", f"runs/{RUN}").status_code == 204
    assert refused(api(server, "GET", f"runs/{RUN}"), 404).startswith("There is no run")
    assert refused(api(server, "DELETE", f"runs/{RUN}"), 404)
    assert refused(api(server, "PATCH", f"runs/{RUN}", json={"name": "x"}), 404)


@pytest.mark.parametrize("body", [b"", b"{}", msgspec.msgpack.encode({})])
def test_a_put_needs_no_body(server: Running, body: bytes) -> None:
    kind = wire.CONTENT_TYPE_JSON if body == b"{}" else wire.CONTENT_TYPE_MSGPACK
    run_id = uuid.uuid4().hex
    run = server.checked(api(server, "PUT", f"runs/{run_id}", content=body, headers={"content-type": kind}))
    assert (run["project"], run["name"]) == ("default", run_id[:8])


def test_a_name_with_markup_comes_back_as_it_is(run_server: Running) -> None:
    name = "<script>alert('1')</script> & \"quotes\" \u202e ✓"
    assert run_server.put(name=name)["name"] == name
    assert run_server.get(f"runs/{RUN}")["name"] == name


def test_a_run_id_may_have_hyphens_and_capitals(run_server: Running) -> None:
    assert run_server.get(f"runs/{HYPHENATED.upper()}")["id"] == RUN


@pytest.mark.parametrize("run_id", ["abc", RUN + "0", "g" * 32, "%00" * 32])
@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("PUT", ""), ("GET", "/series"), ("DELETE", "")])
def test_an_id_that_is_none_is_refused(server: Running, run_id: str, method: str, path: str) -> None:
    assert "32 hex digits" in refused(api(server, method, f"runs/{run_id}{path}"), 422)


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"name": ""}, "name"),
        ({"name": "x" * 257}, "name"),
        ({"nmae": "x"}, "nmae"),
        ({"tags": "a"}, "tags"),
        ({"total_steps": 0}, "total_steps"),
        ({"streams": {"main": {"precision": "fp8"}}}, "precision"),
        ({"started_at_s": -1}, "started_at_s"),
    ],
)
def test_a_wrong_record_is_refused_by_the_name_of_its_field(
    run_server: Running, record: dict[str, Any], named: str
) -> None:
    before = run_server.get(f"runs/{RUN}")
    assert named in refused(api(run_server, "PUT", f"runs/{RUN}", json=record), 422)
    assert run_server.get(f"runs/{RUN}")["name"] == before["name"]


def test_what_json_cannot_carry_is_refused_or_made_json(run_server: Running) -> None:
    for value in (msgspec.msgpack.Ext(7, b"x"), float("nan"), b"\xff", 2**63):
        content = msgspec.msgpack.encode({"config": {"x": value}})
        answer = api(
            run_server, "PUT", f"runs/{RUN}", content=content, headers={"content-type": wire.CONTENT_TYPE_MSGPACK}
        )
        assert answer.status_code in (200, 422)
        assert api(run_server, "GET", f"runs/{RUN}").status_code == 200


@pytest.mark.parametrize("patch", [{"name": ""}, {"archived": 1}, {"status": "failed"}, {"notes": "x" * 70_000}, []])
def test_a_wrong_patch_is_refused(run_server: Running, patch: Any) -> None:
    assert refused(api(run_server, "PATCH", f"runs/{RUN}", json=patch), 422)


HUGE = 2**53


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("series?columns=loss,nope", "nope"),
        ("series?columns=skip_reason", "skip_reason"),
        ("series?points=0", "points"),
        ("series?points=10001", "points"),
        ("series?points=x", "points"),
        (f"series?first_step={HUGE}", "first_step"),
        (f"series?last_step={HUGE}", "last_step"),
        (f"series?last_step={10**400}", "last_step"),
        ("series?first_step=-1", "first_step"),
        ("series?first_step=9&last_step=3", "first_step"),
        ("series?attempt=0", "attempt"),
        ("series?attempt=7", "attempt"),
        (f"series?attempt={HUGE}", "attempt"),
        ("series?stream=", "stream"),
        ("layers?points=0", "points"),
        (f"layers?first_step={HUGE}", "first_step"),
        ("layers?first_step=9&last_step=3", "first_step"),
        (f"steps/{HUGE}", "step"),
        ("steps/-1", "step"),
        ("steps/x", "step"),
        ("steps/0?attempt=7", "attempt"),
        ("events?limit=0", "limit"),
        ("events?cursor=x", "cursor"),
        ("figures/nope", "name"),
        ("figures/norm?points=0", "points"),
        (f"figures/layers?last_step={HUGE}", "last_step"),
        ("figures/norm?first_step=9&last_step=3", "first_step"),
    ],
)
def test_a_wrong_query_is_refused_by_name(run_server: Running, path: str, named: str) -> None:
    run_server.send({"step": [0, 1], "loss": [1.0, 2.0]})
    assert named in refused(api(run_server, "GET", f"runs/{RUN}/{path}"), 422)


def test_an_unknown_column_is_told_the_known_ones(run_server: Running) -> None:
    detail = refused(api(run_server, "GET", f"runs/{RUN}/series?columns=norm"), 422)
    assert "'norm'" in detail
    assert "grad_norm_before_clip" in detail


@pytest.mark.parametrize("path", ["series", "layers", "steps/0", "figures/norm", "figures/layers"])
def test_an_unknown_stream_or_run_is_not_found(run_server: Running, path: str) -> None:
    assert "'nope'" in refused(api(run_server, "GET", f"runs/{RUN}/{path}?stream=nope"), 404)
    assert refused(api(run_server, "GET", f"runs/{uuid.uuid4().hex}/{path}"), 404)


def test_a_step_that_is_not_there_is_not_found(run_server: Running) -> None:
    run_server.send({"step": [0], "loss": [1.0]})
    assert "7" in refused(api(run_server, "GET", f"runs/{RUN}/steps/7"), 404)


@pytest.mark.parametrize("path", ["series", "layers"])
def test_a_range_without_steps_is_empty(run_server: Running, path: str) -> None:
    run_server.send({"step": [0], "loss": [1.0]})
    assert run_server.get(f"runs/{RUN}/{path}", first_step=5, last_step=9)["step"] == []


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("sort=loss", "sort"),
        ("status=odd", "status"),
        ("cursor=%00", "cursor"),
    ],
)
def test_a_wrong_listing_is_refused_by_name(server: Running, query: str, named: str) -> None:
    assert named in refused(api(server, "GET", f"runs?{query}"), 422)


def test_runs_are_listed_page_by_page(url: str) -> None:
    with running(db=url) as server:
        ids = [f"{i:032x}" for i in range(5)]
        for i, run_id in enumerate(ids):
            server.put(run_id, started_at_s=1000.0 + i)
        seen: list[str] = []
        page = server.get("runs", limit=2)
        assert page["num_runs"] == 5
        while True:
            seen += [run["id"] for run in page["items"]]
            if page["next_cursor"] is None:
                break
            page = server.get("runs", limit=2, cursor=page["next_cursor"])
            assert page["num_runs"] is None  # counted once
        assert seen == ids[::-1]


@pytest.mark.parametrize(("method", "path"), [("GET", "/api/v1/nope"), ("GET", "/nope"), ("POST", "/nope")])
def test_what_is_not_there_is_404_in_the_same_form(server: Running, method: str, path: str) -> None:
    assert refused(server.client.request(method, path), 404)


@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/runs"), ("DELETE", "/"), ("PUT", "/api/v1/live")])
def test_a_wrong_method_is_405_in_the_same_form(server: Running, method: str, path: str) -> None:
    assert refused(server.client.request(method, path), 405)


def test_our_own_mistake_is_a_500_in_the_same_form_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running(tmp_path) as server:

        @server.app.get("/api/v1/broken")
        def broken() -> None:
            raise ZeroDivisionError("a secret detail")

        answer = server.client.get("/api/v1/broken")
    assert "secret" not in refused(answer, 500)
    assert "default-src" in answer.headers["content-security-policy"]
    assert "a secret detail" in caplog.text


def documented(server: Running, path: str, shape: type[BaseModel], **query: Any) -> Any:
    return shape.model_validate(server.get(path, **query), strict=True)


def test_answers_have_the_documented_shapes(run_server: Running) -> None:
    run_server.put(
        config={"lr": 1.0},
        frameworks={"torch": "2"},
        streams={"main": {"policy": "global_norm(1.0)", "precision": "fp16"}},
    )
    layers = {"layers": ["a", ["b", "c"]], "layer_step": [0, 1], "layer_norms": [[1.0, None], ["NaN", "Infinity"]]}
    events = {"events": [{"kind": "note", "step": 1, "message": "hello"}]}
    run_server.send({"step": [0, 1], "grad_norm_before_clip": [0.5, "NaN"], "loss": [1, 2]} | layers | events)
    run = f"runs/{RUN}"
    documented(run_server, "runs", schemas.RunPage)
    documented(run_server, "projects", schemas.ProjectList)
    documented(run_server, "tags", schemas.TagList)
    documented(run_server, "server", schemas.ServerAnswer)
    documented(run_server, run, schemas.RunDetail)
    documented(run_server, f"{run}/series", schemas.SeriesAnswer, columns="loss,num_nonfinite_layers")
    documented(run_server, f"{run}/layers", schemas.LayersAnswer)
    documented(run_server, f"{run}/steps/1", schemas.StepAnswer)
    documented(run_server, f"{run}/events", schemas.EventPage)
    for name in ("norm", "clip_coef", "loss", "loss_scale", "layers"):
        documented(run_server, f"{run}/figures/{name}", schemas.FigureAnswer)
    documented(run_server, f"{run}/layers", schemas.LayersAnswer, first_step=5)


def test_the_server_says_how_it_is_without_a_secret(tmp_path: Path) -> None:
    with running(tmp_path, keep_raw_days=7.0) as server:
        server.put()
        server.send({"step": [0, 1], "loss": [1.0, 2.0]})
        said = server.get("server")
    assert (said["database"]["num_runs"], said["database"]["num_steps"]) == (1, 2)
    assert said["database"]["num_bytes"] > 4096
    assert said["retention"] == {"keep_raw_days": 7.0, "keep_raw_steps": None}
    assert said["started_at_s"] <= said["now_s"]
