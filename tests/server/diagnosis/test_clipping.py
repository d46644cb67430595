"""The verdict on clipping, on both sides of each border."""

from typing import Any

import numpy as np
import pytest

from gradsight_server.diagnosis import Context, Diagnosis, RangeFacts, diagnose
from tests.server.diagnosis.kit import Floats, codes, context, finding, said, steps, usual_norms

N = 2000
JUDGED = 1900


def clipped_on(num_clipped: int, *, about: Context | None = None, high: float = 1.5, low: float = 0.5) -> Diagnosis:
    """Norms of which, after warm-up, so many are above the threshold 1, spread evenly."""
    norms = usual_norms(N, median=low, spread=0.01)
    places = 100 + np.linspace(0, JUDGED - 1, num_clipped).astype(np.int64)
    norms[places] = high
    return said(norms, max_norm=1.0, about=about)


@pytest.mark.parametrize(
    ("num_clipped", "verdict", "severity"),
    [
        (0, "inactive", "info"),
        (18, "inactive", "info"),
        (19, "healthy", "ok"),
        (570, "healthy", "ok"),
        (571, "firm", "info"),
        (950, "firm", "info"),
        (951, "too_tight", "warning"),
        (1900, "too_tight", "warning"),
    ],
)
def test_the_clip_fraction_decides(num_clipped: int, verdict: str, severity: str) -> None:
    answer = clipped_on(num_clipped)
    assert (answer.clipping.verdict, answer.clipping.severity) == (verdict, severity)
    assert answer.clipping.clip_fraction == pytest.approx(num_clipped / JUDGED)


def test_a_norm_equal_to_the_threshold_is_not_clipped() -> None:
    norms = np.where(np.arange(N) % 2, 1.0, usual_norms(N, median=0.5))
    norms[::500] = 1.5
    assert said(norms, max_norm=1.0).clipping.clip_fraction == pytest.approx(3 / JUDGED, abs=1e-3)


def test_the_warm_up_is_left_out() -> None:
    norms = usual_norms(500, median=0.5)
    norms[:50] = 20.0
    answer = said(norms, max_norm=1.0)
    assert answer.clipping.clip_fraction is not None
    assert answer.clipping.clip_fraction < 0.01
    assert answer.clipping.norm.max == 20.0


def test_only_the_newest_steps_are_judged() -> None:
    norms = np.concatenate([np.full(3000, 5.0), usual_norms(2000, median=0.5)])
    answer = said(norms, max_norm=1.0)
    assert answer.clipping.verdict == "inactive"
    assert answer.clipping.norm.p50 == pytest.approx(0.5, rel=0.1)


def test_fewer_than_50_norms_are_unknown_and_say_what_is_missing() -> None:
    answer = said(usual_norms(49), max_norm=1.0)
    assert answer.clipping.verdict == "unknown"
    assert "49 finite gradient norms, a verdict wants 50" in answer.clipping.advice
    assert "recurrent nets 5 to 15" in answer.clipping.advice
    assert said(usual_norms(50), max_norm=1.0).clipping.verdict != "unknown"


def test_without_a_known_threshold_the_verdict_is_unknown_but_a_range_is_offered() -> None:
    answer = said(usual_norms())
    assert answer.clipping.verdict == "unknown"
    assert answer.clipping.recommended_max_norm is not None


def test_clipping_is_off_only_where_that_is_said() -> None:
    assert said(usual_norms(), about=context(policy=None)).clipping.verdict == "off"
    assert said(usual_norms(), max_norm=0.0).clipping.verdict == "off"
    assert said(usual_norms(), max_norm=[None] * 1000).clipping.verdict == "unknown"


def test_the_threshold_may_come_from_the_policy() -> None:
    answer = said(usual_norms(), about=context(policy="global_norm(0.5)"))
    assert answer.clipping.verdict == "too_tight"
    assert answer.clipping.median_clip_coef == pytest.approx(0.5, rel=0.05)


def test_the_threshold_may_follow_from_the_coefficients() -> None:
    norms = usual_norms()
    answer = said(norms, clip_coef=np.minimum(1, 0.8 / (norms + 1e-6)))
    assert answer.clipping.clip_fraction == pytest.approx(np.mean(norms[100:] > 0.8), abs=0.002)


def test_the_recommended_range_is_p80_to_p90_and_clips_10_to_20_percent() -> None:
    norms = usual_norms(N)
    range_ = said(norms, max_norm=1.0).clipping.recommended_max_norm
    assert range_ is not None
    assert (range_.low, range_.high) == pytest.approx(np.percentile(norms[100:], [80, 90]).tolist())


def test_advice_on_a_tight_threshold_holds_the_numbers() -> None:
    answer = said(usual_norms(N, median=20.0), max_norm=1.0)
    advice = answer.clipping.advice
    assert "100 % of the last 1,900 steps" in advice
    assert "1/19.8 of their size" in advice
    assert "Raise max_norm to 23.5–25.7 (clips 10–20 % of these steps)" in advice


@pytest.mark.parametrize(
    ("optimizer", "spread", "severity"),
    [
        ("SGD", 0.2, "critical"),
        ("AdamW", 0.2, "warning"),
        ("AdamW", 0.03, "info"),
        ("SGD", 0.03, "critical"),
        (None, 0.2, "warning"),
    ],
)
def test_adam_forgives_a_constant_coefficient_and_sgd_does_not(
    optimizer: str | None, spread: float, severity: str
) -> None:
    answer = said(usual_norms(median=8.0, spread=spread), max_norm=1.0, about=context(optimizer=optimizer))
    assert (answer.clipping.verdict, answer.clipping.severity) == ("too_tight", severity)


def test_adam_does_not_forgive_a_coefficient_near_its_epsilon() -> None:
    answer = said(usual_norms(median=2e4, spread=0.03), max_norm=1.0, about=context(optimizer="Adam"))
    assert answer.clipping.severity == "warning"


def test_sgd_clipped_by_little_is_no_emergency() -> None:
    answer = said(usual_norms(median=1.5, spread=0.05), max_norm=1.0, about=context(optimizer="SGD"))
    assert (answer.clipping.verdict, answer.clipping.severity) == ("too_tight", "warning")


@pytest.mark.parametrize(("optimizer", "severity"), [("AdamW", "info"), (None, "info"), ("SGD", "warning")])
def test_a_detection_transformers_threshold_is_explained_not_shouted_about(
    optimizer: str | None, severity: str
) -> None:
    norms = usual_norms(median=12.0, spread=0.4)
    answer = said(norms, max_norm=np.float32(0.1), about=context(optimizer=optimizer))
    assert (answer.clipping.verdict, answer.clipping.severity) == ("too_tight", severity)


@pytest.mark.parametrize("policy", ["global_norm(max_norm=percentile(q=10))", "unit_norm()", "tensor_adaptive()"])
def test_adaptive_policies_clip_much_by_design(policy: str) -> None:
    norms = usual_norms()
    columns: dict[str, Any] = {"max_norm": np.full(1000, 0.8)}
    if not policy.startswith("global"):
        columns = {"clipped_layer_fraction": np.full(1000, 0.4), "clip_coef": np.full(1000, 0.9)}
    answer = said(norms, about=context(policy=policy, optimizer="SGD"), **columns)
    assert (answer.clipping.verdict, answer.clipping.severity) == ("healthy", "ok")


def test_a_threshold_that_moves_with_the_norms_is_seen_to_be_adaptive() -> None:
    norms = usual_norms()
    assert said(norms, max_norm=norms * 0.9).clipping.verdict == "healthy"


def test_policies_that_hold_each_tensor_are_judged_by_what_is_left() -> None:
    about = context(policy="tensor_norm(1.0)")
    for coef, verdict in ((0.51, "healthy"), (0.49, "too_tight")):
        answer = said(usual_norms(), clipped_layer_fraction=0.5, clip_coef=coef, about=about)
        assert answer.clipping.verdict == verdict
        assert answer.clipping.recommended_max_norm is None


def with_spikes(heights: dict[int, float]) -> Floats:
    norms = usual_norms()
    for step, height in heights.items():
        norms[step] = height
    return norms


def test_spikes_that_pass_make_a_threshold_too_loose() -> None:
    answer = said(with_spikes({300: 40.0, 600: 60.0}), max_norm=50.0)
    assert (answer.clipping.verdict, answer.clipping.severity) == ("too_loose", "warning")
    assert "2 of 2 spikes passed" in answer.clipping.advice
    one = said(with_spikes({600: 40.0}), max_norm=50.0)
    assert (one.clipping.verdict, one.clipping.severity) == ("too_loose", "info")
    huge = said(with_spikes({600: 140.0}), max_norm=150.0)
    assert (huge.clipping.verdict, huge.clipping.severity) == ("too_loose", "warning")


def test_a_spike_that_the_loss_answers_is_a_warning() -> None:
    loss = 1.0 + 0.01 * np.random.default_rng(0).normal(size=1000)
    loss[601:620] += 3.0
    answer = said(with_spikes({600: 40.0}), max_norm=50.0, loss=loss)
    assert (answer.clipping.verdict, answer.clipping.severity) == ("too_loose", "warning")


@pytest.mark.parametrize(("since", "is_lost"), [(1.2, False), (1.4, True)])
def test_a_loss_that_never_comes_back_after_a_spike_is_critical(since: float, is_lost: bool) -> None:
    loss = np.where(np.arange(1000) < 600, 1.0, since) + 0.01 * np.random.default_rng(0).normal(size=1000)
    loose = said(with_spikes({600: 40.0}), max_norm=50.0, loss=loss)
    assert loose.clipping.verdict == "too_loose"
    assert (loose.clipping.severity == "critical") == is_lost
    off = said(with_spikes({600: 40.0}), loss=loss, about=context(policy=None))
    assert (off.clipping.severity == "critical") == is_lost
    assert ("go back to a checkpoint" in off.clipping.advice.lower()) == is_lost


def test_spikes_that_are_caught_make_a_rare_clip_healthy() -> None:
    answer = said(with_spikes({300: 40.0, 600: 60.0}), max_norm=3.0)
    assert answer.clipping.verdict == "healthy"
    assert codes(answer) == set()


def test_nine_times_the_median_is_no_spike() -> None:
    assert said(with_spikes({300: 9.0, 600: 9.0}), max_norm=50.0).clipping.verdict == "inactive"


def test_a_heavy_tail_is_not_a_row_of_spikes() -> None:
    answer = said(usual_norms(2000, spread=1.0), max_norm=1000.0)
    assert answer.clipping.verdict == "inactive"


def test_spikes_without_clipping_are_a_warning_with_a_threshold_to_try() -> None:
    answer = said(with_spikes({300: 40.0, 600: 60.0}), about=context(policy=None))
    found = finding(answer, "spikes_passed")
    assert found is not None
    assert found.severity == "warning"
    assert "Clip at 1.1" in found.advice


def test_a_threshold_that_was_changed_is_judged_since_the_change() -> None:
    norms = usual_norms(median=5.0)
    answer = said(norms, max_norm=np.where(np.arange(1000) < 700, 1.0, 6.5))
    assert answer.clipping.verdict == "healthy"


def test_clipping_that_has_stopped_is_judged_by_what_it_does_now() -> None:
    norms = np.concatenate([usual_norms(500, median=8.0), usual_norms(500, median=0.2, seed=1)])
    answer = said(norms, max_norm=1.0)
    assert answer.clipping.verdict == "inactive"
    assert "threshold_outgrown" in codes(answer)


def test_clipping_that_has_begun_to_bind_is_judged_by_what_it_does_now() -> None:
    norms = np.concatenate([usual_norms(500, median=0.2), usual_norms(500, median=1.8, seed=1)])
    assert said(norms, max_norm=1.0).clipping.verdict == "too_tight"


def test_what_clipping_did_before_the_rows_at_hand_comes_from_the_ranges_facts() -> None:
    facts = RangeFacts(
        first_step=0,
        last_step=19_999,
        num_steps=20_000,
        num_finite=20_000,
        num_nonfinite=0,
        num_skipped=0,
        num_clipped=9_000,
        largest_norm=77.0,
    )
    newest = steps(usual_norms(2000, median=0.2), max_norm=1.0, step=np.arange(18_000, 20_000))
    answer = diagnose(newest, None, facts)
    found = finding(answer, "threshold_outgrown")
    assert found is not None
    assert found.evidence["clip_fraction_before"] == 0.5
    assert (answer.range.num_steps, answer.clipping.norm.max) == (20_000, 77.0)


def test_exploding_norms_are_not_answered_by_a_higher_threshold() -> None:
    norms = np.concatenate([usual_norms(500, median=0.5), np.geomspace(0.5, 80, 300), usual_norms(200, median=80.0)])
    answer = said(norms, max_norm=1.0, loss=np.linspace(1, 9, 1000))
    assert "norm_exploding" in codes(answer)
    assert answer.clipping.recommended_max_norm is None
    assert "Do not raise max_norm" in answer.clipping.advice


@pytest.mark.parametrize(("before", "now", "verdict"), [(0.45, 0.18, "healthy"), (0.45, 0.22, "firm")])
def test_clipping_that_acts_less_now_is_judged_by_what_it_does_now(before: float, now: float, verdict: str) -> None:
    random = np.random.default_rng(0).permutation(1000) / 1000
    norms = np.concatenate([np.where(random < before, 1.5, 0.5), np.where(random < now, 1.5, 0.5)])
    assert said(norms * usual_norms(2000, spread=0.01), max_norm=1.0).clipping.verdict == verdict


def test_spikes_are_not_said_to_pass_a_threshold_that_nobody_knows() -> None:
    answer = said(with_spikes({300: 40.0, 600: 60.0}))
    found = finding(answer, "spikes_passed")
    assert found is not None
    assert "nobody says whether they were clipped" in found.title


def test_all_zero_norms_are_not_asked_to_be_recorded() -> None:
    answer = said(np.zeros(200), loss=np.full(200, 2.3), max_norm=1.0)
    assert answer.clipping.verdict == "unknown"
    assert "Record grad_norm_before_clip" not in answer.clipping.advice
    assert codes(answer) == {"norm_all_zero"}


def falling(num_steps: int, *, to: float) -> Floats:
    """Norms as they are at the beginning of most trainings: high, and soon lower."""
    norms: Floats = usual_norms(num_steps, median=to) * (1 + 3 * np.exp(-np.arange(num_steps) / 40))
    return norms


@pytest.mark.parametrize(
    ("num_steps", "to", "severity"),
    [(80, 0.9, "info"), (80, 5.0, "warning"), (290, 1.8, "info"), (310, 1.8, "warning")],
)
def test_a_run_that_has_just_begun_is_not_warned_while_its_norms_fall(num_steps: int, to: float, severity: str) -> None:
    answer = said(falling(num_steps, to=to), max_norm=1.0)
    assert (answer.clipping.verdict, answer.clipping.severity) == ("too_tight", severity)
    assert ("look again after some hundred steps" in answer.clipping.advice) == (severity == "info")


def test_a_run_that_has_just_begun_is_warned_where_its_norms_are_high_and_do_not_fall() -> None:
    for median, severity in ((1.9, "info"), (2.3, "warning")):
        norms = usual_norms(80, median=median, spread=0.05)
        assert said(norms, max_norm=1.0).clipping.severity == severity


@pytest.mark.parametrize(("warmup", "severity"), [(1000, "info"), (300, "warning")])
def test_a_run_is_not_warned_while_its_learning_rate_warms_up(warmup: int, severity: str) -> None:
    norms = usual_norms(500, median=5.0) * np.geomspace(2, 1, 500)
    answer = said(norms, max_norm=1.0, lr=1e-3 * np.minimum(1, np.arange(1, 501) / warmup))
    assert (answer.clipping.verdict, answer.clipping.severity) == ("too_tight", severity)
