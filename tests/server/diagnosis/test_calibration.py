"""Real trainings, each with the verdict a careful person gives: those the rules were tuned on, and those kept back."""

import pytest

from gradsight_server.diagnosis import diagnose
from tests.server.diagnosis.calibration.reading import recorded_run
from tests.server.diagnosis.calibration.truth import CHECK_SEEDS, NAN_LAYER, OTHERWISE, QUIET, TRUTHS, TUNING_SEEDS

RUNS = [(name, seed) for name in TRUTHS for seed in (*TUNING_SEEDS, *CHECK_SEEDS)]


@pytest.mark.parametrize(("name", "seed"), RUNS)
def test_the_verdict_is_that_of_a_careful_person(name: str, seed: int) -> None:
    truth = OTHERWISE.get((name, seed), TRUTHS[name])
    answer = diagnose(*recorded_run(name, seed))
    said = [f"{finding.severity} {finding.code}" for finding in answer.findings]
    assert answer.clipping.verdict in truth.clipping, truth.why
    assert answer.loss_scaling.verdict in truth.scaling, truth.why
    assert answer.severity in truth.worst, said
    assert {finding.code for finding in answer.findings} >= set(truth.findings), said


def test_there_are_enough_of_them_healthy_and_not() -> None:
    healthy = [name for name, truth in TRUTHS.items() if truth.worst == QUIET]
    assert len(RUNS) >= 160
    assert len(healthy) >= 20
    assert len(TRUTHS) - len(healthy) >= 20


@pytest.mark.parametrize("seed", [*TUNING_SEEDS, *CHECK_SEEDS])
def test_the_layer_of_the_planted_nan_is_found(seed: int) -> None:
    (burst,) = diagnose(*recorded_run("nan-in-layer", seed)).nonfinite.bursts
    assert (burst.first_step, burst.last_step, burst.first_layer) == (300, 304, NAN_LAYER)


def test_a_recommended_threshold_would_clip_10_to_20_percent_of_what_was_judged() -> None:
    for name in ("mlp-adam-too-tight", "transformer-adam-too-tight", "lstm-sgd-too-tight"):
        steps, context = recorded_run(name, 0)
        range_ = diagnose(steps, context).clipping.recommended_max_norm
        assert range_ is not None
        assert steps.grad_norm_before_clip is not None
        norms = steps.grad_norm_before_clip.values[len(steps.step) // 10 :]
        assert 0.19 <= (norms > range_.low).mean() <= 0.21
        assert 0.09 <= (norms > range_.high).mean() <= 0.11
