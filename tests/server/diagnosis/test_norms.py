"""What the norms themselves tell: explosion, collapse, drift, no signal, and numbers that are not norms."""

import numpy as np
import pytest

from gradsight_server.diagnosis import diagnose
from tests.server.diagnosis.kit import Floats, codes, context, finding, long_range, said, steps, usual_norms


def ending_in(factor: float, *, num_steps: int = 1000, num_newest: int = 50) -> Floats:
    norms = np.ones(num_steps)
    norms[-num_newest:] = factor
    return norms * usual_norms(num_steps, spread=0.02)


@pytest.mark.parametrize(
    ("factor", "severity"), [(9.0, None), (11.0, "warning"), (90.0, "warning"), (110.0, "critical")]
)
def test_newest_norms_far_above_the_usual_ones_are_an_explosion(factor: float, severity: str | None) -> None:
    found = finding(said(ending_in(factor), loss=np.linspace(1, 2, 1000)), "norm_exploding")
    assert (None if found is None else found.severity) == severity


def test_norms_that_grow_while_the_loss_falls_are_no_explosion() -> None:
    answer = said(ending_in(20.0), loss=np.linspace(2, 1, 1000))
    assert "norm_exploding" not in codes(answer)


def collapsing(after: float, *, spike: float = 1.0, num_after: int = 300) -> Floats:
    norms = usual_norms(500 + num_after, spread=0.1)
    norms[499] *= spike
    norms[500:] *= after
    return norms


@pytest.mark.parametrize(("after", "is_found"), [(2e-3, False), (5e-4, True)])
def test_a_norm_that_falls_by_a_thousand_for_good_is_a_collapse(after: float, is_found: bool) -> None:
    assert ("norm_collapsed" in codes(said(collapsing(after)))) == is_found


def test_a_collapse_after_a_spike_is_critical_however_healthy_the_clip_fraction() -> None:
    norms = collapsing(1e-4, spike=100.0)
    answer = said(norms, max_norm=1.1)
    found = finding(answer, "norm_collapsed")
    assert found is not None
    assert (found.severity, found.first_step) == ("critical", 500)
    assert answer.clipping.recommended_max_norm is None
    without = finding(said(collapsing(1e-4)), "norm_collapsed")
    assert without is not None
    assert without.severity == "warning"


@pytest.mark.parametrize(("spike", "num_after"), [(100.0, 20), (1.0, 100)])
def test_a_collapse_wants_some_steps_and_no_way_back(spike: float, num_after: int) -> None:
    assert "norm_collapsed" not in codes(said(collapsing(1e-4, spike=spike, num_after=num_after - 1)))
    assert "norm_collapsed" in codes(said(collapsing(1e-4, spike=spike, num_after=num_after)))
    back = collapsing(1e-4, spike=spike)
    back[-30:] = 1.0
    assert "norm_collapsed" not in codes(said(back))


def test_a_model_that_converges_does_not_collapse() -> None:
    norms = np.geomspace(10, 1e-4, 1000) * usual_norms()
    assert said(norms, max_norm=20.0).severity in ("ok", "info")


@pytest.mark.parametrize(("factor", "is_found"), [(2.8, False), (3.3, True), (1 / 3.3, True)])
def test_a_usual_norm_that_has_moved_is_mentioned(factor: float, is_found: bool) -> None:
    norms = np.concatenate([usual_norms(500), factor * usual_norms(500, seed=1)])
    found = finding(said(norms), "norm_drift")
    assert (found is not None) == is_found
    assert found is None or found.severity == "info"


@pytest.mark.parametrize("tiny", [0.0, 5e-4])
def test_isolated_steps_without_signal_are_counted_and_left_out(tiny: float) -> None:
    norms = usual_norms(median=0.3)
    norms[np.random.default_rng(0).random(1000) < 0.4] = tiny * 0.3
    answer = said(norms, max_norm=0.4)
    found = finding(answer, "no_signal_steps")
    assert found is not None
    assert found.evidence["fraction"] == pytest.approx(0.4, abs=0.05)
    assert answer.clipping.norm.p50 == pytest.approx(0.3, rel=0.05)
    assert answer.clipping.clip_fraction == pytest.approx(0.075, abs=0.03)
    assert answer.severity == "info"


def test_steps_above_a_thousandth_of_their_neighbours_have_signal() -> None:
    norms = usual_norms(spread=0.05)
    norms[::10] = 2e-3
    assert "no_signal_steps" not in codes(said(norms))


def test_of_a_handful_of_norms_none_is_called_without_signal() -> None:
    assert "no_signal_steps" not in codes(said([1e-5, 1.0, 1e-5, 1.0]))
    norms = np.array([*[1e-4] * 15, *[10.0] * 10])
    answer = said(norms * usual_norms(25, spread=0.02), loss=np.linspace(1, 2, 25))
    assert "no_signal_steps" not in codes(answer)
    assert answer.severity == "critical"


def test_zeros_while_the_loss_moves_are_a_placeholder_and_not_vanishing() -> None:
    answer = said(np.zeros(100), loss=np.linspace(12.4, 2, 100), max_norm=1.0)
    assert answer.clipping.verdict == "unknown"
    assert answer.clipping.norm.p50 is None
    assert answer.range.num_finite == 0
    found = finding(answer, "norm_not_recorded")
    assert found is not None
    assert (found.severity, answer.severity) == ("info", "info")
    assert "placeholder" in found.advice


def test_zeros_while_the_loss_stands_still_mean_no_gradient() -> None:
    found = finding(said(np.zeros(100), loss=np.full(100, 2.3)), "norm_all_zero")
    assert found is not None
    assert found.severity == "warning"


def test_negative_norms_are_placeholders_or_where_others_are_positive_not_finite() -> None:
    assert "norm_not_recorded" in codes(said(np.full(100, -1.0)))
    some = usual_norms(200)
    some[50] = -1.0
    assert said(some).nonfinite.num_steps == 1


def test_an_absent_norm_is_said_to_be_absent() -> None:
    answer = said(lr=np.ones(100))
    assert "norm_not_recorded" in codes(answer)
    assert "grad_norm_before_clip" in answer.clipping.advice


def test_a_norm_repeated_to_the_last_digit_is_stale() -> None:
    norms = np.repeat(usual_norms(100), 10)
    found = finding(said(norms), "norm_stale")
    assert found is not None
    assert (found.severity, found.evidence["longest"]) == ("warning", 10)


def test_norms_rounded_to_two_digits_are_not_stale() -> None:
    norms = np.round(usual_norms(1000, median=0.22, spread=0.1), 2)
    assert np.mean(norms[1:] == norms[:-1]) > 0.1
    assert "norm_stale" not in codes(said(norms))


def test_norms_that_end_exactly_at_the_threshold_were_logged_after_clipping() -> None:
    true = usual_norms(median=1.2)
    logged = np.minimum(true, 1.3 * true / (true + 1e-6))
    answer = said(logged, max_norm=1.3)
    found = finding(answer, "norm_after_clip")
    assert found is not None
    assert found.evidence["fraction"] == pytest.approx(np.mean(true[100:] > 1.3), abs=0.01)
    assert answer.clipping.verdict in ("firm", "healthy")
    assert answer.clipping.recommended_max_norm is None


def test_norms_that_end_at_one_value_may_have_been_logged_after_clipping() -> None:
    true = usual_norms(median=1.2)
    answer = said(np.minimum(true, 1.3 * true / (true + 1e-6)))
    found = finding(answer, "norm_after_clip")
    assert found is not None
    assert found.severity == "info"
    assert found.evidence["largest_norm"] == pytest.approx(1.3, rel=1e-3)
    assert "as after clipping at 1.3. " in found.advice
    assert answer.clipping.recommended_max_norm is None
    assert "norm_stale" not in codes(said(np.minimum(true, 1.2 - 6e-7)))
    for norms in (true, np.round(true, 2), np.full(1000, 1.3), np.minimum(np.round(true, 1), 1.3), 1 + 1e-4 * true):
        assert "norm_after_clip" not in codes(said(norms))


def test_norms_that_reach_above_the_threshold_were_logged_before_clipping() -> None:
    assert "norm_after_clip" not in codes(said(usual_norms(spread=0.01), max_norm=1.0))


def test_norms_that_follow_the_loss_scale_still_hold_it() -> None:
    scale = np.repeat(2.0 ** np.array([16, 15, 16, 17, 16]), 200)
    answer = said(usual_norms(median=2.0) * scale, loss_scale=scale, max_norm=1.0)
    found = finding(answer, "norm_times_scale")
    assert found is not None
    assert found.evidence["median_norm_unscaled"] == pytest.approx(2.0, rel=0.05)
    assert "scaler.unscale_(optimizer) before clip_grad_norm_" in found.advice


def test_norms_that_do_not_follow_the_loss_scale_are_unscaled() -> None:
    scale = np.repeat(2.0 ** np.array([16, 15, 16, 17, 16]), 200)
    answer = said(usual_norms(median=500.0), loss_scale=scale, max_norm=1.0)
    assert not {"norm_times_scale", "norm_maybe_times_scale"} & codes(answer)


def test_a_constant_scale_and_huge_norms_are_a_suspicion() -> None:
    about = context(precision="fp16", policy="global_norm(1.0)")
    answer = said(65536.0 * usual_norms(5), loss_scale=65536.0, about=about)
    found = finding(answer, "norm_maybe_times_scale")
    assert found is not None
    assert found.severity == "info"
    assert found.evidence["median_norm_unscaled"] == pytest.approx(1.0, rel=0.3)


def test_a_threshold_the_norms_have_sunk_below_is_mentioned() -> None:
    norms = np.concatenate([usual_norms(500, median=1.2), usual_norms(500, median=0.15)])
    found = finding(said(norms, max_norm=1.0), "threshold_outgrown")
    assert found is not None
    assert (found.severity, found.evidence["clip_fraction_now"]) == ("info", 0.0)
    assert "threshold_outgrown" not in codes(said(usual_norms(median=0.15), max_norm=1.0))


def test_a_collapse_is_told_for_as_long_as_it_lasts() -> None:
    high, low = usual_norms(3_000, spread=0.3), 1e-5 * usual_norms(60_000, spread=0.3, seed=1)
    facts = long_range(np.concatenate([high, low]), largest_norm=300.0)
    rows = steps(low[-5_000:], step=np.arange(58_000, 63_000), max_norm=1.0)
    found = finding(diagnose(rows, None, facts), "norm_collapsed")
    assert found is not None
    assert found.severity == "critical"
    assert found.evidence["norm_before"] == pytest.approx(1.0, rel=0.1)
    assert found.evidence["norm_after"] == pytest.approx(1e-5, rel=0.1)
    assert "since before step 58,000" in found.advice
    calm = finding(diagnose(rows, None, long_range(np.concatenate([high, low]), largest_norm=2.0)), "norm_collapsed")
    assert calm is not None
    assert calm.severity == "warning"


def test_a_collapse_to_zero_is_told_for_as_long_as_it_lasts() -> None:
    facts = long_range(np.concatenate([usual_norms(3_000), np.zeros(20_000)]))
    rows = steps(np.zeros(5_000), step=np.arange(18_000, 23_000), loss=np.full(5_000, 2.3))
    assert "norm_collapsed" in codes(diagnose(rows, None, facts))


def test_a_model_that_converges_over_a_long_range_has_not_collapsed() -> None:
    norms = np.geomspace(10, 1e-4, 50_000) * usual_norms(50_000)
    rows = steps(norms[-5_000:], step=np.arange(45_000, 50_000), max_norm=20.0)
    answer = diagnose(rows, None, long_range(norms))
    assert answer.severity == "info"
    assert "norm_drift" in codes(answer)


def test_a_collapse_is_not_called_a_clipping_that_hardly_acts() -> None:
    answer = said(collapsing(1e-4, spike=100.0), max_norm=1.1)
    assert answer.clipping.verdict in ("healthy", "inactive")
    assert "no fault" not in answer.clipping.advice
    assert not {code for code in codes(answer) if code.startswith("clipping_")}


def test_what_is_left_after_a_collapse_shows_no_spikes() -> None:
    norms = collapsing(1e-4, spike=100.0)
    norms[[600, 650]] = 0.05  # a dying model twitches
    held = said(norms, max_norm=2.0)
    assert held.clipping.verdict == "inactive"
    assert "because the norms have collapsed" in held.clipping.advice
    assert codes(held) & {"clipping_too_loose", "spikes_passed", "norm_collapsed"} == {"norm_collapsed"}
    passed = said(norms, max_norm=200.0)
    assert passed.clipping.verdict == "too_loose"
    assert passed.clipping.advice.startswith("1 of 1 spike passed")
    assert codes(passed) & {"clipping_too_loose", "spikes_passed", "norm_collapsed"} == {"norm_collapsed"}
    long_after = diagnose(
        steps(norms[500:], step=np.arange(50_500, 50_800)),
        None,
        long_range(np.concatenate([usual_norms(50_500), norms[500:]]), largest_norm=300.0),
    )
    assert codes(long_after) & {"clipping_too_loose", "spikes_passed", "norm_collapsed"} == {"norm_collapsed"}


def test_norms_that_exploded_long_ago_are_told_by_the_loss() -> None:
    norms = np.concatenate([usual_norms(1200), usual_norms(1800, median=300.0)])
    noise = 0.05 * np.random.default_rng(0).normal(size=3000)
    worse, better = (np.where(np.arange(3000) < 1200, 1.0, since) + noise for since in (6.0, 0.5))
    answer = said(norms, loss=worse, max_norm=1.2)
    found = finding(answer, "norm_exploding")
    assert found is not None
    assert (found.severity, found.first_step) == ("critical", 1200)
    assert "Do not raise max_norm" in answer.clipping.advice
    answer = said(norms, loss=better, max_norm=1.2)
    assert "norm_exploding" not in codes(answer)
    assert "Look at the loss first" in answer.clipping.advice


def test_equal_norms_of_steps_without_signal_are_not_stale() -> None:
    norms = usual_norms(600, median=0.3)
    norms[np.random.default_rng(0).random(600) < 0.6] = 1e-5
    assert "norm_stale" not in codes(said(norms, max_norm=1.0))


def test_a_model_without_any_error_left_has_not_collapsed() -> None:
    norms = np.concatenate([usual_norms(300), np.zeros(150)])
    for loss, is_found in ((0.0, False), (0.7, True)):
        answer = said(norms, loss=np.where(np.arange(450) < 300, 1.0, loss))
        assert ("norm_collapsed" in codes(answer)) == is_found


def test_an_explosion_is_not_answered_by_a_tighter_threshold_where_there_is_one() -> None:
    for max_norm, is_said in ((1.5, False), (None, True)):
        found = finding(said(ending_in(20.0), loss=np.linspace(1, 2, 1000), max_norm=max_norm), "norm_exploding")
        assert found is not None
        assert ("or clip at about the usual norm" in found.advice) == is_said


def growing(num_steps: int, num_growing: int, factor: float) -> Floats:
    """Usual norms of which the newest grow by a factor a step."""
    norms = usual_norms(num_steps, median=0.4)
    norms[-num_growing:] *= factor ** np.arange(1.0, num_growing + 1)
    return norms


@pytest.mark.parametrize("num_steps", [300, 1000, 3000, 20_000])
@pytest.mark.parametrize(("num_growing", "factor"), [(30, 2.0), (60, 1.41), (60, 1.3)])
def test_norms_that_are_just_exploding_are_not_waited_for(num_steps: int, num_growing: int, factor: float) -> None:
    norms = growing(num_steps, num_growing, factor)
    loss = np.full(num_steps, 1.5)
    loss[-num_growing:] = np.linspace(1.5, 19, num_growing)
    for columns in ({"max_norm": 1.0}, {}, {"loss": None, "max_norm": 1.0}):
        answer = said(norms, **({"loss": loss} | columns))
        found = finding(answer, "norm_exploding")
        assert found is not None, columns
        assert found.severity == "critical"
        assert found.first_step is not None
        assert num_steps - num_growing < found.first_step < num_steps - num_growing + 20
        assert "no_signal_steps" not in codes(answer), "the last normal norms are small beside what follows, no more"


def test_a_burst_that_is_over_or_comes_with_a_better_loss_is_no_explosion() -> None:
    norms = growing(3000, 30, 2.0)
    assert "norm_exploding" not in codes(said(norms, loss=np.linspace(3, 1, 3000), max_norm=1.0))
    norms[-5:] = 0.4
    assert "norm_exploding" not in codes(said(norms, loss=np.full(3000, 1.5), max_norm=1.0))
