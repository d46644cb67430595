"""Gradients beside the rest of training, and what is wrong with the record itself."""

from dataclasses import replace

import numpy as np
import pytest

from gradsight_server.diagnosis import Context, Diagnosis, MetricSeries, diagnose
from tests.server.diagnosis.kit import codes, context, finding, long_range, said, steps, usual_norms


def test_a_threshold_that_is_declared_but_not_applied_is_named() -> None:
    answer = said(np.full(3, 300.0), max_norm=1.0, clip_coef=1.0)
    found = finding(answer, "clip_not_applied")
    assert found is not None
    assert "threshold 1 (median 300)" in found.advice
    norms = usual_norms(median=3.0)
    assert "clip_not_applied" not in codes(said(norms, max_norm=1.0, clip_coef=1 / norms))


@pytest.mark.parametrize(("max_norm", "words"), [(0.0, "every gradient zero"), (-1.0, "turn every gradient around")])
def test_a_threshold_that_is_not_positive_is_taken_as_off(max_norm: float, words: str) -> None:
    answer = said(usual_norms(), max_norm=max_norm)
    assert (answer.clipping.verdict, answer.clipping.clip_fraction) == ("off", None)
    found = finding(answer, "threshold_not_positive")
    assert found is not None
    assert words in found.advice


@pytest.mark.parametrize(("num_skipped", "severity"), [(2, None), (3, "info"), (9, "info"), (10, "warning")])
def test_a_learning_rate_that_decays_over_skipped_steps(num_skipped: int, severity: str | None) -> None:
    skipped = (np.arange(200) >= 50) & (np.arange(200) < 50 + num_skipped)
    answer = said(usual_norms(200), lr=0.1 * 0.99 ** np.arange(200), skipped=skipped)
    found = finding(answer, "lr_moves_without_steps")
    assert (None if found is None else found.severity) == severity


def test_a_learning_rate_that_decays_while_nothing_is_applied_at_all() -> None:
    answer = said(np.full(4, np.inf), lr=[1.0, 0.5, 0.25, 0.125], skipped=[True] * 4, loss_scale=[8.0, 4.0, 2.0, 1.0])
    found = finding(answer, "lr_moves_without_steps")
    assert found is not None
    assert found.severity == "warning"
    assert "decayed 3 times" in found.advice
    assert "0 updates were applied" in found.advice


def test_a_constant_learning_rate_over_skipped_steps_is_fine() -> None:
    assert "lr_moves_without_steps" not in codes(said(usual_norms(50), lr=0.1, skipped=np.ones(50)))


@pytest.mark.parametrize(("factor", "is_found"), [(9.0, False), (11.0, True)])
def test_a_learning_rate_that_jumps_is_mentioned(factor: float, is_found: bool) -> None:
    lr = np.where(np.arange(200) < 150, 1e-3, factor * 1e-3)
    found = finding(said(usual_norms(200), lr=lr), "lr_jumped")
    assert (found is not None) == is_found
    assert found is None or (found.severity, found.evidence["at_step"]) == ("info", 150)


def test_a_warm_up_of_the_learning_rate_is_no_jump() -> None:
    lr = np.minimum(1.0, np.arange(200) / 50) * 1e-3
    lr[0] = 1e-9
    assert "lr_jumped" not in codes(said(usual_norms(200), lr=lr))


@pytest.mark.parametrize(("ratio", "variant"), [(9e-3, None), (2e-2, "lower"), (2e-5, None), (5e-6, "higher")])
def test_updates_large_or_tiny_beside_the_weights_are_mentioned(ratio: float, variant: str | None) -> None:
    found = finding(said(usual_norms(), update_ratio=ratio), "update_ratio_unusual")
    assert (found is not None) == (variant is not None)
    assert found is None or (found.severity == "info" and f"a {variant} learning rate" in found.advice)


def validated(values: list[float], *, name: str = "val_loss", clipped_after: float = 0.9) -> Diagnosis:
    """Ten evaluations in 1000 steps; clipping changes at step 500."""
    random = np.random.default_rng(0).random(1000)
    is_clipped = random < np.where(np.arange(1000) > 500, clipped_after, 0.05)
    metric = MetricSeries(np.arange(100, 1001, 100), np.array(values))
    about = replace(context(policy="global_norm(1.0)"), metrics={name: metric})
    return diagnose(steps(np.where(is_clipped, 1.5, 0.5) * usual_norms(spread=0.01), max_norm=1.0), about)


TURNING = [3.0, 2.5, 2.2, 2.1, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5]


def test_a_validation_loss_that_turned_when_clipping_changed_is_named() -> None:
    found = finding(validated(TURNING), "validation_turned")
    assert found is not None
    assert found.evidence["turned_at_step"] == 500
    assert found.title == "Validation got worse while clipping got tighter"


def test_a_validation_metric_alone_is_not_ours_to_judge() -> None:
    assert "validation_turned" not in codes(validated(TURNING, clipped_after=0.1))
    assert "validation_turned" not in codes(validated([3.0 - 0.1 * i for i in range(10)]))
    assert "validation_turned" not in codes(validated(TURNING, name="train_loss"))


def test_an_accuracy_is_better_when_it_is_higher() -> None:
    assert "validation_turned" in codes(validated([-value for value in TURNING], name="eval/accuracy"))
    assert "validation_turned" not in codes(validated([0.1 * i for i in range(10)], name="eval/accuracy"))


def test_ranks_that_disagree_are_named_with_both_norms() -> None:
    norms = usual_norms(200, median=3.0)
    other = norms.copy()
    other[100] = 40.11
    norms[100] = 3.61
    assert "ranks_disagree" not in codes(diagnose(steps(norms), Context(rank_norms={1: other})))
    other[101:104] *= 1.02
    found = finding(diagnose(steps(norms), Context(rank_norms={1: other})), "ranks_disagree")
    assert found is not None
    assert "At step 100: 40.1 against 3.61" in found.advice
    assert "ranks_disagree" not in codes(diagnose(steps(norms), Context(rank_norms={1: norms * 1.005})))


@pytest.mark.parametrize(("lost", "severity"), [(111, "info"), (112, "warning")])
def test_lost_rows_are_said_to_be_lost(lost: int, severity: str) -> None:
    found = finding(diagnose(steps(usual_norms()), Context(dropped={"queue_full": lost})), "telemetry_lost")
    assert found is not None
    assert (found.severity, "queue_full" in found.advice) == (severity, True)


def test_a_hole_in_the_steps_is_a_gap_and_a_sparse_log_is_not() -> None:
    step = np.arange(1000)
    step[500:] += 5000
    found = finding(said(usual_norms(), step=step), "telemetry_gap")
    assert found is not None
    assert (found.first_step, found.last_step, found.evidence["num_steps"]) == (499, 5500, 5000)
    assert "telemetry_gap" not in codes(said(usual_norms(), step=np.arange(1000) * 50))


def test_lines_of_two_kinds_that_take_turns_are_no_gaps() -> None:
    lines = np.repeat(np.arange(1, 101) * 50, 2)
    lines[::2] -= 1  # 49, 50, 99, 100
    assert "telemetry_gap" not in codes(said(usual_norms(200), step=lines))
    dense_then_sparse = np.concatenate([np.arange(100), 100 + 50 * np.arange(100)])
    assert "telemetry_gap" not in codes(said(usual_norms(200), step=dense_then_sparse))
    lines[100:] += 5000
    found = finding(said(usual_norms(200), step=lines), "telemetry_gap")
    assert found is not None
    assert found.evidence == {"num_gaps": 1, "num_steps": 5000}


def test_lost_rows_are_measured_by_the_whole_range_and_not_by_the_newest_rows() -> None:
    facts = long_range(num_steps=100_000)
    found = finding(diagnose(steps(usual_norms()), Context(dropped={"queue_full": 2_000}), facts), "telemetry_lost")
    assert found is not None
    assert found.severity == "info"
    assert found.evidence["fraction"] == pytest.approx(2_000 / 102_000)


def test_a_noisy_validation_loss_has_not_turned() -> None:
    noise = 0.06 * np.random.default_rng(3).normal(size=40)
    noise[30] = -0.2  # one lucky evaluation, which none of the later ones comes near
    steps_, values = np.arange(25, 1001, 25), 2.0 + noise
    about = replace(context(policy="global_norm(1.0)"), metrics={"val_loss": MetricSeries(steps_, values)})
    norms = np.concatenate([usual_norms(775, median=1.2), usual_norms(225, median=0.3)])
    assert "validation_turned" not in codes(diagnose(steps(norms, max_norm=1.0), about))
