"""Figures over REST: what older attempts had behind the newest, and the user's own metrics."""

from typing import Any

import pytest

from tests.server.api.kit import RUN, Running


@pytest.fixture
def resumed(run_server: Running) -> Running:
    """A run whose second attempt began again at step 6 of ten."""
    for attempt, steps in (("a", range(10)), ("b", range(6, 8))):
        numbers = [1.0 for _ in steps]
        batch = {"attempt_id": attempt, "attempt_started_at_s": ord(attempt), "step": list(steps)}
        run_server.send(batch | {"grad_norm_before_clip": numbers, "loss": numbers})
    return run_server


def figure(server: Running, name: str, **query: Any) -> Any:
    return server.get(f"runs/{RUN}/figures/{name}", **query)


def ghosts(found: Any) -> list[int]:
    return [trace["attempt"] for trace in found["data"] if trace["role"] == "ghost"]


def test_a_figure_says_where_each_attempt_stands(resumed: Running) -> None:
    launches = figure(resumed, "norm")["launches"]
    places = [(launch["attempt"], launch["first_step"], launch["last_step"]) for launch in launches]
    assert places == [(1, 0, 5), (2, 6, 7)]


@pytest.mark.parametrize("name", ["norm", "loss"])
def test_what_a_newer_attempt_replaced_is_a_ghost(resumed: Running, name: str) -> None:
    assert ghosts(figure(resumed, name)) == [1]
    assert ghosts(figure(resumed, name, last_step=5)) == []
    assert ghosts(figure(resumed, name, attempt=1)) == []


def test_metrics_are_traces_that_say_whose_they_are(run_server: Running) -> None:
    metrics = [{"step": 0, "name": "val_loss", "value": 2.0}, {"step": 1, "name": "val_loss", "value": "NaN"}]
    run_server.send({"step": [0, 1], "loss": [1.0, 1.0], "metrics": metrics})
    data = figure(run_server, "metrics")["data"]
    assert [(trace["role"], trace["metric"]) for trace in data] == [("series", "val_loss"), ("nonfinite", "val_loss")]
