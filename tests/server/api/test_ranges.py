"""Ranges, columns and points that cannot be are an empty answer or a 422 that names them, never a 500."""

import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradsight import wire
from gradsight_server import schemas
from tests.server.api.kit import RUN, Running

OTHER = "f" * 32
PATHS = ("series", "layers", "events", "figures/norm", "figures/layers", "distribution")


@pytest.fixture
def filled(run_server: Running) -> Running:
    """A run with 40 steps, one event of each of two kinds, and layers."""
    batch: dict[str, Any] = {
        "step": list(range(40)),
        "grad_norm_before_clip": [1.0] * 40,
        "layers": ["a"],
        "layer_step": list(range(40)),
        "layer_norms": [[1.0]] * 40,
    }
    events = [
        {"kind": "note", "step": 3, "wall_time_s": 1.0, "message": "first"},
        {"kind": "checkpoint", "step": 30, "wall_time_s": 2.0},
        {"kind": "note", "wall_time_s": 3.0, "message": "without a step"},
    ]
    run_server.send(batch | {"events": events})
    return run_server


def status_of(server: Running, path: str, query: dict[str, Any]) -> tuple[int, str]:
    answer = server.client.get(f"/api/v1/{path}", params=query)
    return answer.status_code, answer.text


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", [{"first_step": 40}, {"first_step": 1_000, "last_step": 2_000}])
def test_a_range_outside_the_run_is_empty(filled: Running, path: str, query: dict[str, int]) -> None:
    found = filled.get(f"runs/{RUN}/{path}", **query)
    assert path.startswith("figures") or found.get("step", found.get("items", [])) == []
    assert found.get("num_steps", 0) == 0


@pytest.mark.parametrize("path", PATHS)
def test_a_range_the_wrong_way_round_is_named(filled: Running, path: str) -> None:
    status, text = status_of(filled, f"runs/{RUN}/{path}", {"first_step": 9, "last_step": 3})
    assert status == 422
    assert "first_step" in text
    assert "9" in text
    assert "3" in text


@pytest.mark.parametrize("path", PATHS[:3])
def test_a_range_of_one_step_is_that_step(filled: Running, path: str) -> None:
    found = filled.get(f"runs/{RUN}/{path}", first_step=3, last_step=3)
    assert found["step"] == [3] if "step" in found else [item["step"] for item in found["items"]] == [3]


def test_events_are_found_by_kind_and_range_page_by_page(filled: Running) -> None:
    def kinds(**query: Any) -> list[tuple[str, int | None]]:
        return [(item["kind"], item["step"]) for item in filled.get(f"runs/{RUN}/events", **query)["items"]]

    assert kinds() == [("note", None), ("checkpoint", 30), ("note", 3)]
    assert kinds(kind="note") == [("note", None), ("note", 3)]
    assert kinds(first_step=0) == [("checkpoint", 30), ("note", 3)]
    assert kinds(last_step=29) == [("note", 3)]
    assert kinds(kind="checkpoint", first_step=30, last_step=30) == [("checkpoint", 30)]
    assert kinds(kind="nope") == []
    page = filled.get(f"runs/{RUN}/events", kind="note", limit=1)
    rest = filled.get(f"runs/{RUN}/events", kind="note", limit=1, cursor=page["next_cursor"])
    assert [item["step"] for item in page["items"] + rest["items"]] == [None, 3]
    assert rest["next_cursor"] is None


def test_a_distribution_says_what_a_threshold_would_have_clipped(filled: Running) -> None:
    found = filled.get(f"runs/{RUN}/distribution", max_norm=0.5)
    schemas.DistributionAnswer.model_validate(found, strict=True)
    assert (found["num_steps"], found["num_clipped"], found["quantiles"]["p50"]) == (40, 0, 1.0)
    assert found["clip_fraction"] == {"max_norm": 0.5, "low": 1.0, "high": 1.0}
    assert filled.get(f"runs/{RUN}/distribution")["clip_fraction"] is None
    for max_norm in ("-1", "inf", "nan", "x"):
        assert status_of(filled, f"runs/{RUN}/distribution", {"max_norm": max_norm})[0] == 422


def test_several_runs_come_in_one_answer(filled: Running) -> None:
    filled.put(OTHER)
    try:
        filled.send({"step": [1, 2], "loss": [1.0, "NaN"]}, run_id=OTHER)
        found = filled.get("series", runs=f"{RUN}, {uuid.UUID(OTHER)}", columns="loss", points=10)
        schemas.ComparedSeries.model_validate(found, strict=True)
        assert [(one["run_id"], one["bucket_steps"]) for one in found["items"]] == [(RUN, 4), (OTHER, 4)]
        assert found["items"][1]["columns"]["loss"]["num_nonfinite"] == [1]
    finally:
        filled.client.delete(f"/api/v1/runs/{OTHER}")


@pytest.mark.parametrize(
    ("query", "status", "named"),
    [
        ({"runs": ""}, 422, "runs"),
        ({"runs": ",".join([RUN] * 3 + [f"{i:032x}" for i in range(51)])}, 422, "runs"),
        ({"runs": "xyz"}, 422, "xyz"),
        ({"runs": "e" * 32}, 404, "e" * 32),
        ({"runs": RUN, "points": 2_001}, 422, "points"),
        ({"runs": RUN, "columns": "nope"}, 422, "grad_norm_before_clip"),
        ({"runs": RUN, "first_step": 2, "last_step": 1}, 422, "first_step"),
        ({}, 422, "runs"),
    ],
)
def test_what_cannot_be_compared_is_named(filled: Running, query: dict[str, Any], status: int, named: str) -> None:
    found = status_of(filled, "series", query)
    assert found[0] == status
    assert named in found[1]


BOUND = st.one_of(st.none(), st.integers(-3, 60), st.sampled_from([wire.MAX_STEP, wire.MAX_STEP + 1, "x", "", 1.5]))
POINTS = st.one_of(st.none(), st.integers(-1, 50), st.sampled_from([500, 2_001, 10_000, 10_001, "many"]))
ATTEMPT = st.one_of(st.none(), st.integers(-1, 3), st.just(2**40))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(PATHS),
    BOUND,
    BOUND,
    POINTS,
    ATTEMPT,
    st.sampled_from([None, "loss", "loss,,lr", ",", "nope", "\x00"]),
)
def test_no_question_breaks_the_server(
    filled: Running, path: str, first: Any, last: Any, points: Any, attempt: Any, columns: str | None
) -> None:
    asked = {"first_step": first, "last_step": last, "points": points, "attempt": attempt, "columns": columns}
    query = {name: value for name, value in asked.items() if value is not None}
    status, text = status_of(filled, f"runs/{RUN}/{path}", query)
    assert status in (200, 422), text
