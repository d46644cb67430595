"""The diagnosis and what-if over REST: their shapes, ranges and streams, what is refused, what is counted."""

from typing import Any

import msgspec
import numpy as np
import pytest

from gradsight.thresholds import ZScore
from gradsight_server.api import diagnosis as room
from gradsight_server.diagnosis import Diagnosis
from gradsight_server.diagnosis.whatif import WhatIf
from gradsight_server.store.retention import Keep, sweep
from tests.server.api.kit import RUN, Running
from tests.server.api.trainings import ADAM, FP16, clipped, fp16_goes_wrong, healthy, too_tight


def diagnosed(server: Running, **query: Any) -> dict[str, Any]:
    """The answer, held against its shape."""
    answer: dict[str, Any] = server.get(f"runs/{RUN}/diagnosis", **query)
    assert msgspec.to_builtins(msgspec.convert(answer, Diagnosis)) == answer
    return answer


def what_if(server: Running, clip: str, **query: Any) -> dict[str, Any]:
    answer: dict[str, Any] = server.get(f"runs/{RUN}/what-if", clip=clip, **query)
    assert msgspec.to_builtins(msgspec.convert(answer, WhatIf)) == answer
    return answer


def codes(answer: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in answer["findings"]]


@pytest.mark.parametrize(
    ("batch", "record", "clipping", "scaling"),
    [
        (healthy(), ADAM, ("healthy", "ok"), ("not_used", "ok")),
        (too_tight(), ADAM, ("too_tight", "warning"), ("not_used", "ok")),
        (fp16_goes_wrong(), FP16, ("healthy", "ok"), ("model_nan", "critical")),
    ],
    ids=["healthy", "too-tight-threshold", "fp16-lr-goes-wrong"],
)
def test_runs_like_the_demos_get_the_verdicts_they_were_made_for(
    run_server: Running,
    batch: dict[str, Any],
    record: dict[str, Any],
    clipping: tuple[str, str],
    scaling: tuple[str, str],
) -> None:
    run_server.put(streams={"main": record})
    run_server.send(batch)
    found = diagnosed(run_server)
    for section, expected in (("clipping", clipping), ("loss_scaling", scaling)):
        assert (found[section]["verdict"], found[section]["severity"]) == expected
    assert found["range"]["num_steps"] == 400
    if clipping[0] == "healthy" and scaling[1] == "ok":
        assert not [finding for finding in found["findings"] if finding["severity"] in ("warning", "critical")]


def test_a_run_without_steps_is_unknown_and_says_so(run_server: Running) -> None:
    found = diagnosed(run_server)
    assert found["clipping"]["verdict"] == "unknown"
    assert found["range"] == {"first_step": None, "last_step": None, "num_steps": 0, "num_finite": 0}


def test_a_range_is_diagnosed_for_itself(run_server: Running) -> None:
    run_server.send(healthy())
    run_server.send(too_tight(first_step=400))
    assert diagnosed(run_server, last_step=399)["clipping"]["verdict"] == "healthy"
    found = diagnosed(run_server, first_step=400, last_step=599)
    assert (found["range"]["first_step"], found["range"]["last_step"]) == (400, 599)
    assert found["clipping"]["verdict"] == "too_tight"


def test_counts_are_those_of_the_whole_range_though_the_newest_steps_are_judged(
    run_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gradsight_server.store.evidence.MAX_STEPS", 3000)
    num_steps = 4000
    batch = clipped(0, num_steps, median=0.6, max_norm=1.0)
    batch["grad_norm_before_clip"][10:13] = ["NaN", "Infinity", 1e6]
    run_server.send(batch)
    found = diagnosed(run_server)
    assert found["range"] == {
        "first_step": 0,
        "last_step": num_steps - 1,
        "num_steps": num_steps,
        "num_finite": num_steps - 2,
    }
    assert found["nonfinite"]["num_steps"] == 2
    assert found["clipping"]["norm"]["max"] == 1e6
    norms = np.array(batch["grad_norm_before_clip"][-2000:])
    assert found["clipping"]["clip_fraction"] == pytest.approx(float(np.mean(norms > 1.0)))


def test_a_changed_run_is_diagnosed_anew(run_server: Running) -> None:
    run_server.send(healthy(num_steps=60))
    before = diagnosed(run_server)
    assert diagnosed(run_server) == before
    run_server.send(too_tight(first_step=60, num_steps=200))
    assert diagnosed(run_server)["range"]["num_steps"] == 260, "who has sent steps finds them"
    run_server.put(streams={"main": ADAM})
    assert diagnosed(run_server)["loss_scaling"]["verdict"] == "not_used"


def test_what_layers_ranks_metrics_and_lost_rows_say_is_heard(run_server: Running) -> None:
    num_steps = 200
    batch = clipped(0, num_steps, median=0.6, max_norm=1.0)
    norms = np.array(batch["grad_norm_before_clip"])
    big = np.sqrt(0.97) * norms
    small = np.sqrt(0.01) * norms
    layers = [[a, b, b, b, None] for a, b in zip(big.tolist(), small.tolist(), strict=True)]
    run_server.send(
        batch
        | {
            "layers": ["head", ["in", "out"], "x", "y", "frozen"],
            "layer_step": batch["step"],
            "layer_norms": layers,
            "metrics": [{"step": step, "name": "val_loss", "value": 1.0} for step in range(0, num_steps, 50)],
            "dropped": {"queue_full": 3},
        }
    )
    other = {"step": batch["step"], "rank": [1] * num_steps, "grad_norm_before_clip": (3 * norms).tolist()}
    run_server.send(other)
    found = diagnosed(run_server)
    assert found["layers"]["dominant"] == ["head"]
    assert {"layers_dominant", "layers_without_gradient", "ranks_disagree", "telemetry_lost"} <= set(codes(found))
    assert found["range"]["num_steps"] == num_steps, "other ranks' rows are no steps of their own"


def test_streams_are_diagnosed_one_by_one(run_server: Running) -> None:
    run_server.send(healthy(), stream="generator")
    run_server.send(too_tight(), stream="discriminator/head")
    assert diagnosed(run_server, stream="generator")["clipping"]["verdict"] == "healthy"
    assert diagnosed(run_server, stream="discriminator/head")["clipping"]["verdict"] == "too_tight"


REFUSED = [
    ("diagnosis", {"lang": "xx"}, 422, "lang"),
    ("diagnosis", {"first_step": 9, "last_step": 3}, 422, "first_step"),
    ("diagnosis", {"first_step": -1}, 422, "first_step"),
    ("diagnosis", {"last_step": "soon"}, 422, "last_step"),
    ("diagnosis", {"attempt": 7}, 422, "attempt"),
    ("diagnosis", {"stream": "nope"}, 404, "nope"),
    ("what-if", {}, 422, "clip"),
    ("what-if", {"clip": ""}, 422, "clip"),
    ("what-if", {"clip": "-1.0"}, 422, "-1.0"),
    ("what-if", {"clip": "nonsense(3)"}, 422, "nonsense"),
    ("what-if", {"clip": "value(0.5)"}, 422, "needs the gradients"),
    ("what-if", {"clip": "unit_norm()"}, 422, "needs the gradients"),
    ("what-if", {"clip": "1.0", "first_step": 9, "last_step": 3}, 422, "first_step"),
    ("what-if", {"clip": "1.0", "stream": "nope"}, 404, "nope"),
    ("figures/layer", {}, 422, "layer"),
    ("figures/layer", {"layer": "nope"}, 422, "nope"),
    ("figures/norm", {"layer": "a"}, 422, "layer"),
    ("figures/nope", {}, 422, "histogram"),
]


@pytest.mark.parametrize(("path", "query", "status", "named"), REFUSED, ids=[f"{c[0]}-{c[1]}" for c in REFUSED])
def test_what_cannot_be_right_is_refused_by_name(
    run_server: Running, path: str, query: dict[str, Any], status: int, named: str
) -> None:
    run_server.send({"step": [0], "loss": [1.0]})
    answer = run_server.client.get(f"/api/v1/runs/{RUN}/{path}", params=query)
    assert answer.status_code == status
    assert named in answer.json()["detail"]


@pytest.mark.parametrize("path", ["diagnosis", "what-if?clip=1.0"])
def test_an_unknown_run_is_not_found(server: Running, path: str) -> None:
    assert server.client.get(f"/api/v1/runs/{'f' * 32}/{path}").json()["error"] == "RunNotFound"


def test_a_fixed_threshold_is_held_against_the_norms(run_server: Running) -> None:
    norms = [0.5, 2.0, "NaN", 4.0, 8.0, "Infinity"]
    run_server.send({"step": list(range(6)), "grad_norm_before_clip": norms})
    run_server.send({"step": [6], "loss": [1.0]})
    found = what_if(run_server, "2.0")
    coefs = np.array([1.0, 2 / (2 + 1e-6), 2 / (4 + 1e-6), 2 / (8 + 1e-6)])
    assert (found["num_steps"], found["num_finite"], found["num_clipped"]) == (6, 4, 2)
    assert (found["clip_fraction"], found["policy"], found["last_max_norm"]) == (0.5, "global_norm(2.0)", 2.0)
    assert found["mean_clip_coef"] == pytest.approx(coefs.mean())
    assert found["clip_coef_spread"] == pytest.approx(coefs.std() / coefs.mean())
    assert "later norms" in found["notes"][0]


def test_a_moving_threshold_is_replayed_from_norm_to_norm(run_server: Running) -> None:
    batch = healthy(num_steps=300)
    batch["grad_norm_before_clip"][200] = 40.0
    run_server.send(batch)
    threshold = ZScore(z=2.0, warmup_steps=10)
    norms = batch["grad_norm_before_clip"]
    num_clipped = sum(norm > threshold(norm) for norm in norms)
    found = what_if(run_server, "global_norm(max_norm=zscore(z=2.0, warmup_steps=10))")
    assert found["num_clipped"] == num_clipped > 0
    assert (found["num_spikes"], found["spikes_clipped"], found["spikes_passed"]) == (1, [200], [])
    assert what_if(run_server, "100.0")["spikes_passed"] == [200]


def test_a_long_run_is_held_against_by_its_histogram_and_says_so(
    run_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_EXACT", 100)
    batch = healthy(num_steps=400)
    batch["grad_norm_before_clip"][390] = 40.0
    run_server.send(batch)
    exact = float(np.mean(np.array(batch["grad_norm_before_clip"]) > 0.7))
    found = what_if(run_server, "0.7")
    assert found["num_finite"] == 400
    assert found["clip_fraction_low"] <= exact <= found["clip_fraction_high"]
    assert found["clip_fraction"] == pytest.approx(exact, abs=0.02)
    assert found["spikes_clipped"] == [390]
    assert "newest 100 steps" in found["notes"][1]
    assert found["clip_fraction_high"] - found["clip_fraction_low"] < 0.1


def test_a_moving_threshold_over_a_long_run_says_what_it_saw(
    run_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MAX_REPLAYED", 100)
    run_server.send(healthy(num_steps=400))
    found = what_if(run_server, "global_norm(max_norm=ema())")
    assert found["num_steps"] == 100
    assert "newest 100 steps" in found["notes"][-1]


def test_what_if_knows_the_steps_that_retention_has_removed_by_their_histogram(run_server: Running) -> None:
    run_server.send(healthy(num_steps=6000))
    assert sweep(run_server.app.state.database, Keep(steps=2048), now_s=0.0)
    whole = what_if(run_server, "0.7")
    assert whole["num_finite"] == 6000
    assert "Spikes are those of the newest" in whole["notes"][1]
    old = what_if(run_server, "0.7", first_step=0, last_step=1023)
    assert (old["num_finite"], old["num_spikes"]) == (1024, 0)
    assert "no longer kept one by one" in old["notes"][1]
    moving = what_if(run_server, "global_norm(max_norm=ema())")
    assert "still kept one by one" in moving["notes"][-1]


def test_what_if_looks_at_the_range_it_is_asked_for(run_server: Running) -> None:
    run_server.send({"step": [0, 1, 2, 3], "grad_norm_before_clip": [5.0, 5.0, 1.0, 1.0]})
    assert what_if(run_server, "2.0")["clip_fraction"] == 0.5
    assert what_if(run_server, "2.0", first_step=2)["clip_fraction"] == 0.0


def test_the_histogram_stands_beside_the_norm_with_threshold_and_range(run_server: Running) -> None:
    batch = healthy() | {"layers": ["a", "b"], "layer_step": [0, 1], "layer_norms": [[1.0, 2.0], [3.0, None]]}
    run_server.send(batch)
    figure = run_server.get(f"runs/{RUN}/figures/histogram")
    roles = {trace["role"]: trace for trace in figure["data"]}
    assert set(roles) == {"below", "above", "threshold", "recommended"}
    exact = float(np.mean(np.array(batch["grad_norm_before_clip"]) > 1.0))
    assert roles["above"]["share"] == pytest.approx(exact)
    assert figure["num_norms"] == 400
    one = run_server.get(f"runs/{RUN}/figures/layer", layer="b")
    assert (one["layer"], one["first_step"], one["last_step"]) == ("b", 0, 399)
    for name in ("clip_fraction", "norm", "loss_scale", "layers"):
        assert run_server.get(f"runs/{RUN}/figures/{name}")["name"] == name
