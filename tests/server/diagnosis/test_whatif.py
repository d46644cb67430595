"""What another policy would have done to recorded norms."""

import numpy as np
import pytest

from gradsight.policies import parse_policy
from gradsight.thresholds import Threshold
from gradsight_server.diagnosis import Histogram
from gradsight_server.diagnosis.whatif import MAX_REPLAYED, what_if, what_if_from_histogram
from gradsight_server.errors import InvalidRequestError
from tests.server.diagnosis.kit import usual_norms


def test_a_fixed_threshold_is_counted_exactly() -> None:
    norms = usual_norms()
    answer = what_if(norms, "1.1")
    assert answer.policy == "global_norm(1.1)"
    assert answer.num_clipped == np.count_nonzero(norms > 1.1)
    assert answer.clip_fraction == answer.clip_fraction_low == answer.clip_fraction_high == np.mean(norms > 1.1)
    coefs = np.minimum(1, 1.1 / (norms + 1e-6))
    assert answer.mean_clip_coef == pytest.approx(np.mean(coefs))
    assert answer.clip_coef_spread == pytest.approx(np.std(coefs) / np.mean(coefs))
    assert "later norms would have been others" in answer.notes[0]


@pytest.mark.parametrize("policy", ["percentile(q=10)", "zscore(z=2.5)", "ema(factor=1.5)", "cosine(2.0, 0.5, 500)"])
def test_a_moving_threshold_goes_on_as_in_training(policy: str) -> None:
    norms = usual_norms()
    norms[[100, 200]] = np.nan, np.inf
    threshold = getattr(parse_policy(policy), "max_norm")  # noqa: B009  # of all policies only some have one
    assert isinstance(threshold, Threshold)
    thresholds = [threshold(norm) for norm in norms.tolist()]
    expected = np.count_nonzero(np.isfinite(norms) & (norms > thresholds))
    answer = what_if(norms, policy)
    assert answer.num_finite == 998
    assert answer.num_clipped == expected


def test_replaying_twice_gives_the_same() -> None:
    assert what_if(usual_norms(), "percentile()") == what_if(usual_norms(), "percentile()")


def test_spikes_are_told_apart_into_clipped_and_passed() -> None:
    norms = usual_norms()
    norms[[300, 600, 900]] = 15.0, 40.0, 200.0
    answer = what_if(norms, "20.0", step=np.arange(1000) + 5000)
    assert (answer.num_spikes, answer.num_spikes_clipped) == (3, 2)
    assert (answer.spikes_clipped, answer.spikes_passed) == ([5600, 5900], [5300])


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("tensor_norm(1.0)", "tensor_norm needs the gradients themselves"),
        ("unit_norm()", "unit_norm needs the gradients themselves"),
        ('groups("*": 1.0)', "groups needs the gradients themselves"),
        ("value(1.0)", "value needs the gradients themselves"),
        ("-1.0", "must be positive"),
        ("nonsense(", "cannot be read"),
    ],
)
def test_policies_that_norms_cannot_replay_are_refused_with_the_reason(policy: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match="clip") as caught:
        what_if(usual_norms(), policy)
    assert words in str(caught.value)


def test_only_the_newest_norms_are_replayed_for_a_moving_threshold_and_it_says_so() -> None:
    answer = what_if(np.ones(MAX_REPLAYED + 10), "cosine(2.0, 0.5, 500)")
    assert answer.num_steps == MAX_REPLAYED
    assert "newest 200,000 of 200,010" in answer.notes[1]


@pytest.mark.parametrize("norms", [[], [np.nan], [0.0], [1e-308, 1.7e308], [-1.0, 2.0], [1.0] * 60], ids=str)
@pytest.mark.parametrize("policy", ["1.0", "inf", "1e-300", "zscore()", "percentile()", "ema()"])
def test_any_norms_have_an_answer(norms: list[float], policy: str) -> None:
    answer = what_if(np.array(norms, dtype=np.float64), policy)
    numbers = [answer.clip_fraction, answer.mean_clip_coef, answer.clip_coef_spread, answer.last_max_norm]
    assert all(number is None or np.isfinite(number) for number in numbers)


@pytest.mark.parametrize("max_norm", [0.5, 0.9, 1.0, 1.234, 5.0])
def test_a_histogram_gives_bounds_around_the_exact_fraction(max_norm: float) -> None:
    norms = usual_norms()
    edges = np.geomspace(0.1, 10, 80)
    counts, _ = np.histogram(norms, edges)
    answer = what_if_from_histogram(Histogram(edges, counts), str(max_norm))
    exact = what_if(norms, str(max_norm))
    assert answer.clip_fraction_low is not None
    assert answer.clip_fraction_high is not None
    assert exact.clip_fraction is not None
    assert answer.clip_fraction_low <= exact.clip_fraction <= answer.clip_fraction_high
    assert answer.clip_fraction == pytest.approx(exact.clip_fraction, abs=0.03)
    assert answer.mean_clip_coef == pytest.approx(exact.mean_clip_coef, abs=0.02)
    assert answer.median_clip_coef == pytest.approx(exact.median_clip_coef, abs=0.05)


def test_a_histogram_cannot_replay_a_moving_threshold() -> None:
    with pytest.raises(InvalidRequestError, match="a histogram has no order"):
        what_if_from_histogram(Histogram(np.array([0.0, 1.0]), np.array([3])), "zscore()")


def test_an_empty_histogram_has_an_answer() -> None:
    edges = np.array([0.0, 1.0, np.inf])
    assert what_if_from_histogram(Histogram(edges, np.array([0, 0])), "1.0").clip_fraction is None
    assert what_if_from_histogram(Histogram(edges, np.array([1, 3])), "2.0").clip_fraction_high == 0.75


def test_a_threshold_at_the_edge_of_a_bin_is_counted_exactly() -> None:
    # A bin holds what is above its lower edge and not above its upper one: a norm of 2.0 is in the first, unclipped.
    histogram = Histogram(np.array([1.0, 2.0, 4.0]), np.array([3, 1]))
    answer = what_if_from_histogram(histogram, "2.0")
    assert (answer.clip_fraction_low, answer.clip_fraction, answer.clip_fraction_high) == (0.25, 0.25, 0.25)


def test_zeros_in_a_histogram_are_never_clipped() -> None:
    answer = what_if_from_histogram(Histogram(np.array([0.0, 0.5, 1.0, 2.0]), np.array([6, 1, 1])), "0.001")
    assert (answer.clip_fraction_low, answer.clip_fraction, answer.clip_fraction_high) == (0.25, 0.25, 0.25)
