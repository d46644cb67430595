"""Symptoms people have reported in public, each with what a careful answer says."""

import math
import random

import numpy as np
import pytest

from gradsight_server.diagnosis import Context, LayerNorms, diagnose
from tests.server.diagnosis.kit import codes, context, finding, said, steps, usual_norms


def test_a_norm_above_the_threshold_means_that_clipping_works() -> None:
    norms = usual_norms(200, median=20.0, spread=0.8)
    answer = said(norms, max_norm=1.0, clip_coef=1.0 / norms)
    assert answer.clipping.clip_fraction == 1.0
    assert "100 % of the last 180 steps were clipped" in answer.clipping.advice
    assert "clip_not_applied" not in codes(answer)


def test_a_loss_of_zero_with_nan_norms_for_ever_is_a_dead_run() -> None:
    loss = np.concatenate([np.linspace(3, 2, 60), np.zeros(40)])
    norms = np.concatenate([usual_norms(60), np.full(40, np.nan)])
    answer = said(norms, loss=loss)
    found = finding(answer, "run_dead")
    assert found is not None
    assert (answer.severity, found.evidence["first_bad_step"]) == ("critical", 60)
    assert "loss of 0.0 is not real" in found.advice


def test_transient_overflows_are_information_and_the_first_ones_warm_up() -> None:
    norms, scale = usual_norms(30), 2.0**40 * 0.5 ** np.minimum(np.arange(30), 3)
    norms[:3] = np.inf
    answer = said(norms, loss_scale=scale, skipped=np.arange(30) < 3)
    assert (answer.loss_scaling.num_skipped, answer.severity) == (3, "info")
    assert answer.loss_scaling.verdict == "warming_up"
    later = usual_norms(4000)
    later[[700, 2700]] = np.nan
    answer = said(later, loss_scale=65536.0, skipped=np.isnan(later), about=context(precision="fp16"))
    assert answer.severity in ("ok", "info")


def test_a_norm_and_a_scale_printed_as_placeholders_are_not_recorded() -> None:
    answer = said(np.zeros(49), loss=12.4 - 0.2 * np.arange(49), loss_scale=-1.0)
    assert (answer.clipping.verdict, answer.loss_scaling.last_scale, answer.severity) == ("unknown", None, "info")
    assert {"norm_not_recorded", "loss_scale_not_recorded"} <= codes(answer)


def test_an_optimizer_none_of_whose_parameters_had_a_gradient_has_no_norm() -> None:
    answer = said([None] * 60, skipped=[True] * 60, skip_reason=["no_gradient"] * 60, num_layers_without_grad=[2] * 60)
    assert answer.clipping.norm.last is None
    assert "no_gradient_steps" in codes(answer)
    assert answer.nonfinite.num_steps == 0


@pytest.mark.parametrize("scale", [1.0, 65536.0])
def test_bf16_with_a_constant_scale_is_not_healthy_amp(scale: float) -> None:
    answer = said(usual_norms(), loss_scale=scale, about=context(precision="bf16"))
    assert answer.loss_scaling.verdict == "not_used"


def test_clipping_scaled_gradients_is_told_from_three_steps() -> None:
    about = context(precision="fp16", policy="global_norm(1.0)")
    answer = said([71_000.0, 65_000.0, 90_000.0], loss_scale=65536.0, about=about)
    found = finding(answer, "norm_maybe_times_scale")
    assert found is not None
    assert "unscale_(optimizer) comes before clip_grad_norm_" in found.advice
    assert "71,000" in found.advice
    assert "1.08" in found.advice


def test_ranks_of_a_mixture_of_experts_that_clip_differently() -> None:
    local = [math.hypot(3.0, expert) for expert in (40.0, 2.0)]
    answer = diagnose(steps(np.full(5, local[0])), Context(rank_norms={1: np.full(5, local[1])}))
    found = finding(answer, "ranks_disagree")
    assert found is not None
    assert "40.1 against 3.61" in found.advice


def test_ranks_that_log_the_same_agree() -> None:
    norms = 2.0 + np.arange(60.0)
    assert "ranks_disagree" not in codes(diagnose(steps(norms), Context(rank_norms={r: norms for r in range(1, 4)})))


def test_experts_without_a_gradient_are_idle_and_not_dead() -> None:
    norms = np.where(np.arange(200)[:, None] % 4 == np.arange(4), 1.0, -1.0)
    names = tuple(f"experts.{i}.weight" for i in range(4))
    answer = diagnose(steps(np.ones(200), layers=LayerNorms(np.arange(200), names, norms)))
    assert answer.layers.dead == []
    assert "layers_without_gradient" not in codes(answer)


def test_a_scale_that_halves_on_every_step_is_seen_within_ten() -> None:
    for num_steps in (6, 9, 40):
        scale = 65536.0 * 0.5 ** np.arange(num_steps)
        answer = said(
            np.full(num_steps, np.nan), loss=np.full(num_steps, np.nan), loss_scale=scale, skipped=[True] * num_steps
        )
        assert (answer.loss_scaling.verdict, answer.severity) == ("model_nan", "critical")
        assert answer.loss_scaling.num_skipped == num_steps


def test_a_scale_that_falls_for_ever_has_collapsed_even_without_a_loss() -> None:
    answer = diagnose(
        steps(np.full(40, np.inf), loss=[None] * 40, loss_scale=65536.0 * 0.5 ** np.arange(40), skipped=[True] * 40)
    )
    assert (answer.loss_scaling.verdict, answer.severity) == ("collapsed", "critical")
    assert answer.loss_scaling.min_scale == 65536.0 * 0.5**39


def test_a_tiny_scale_is_a_collapse() -> None:
    scale = np.concatenate([np.full(30, 0.125), np.full(30, 6.1e-5)])
    assert said(usual_norms(60), loss_scale=scale).loss_scaling.verdict == "collapsed"


def test_a_coefficient_that_is_computed_but_not_applied() -> None:
    answer = said(usual_norms(100, median=300.0), max_norm=1.0, clip_coef=1.0)
    found = finding(answer, "clip_not_applied")
    assert found is not None
    assert answer.clipping.verdict == "unknown"


def test_how_often_clipping_engages_before_and_after_a_change_of_the_loss() -> None:
    random.seed(0)
    before, after = ([scale * random.lognormvariate(0, 0.15) for _ in range(500)] for scale in (1.223, 0.153))
    assert said(before, max_norm=1.0).clipping.verdict == "too_tight"
    assert said(after, max_norm=1.0).clipping.verdict == "inactive"
    assert "threshold_outgrown" in codes(said(before + after, max_norm=1.0))


def test_updates_skipped_while_the_loss_stays_finite() -> None:
    norms = np.where(np.arange(600) % 8 == 0, np.nan, usual_norms(600))
    answer = said(norms, loss=np.full(600, 65.1), skipped=np.isnan(norms))
    found = finding(answer, "steps_skipped")
    assert found is not None
    assert "75 steps were skipped (12 %)" in found.advice
    assert "targets longer than their input" in found.advice


def test_groups_of_equal_reward_are_no_signal_and_not_vanishing() -> None:
    norms = usual_norms(600, median=0.3)
    norms[::5] = 0.0
    norms[2::5] = 1e-4
    answer = said(norms, max_norm=10.0)
    found = finding(answer, "no_signal_steps")
    assert found is not None
    assert (found.evidence["num_steps"], answer.clipping.verdict, answer.severity) == (240, "inactive", "info")


def test_norms_on_some_rows_only_are_joined_not_filled_with_zeros() -> None:
    norms = [value if row % 10 == 0 else None for row, value in enumerate(usual_norms(1000).tolist())]
    answer = said(norms, max_norm=1.0)
    assert answer.range.num_finite == 100
    assert answer.clipping.norm.p50 == pytest.approx(1.0, rel=0.1)
    assert "no_signal_steps" not in codes(answer)


def test_a_root_taken_twice_does_not_add_up() -> None:
    layers = LayerNorms(np.arange(60), ("fc.weight", "fc.bias"), np.tile([3.0**0.5, 4.0**0.5], (60, 1)))
    assert "layers_do_not_add_up" in codes(diagnose(steps(np.full(60, 5.0), layers=layers)))


def test_a_schedule_that_runs_on_while_nothing_is_applied() -> None:
    answer = said([np.inf] * 4, skipped=[True] * 4, lr=[1.0, 0.5, 0.25, 0.125], loss_scale=[8.0, 4.0, 2.0, 1.0])
    found = finding(answer, "lr_moves_without_steps")
    assert found is not None
    assert "decayed 3 times" in found.advice
    assert "0 updates were applied" in found.advice


def test_a_threshold_of_zero_is_off_and_its_fraction_not_available() -> None:
    answer = said(usual_norms(), max_norm=0.0)
    assert (answer.clipping.verdict, answer.clipping.clip_fraction) == ("off", None)


def test_rounded_step_numbers_are_neither_gaps_nor_fewer_points() -> None:
    step = [s if s < 1000 else s // 1000 * 1000 for s in range(200, 10_200, 200)]
    answer = said(usual_norms(50), step=step)
    assert answer.range.num_steps == 50
    assert "telemetry_gap" not in codes(answer)
