"""What the rules open, repeat, fold and resolve, step by step."""

from typing import Any

import pytest

from gradsight_server.alerts.rules import DEFAULTS
from tests.server.alerts.kit import FP16, FP32, NAN, Stream, Told, columns_of, with_rule

INF = float("inf")


def test_three_nonfinite_steps_of_twenty_open_one_alert_that_resolves_by_itself() -> None:
    stream = Stream(FP32)
    stream.send([1.0] * 10)
    assert stream.send([NAN, 1.0, NAN]) == []
    assert stream.send([1.0, INF]) == [Told("nonfinite_burst", "opened", 14)]
    assert (stream.alerts[1]["first_step"], stream.alerts[1]["last_step"]) == (10, 14)
    assert stream.send([1.0] * 30) == [Told("nonfinite_burst", "resolved", 30)]
    assert stream.open == []


def test_the_alert_names_the_layer_and_counts_on_while_it_lasts() -> None:
    stream = Stream(FP32)
    stream.send([1.0] * 5 + [NAN] * 3, first_layer=[None] * 5 + ["blocks.3.weight"] * 3)
    assert stream.alerts[1]["title"] == "NaN or Inf in 3 steps, first in blocks.3.weight"
    stream.send([NAN] * 4)
    assert (stream.alerts[1]["value"], stream.alerts[1]["evidence"]["num_steps"]) == (7, 7)
    assert stream.alerts[1]["last_step"] == 11
    assert stream.told == [Told("nonfinite_burst", "opened", 7)]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_how_steps_are_cut_into_batches_changes_nothing(size: int) -> None:
    norms = [1.0] * 300 + [NAN] * 30 + [1.0] * 100 + [50.0] + [1.0] * 60 + [NAN] * 4 + [1.0] * 60
    skipped = [norm != norm for norm in norms]
    whole, cut = Stream(FP32), Stream(FP32)
    whole.send(norms, skipped=skipped)
    for first in range(0, len(norms), size):
        cut.send(norms[first : first + size], skipped=skipped[first : first + size])
    assert cut.told == whole.told
    assert cut.alerts == whole.alerts
    assert cut.state.conditions == whole.state.conditions


def test_what_is_sent_again_or_late_is_not_judged_twice() -> None:
    stream = Stream(FP32)
    batch = columns_of(range(10), [1.0] * 8 + [NAN] * 2)
    stream.take(batch)
    assert stream.take(batch) == []
    assert stream.take(columns_of(range(5, 10), [NAN] * 5)) == []
    assert stream.take(columns_of([12, 10, 11], [1.0, NAN, 1.0])) == [Told("nonfinite_burst", "opened", 10)]


def test_a_burst_of_skipped_steps_is_one_alert_not_three() -> None:
    stream = Stream(FP16)
    stream.send([1.0] * 150, scale=[65536.0] * 150)
    scales = [65536.0 / 2**i for i in range(8)]
    stream.send([NAN] * 8, skipped=[True] * 8, skip_reason=["overflow"] * 8, scale=scales)
    assert stream.told == [Told("nonfinite_burst", "opened", 152)]
    assert sorted(stream.alerts[1]["folded"]) == ["scale_falling", "skip_streak"]
    stream.send([1.0] * 300, scale=[256.0] * 300)
    assert stream.told[1:] == [Told("nonfinite_burst", "resolved", 175)]


def test_a_dead_run_takes_the_burst_it_began_with_over() -> None:
    stream = Stream(FP32)
    stream.send([1.0] * 10 + [NAN] * 25)
    assert stream.told == [
        Told("nonfinite_burst", "opened", 12),
        Told("dead_run", "opened", 29),
        Told("nonfinite_burst", "resolved", 29),
    ]
    assert stream.alerts[1]["folded_into"] == 2
    assert stream.alerts[2]["folded"] == ["nonfinite_burst"]
    assert stream.alerts[2]["first_step"] == 10
    stream.send([1.0] * 10)
    assert stream.told[3:] == [Told("dead_run", "resolved", 39)]


def test_within_the_cool_down_the_same_again_is_counted_and_not_told() -> None:
    stream = Stream(FP32)
    burst = [NAN] * 3 + [1.0] * 30
    stream.send(burst)
    stream.now_s += 60
    stream.send(burst)
    assert [found.change for found in stream.news] == ["opened", "resolved", "repeated", "resolved"]
    assert (stream.alerts[1]["num_repeats"], len(stream.alerts)) == (1, 1)
    stream.now_s += DEFAULTS["nonfinite_burst"].cool_down_s
    assert stream.send(burst)[0] == Told("nonfinite_burst", "opened", 68)
    assert len(stream.alerts) == 2


def test_an_alert_still_open_after_the_cool_down_is_told_again_when_it_repeats() -> None:
    stream = Stream(FP32)
    stream.send([1.0] * 60)
    stream.send([30.0])
    stream.now_s += DEFAULTS["norm_spike"].cool_down_s + 1
    assert stream.send([1.0, 30.0]) == [Told("norm_spike", "reminded", 62)]
    assert stream.send([1.0, 30.0]) == [Told("norm_spike", "repeated", 64)]


# Loss scaling's routine


def test_the_search_for_the_loss_scale_raises_nothing() -> None:
    stream = Stream(FP16)
    scales = [65536.0 / 2**i for i in range(9)]
    stream.send([INF] * 9, skipped=[True] * 9, skip_reason=["overflow"] * 9, scale=scales)
    stream.send([1.0] * 200, scale=[128.0] * 200)
    assert stream.told == []


def test_nan_after_twenty_good_steps_is_no_search_any_more() -> None:
    stream = Stream(FP16)
    stream.send([INF] * 4, skipped=[True] * 4, scale=[65536.0, 32768.0, 16384.0, 8192.0])
    stream.send([1.0] * 20, skipped=[False] * 20, scale=[4096.0] * 20)
    assert stream.send([NAN] * 3, skipped=[True] * 3, scale=[4096.0, 2048.0, 1024.0]) == [
        Told("nonfinite_burst", "opened", 26)
    ]


def test_a_search_from_two_to_the_32_raises_nothing_either() -> None:
    record = {"precision": "fp16", "scaler": "dynamic(init_scale=4294967296.0, growth_interval=1000, hysteresis=2)"}
    stream = Stream(record)
    scales = [2.0**32] * 2 + [2.0 ** (32 - i) for i in range(1, 20)]
    stream.send([INF] * 21, skipped=[True] * 21, scale=scales)
    stream.send([1.0] * 200, scale=[2.0**12] * 200)
    assert stream.told == []


def test_a_search_that_goes_on_below_any_useful_scale_is_a_burst() -> None:
    stream = Stream(FP16)
    scales = [65536.0 / 2**i for i in range(40)]
    stream.send([NAN] * 40, skipped=[True] * 40, scale=scales)
    assert [found.kind for found in stream.told][:1] == ["nonfinite_burst"]
    assert "dead_run" in [found.kind for found in stream.told]
    assert stream.open == ["dead_run"]


def test_a_loss_that_is_nan_is_no_search() -> None:
    stream = Stream(FP16)
    stream.send([NAN] * 4, loss=[NAN] * 4, skipped=[True] * 4, scale=[65536.0, 32768.0, 16384.0, 8192.0])
    assert stream.told == [Told("nonfinite_burst", "opened", 2)]
    assert stream.alerts[1]["folded"] == ["loss_nonfinite"]


def test_the_sawtooth_of_a_healthy_scale_raises_nothing() -> None:
    for interval, hysteresis in ((2000, 1), (1000, 2), (20, 1), (5, 1)):
        record = {"precision": "fp16", "scaler": f"dynamic(init_scale=65536.0, growth_interval={interval})"}
        stream = Stream(record)
        norms, skipped, scales = [], [], []
        for _ in range(12000 // interval):
            norms += [1.0] * interval + [INF] * hysteresis
            skipped += [False] * interval + [True] * hysteresis
            scales += [1024.0] * interval + [2048.0] * hysteresis
        stream.send(norms, skipped=skipped, scale=scales)
        assert stream.told == [], (interval, hysteresis)


def test_a_scale_set_anew_in_mid_run_searches_again() -> None:
    stream = Stream(FP16)
    stream.send([1.0] * 200, scale=[512.0] * 200)
    scales = [65536.0 / 2**i for i in range(6)]
    stream.send([INF] * 6, skipped=[True] * 6, scale=scales)
    stream.send([1.0] * 10, scale=[1024.0] * 10)
    assert stream.told == []


def test_skips_without_a_loss_scale_are_no_search() -> None:
    stream = Stream({"precision": "bf16", "scaler": None})
    stream.send([NAN] * 3, skipped=[True] * 3, skip_reason=["nonfinite"] * 3)
    assert stream.told == [Told("nonfinite_burst", "opened", 2)]


def test_steps_that_the_user_skips_or_that_have_no_gradient_are_no_streak() -> None:
    stream = Stream(FP32)
    stream.send([None] * 30, skipped=[True] * 30, skip_reason=["no_gradient", "user"] * 15)
    assert stream.told == []


# The other rules


def test_a_loss_alone_that_is_not_finite_is_told_of_as_such() -> None:
    stream = Stream(FP32)
    stream.send(loss=[1.0, NAN, INF, NAN])
    assert stream.told == [Told("loss_nonfinite", "opened", 3)]
    stream.send(loss=[NAN] * 18)
    assert stream.open == ["dead_run"]


def test_skips_whose_norm_nobody_recorded_are_a_streak() -> None:
    stream = Stream(FP32)
    stream.send([1.0] * 10 + [None] * 5, skipped=[False] * 10 + [True] * 5)
    assert stream.told == [Told("skip_streak", "opened", 14)]
    stream.send([1.0] * 25, skipped=[False] * 25)
    assert stream.told[1:] == [Told("skip_streak", "resolved", 34)]


def test_a_tenth_of_the_steps_skipped_is_a_rate_and_the_burst_before_it_is_not() -> None:
    stream = Stream(FP32)
    for _ in range(25):
        stream.send([1.0] * 8 + [None], skipped=[False] * 8 + [True])
    assert [found[:2] for found in stream.told] == [("skip_rate", "opened")]
    bursting = Stream(FP32)
    bursting.send([NAN] * 30, skipped=[True] * 30)
    bursting.send([1.0] * 300, skipped=[False] * 300)
    assert "skip_rate" not in {found.kind for found in bursting.told}


def test_a_scale_below_one_is_told_of_and_resolves_above() -> None:
    stream = Stream(FP16)
    stream.send([1.0] * 150, scale=[4.0] * 150)
    assert stream.send([1.0, 1.0], scale=[2.0, 0.5]) == [Told("scale_below_one", "opened", 151)]
    assert stream.send([1.0] * 50, scale=[1.0] * 50) == [Told("scale_below_one", "resolved", 171)]


def test_the_scale_that_lasting_nan_drives_below_one_is_no_alert_of_its_own() -> None:
    stream = Stream(FP16)
    stream.send([1.0] * 150, scale=[1024.0] * 150)
    scales = [1024.0 / 2**i for i in range(25)]
    stream.send([NAN] * 25, loss=[NAN] * 25, skipped=[True] * 25, scale=scales)
    assert [found.kind for found in stream.told if found.change == "opened"] == ["nonfinite_burst", "dead_run"]
    assert "scale_below_one" in stream.alerts[1]["folded"]


def test_a_scale_that_stays_below_one_when_the_nan_is_over_is_told_of_then() -> None:
    stream = Stream(FP16)
    stream.send([1.0] * 150, scale=[2.0] * 150)
    stream.send([NAN] * 4, skipped=[True] * 4, scale=[2.0, 1.0, 0.5, 0.25])
    assert stream.told == [Told("nonfinite_burst", "opened", 152)]
    stream.send([1.0] * 100, skipped=[False] * 100, scale=[0.125] * 100)
    assert stream.told[1:] == [Told("nonfinite_burst", "resolved", 171), Told("scale_below_one", "opened", 171)]
    assert stream.send([1.0] * 30, skipped=[False] * 30, scale=[1.0] * 30) == [Told("scale_below_one", "resolved", 273)]


def test_a_scale_of_zero_or_minus_one_is_a_placeholder() -> None:
    stream = Stream()
    stream.send([1.0] * 100, scale=[-1.0] * 50 + [0.0] * 50)
    assert stream.told == []


def test_four_halvings_in_a_hundred_steps_are_a_fall() -> None:
    stream = Stream(FP16)
    stream.send([1.0] * 150, scale=[65536.0] * 150)
    for halvings in range(1, 5):
        stream.send([1.0] * 20, scale=[65536.0 / 2**halvings] * 20)
    assert stream.told == [Told("scale_falling", "opened", 210)]
    assert stream.alerts[1]["evidence"]["ratio"] == 16
    slow = Stream(FP16)
    for halvings in range(5):
        slow.send([1.0] * 60, scale=[65536.0 / 2**halvings] * 60)
    assert slow.told == []


def test_a_norm_ten_times_the_usual_is_a_spike_unless_norms_vary_as_much() -> None:
    steady, wild = Stream(FP32), Stream(FP32)
    steady.send([1.0, 1.1, 0.9, 1.2] * 50 + [11.5])
    assert steady.told == [Told("norm_spike", "opened", 200)]
    assert steady.alerts[1]["evidence"]["ratio"] == pytest.approx(11.5 / 1.1, rel=0.1)
    wild.send([0.1, 0.3, 1.0, 3.0, 10.0] * 50 + [11.5])
    assert wild.told == []


def test_a_spike_in_the_first_steps_is_none() -> None:
    stream = Stream(FP32)
    stream.send([1.0] * 30 + [100.0] + [1.0] * 10)
    assert stream.told == []


CLIPPED: dict[str, Any] = {
    "precision": "fp32",
    "scaler": None,
    "policy": "global_norm(1.0)",
    "optimizer": {"class": "SGD"},
}
WINDOW = DEFAULTS["over_clipping"].window or 0


def clip(record: dict[str, Any], max_norm: float, norms: list[float]) -> Stream:
    stream = Stream(record)
    stream.send(norms, max_norm=[max_norm] * len(norms))
    return stream


def test_nearly_every_step_clipped_to_less_than_half_is_over_clipping() -> None:
    stream = clip(CLIPPED, 1.0, [5.0, 3.0, 8.0] * WINDOW)
    assert [found[:2] for found in stream.told] == [("over_clipping", "opened")]
    assert stream.alerts[1]["value"] == 1.0
    assert clip(CLIPPED, 1.0, [1.2, 1.1, 1.3] * WINDOW).told == [], "clipped a little"
    assert clip(CLIPPED, 1.0, [5.0, 0.5] * WINDOW).told == [], "every second step"


@pytest.mark.parametrize(
    ("policy", "max_norm"),
    [
        ("global_norm(0.1)", 0.1),
        ("global_norm(max_norm=percentile(q=10))", 1.0),
        ("global_norm(max_norm=zscore(z=2.5))", 1.0),
        ("tensor_adaptive()", 1.0),
        ("unit_norm()", 1.0),
    ],
)
def test_policies_that_clip_by_design_raise_nothing(policy: str, max_norm: float) -> None:
    assert clip(CLIPPED | {"policy": policy}, max_norm, [5.0, 3.0, 8.0] * WINDOW).told == []


def test_a_constant_coefficient_means_nothing_to_adam() -> None:
    adam = CLIPPED | {"optimizer": {"class": "AdamW"}}
    assert clip(adam, 1.0, [5.0, 5.01] * WINDOW).told == []
    assert [found.kind for found in clip(adam, 1.0, [2.0, 9.0, 30.0] * WINDOW).told] == ["over_clipping"]


def test_another_threshold_ends_over_clipping_and_is_judged_by_itself() -> None:
    stream = clip(CLIPPED, 1.0, [5.0, 3.0, 8.0] * WINDOW)
    stream.send([5.0, 3.0, 8.0] * 100, max_norm=[10.0] * 300)
    assert [found.change for found in stream.told] == ["opened", "resolved"]


def test_lost_rows_are_told_of_from_the_hundredth_on() -> None:
    stream = Stream(FP32)
    nothing = columns_of([])
    assert stream.take(columns_of(range(10), [1.0] * 10), num_lost=99) == []
    assert stream.take(nothing, num_lost=150) == [Told("telemetry_loss", "opened", 9)]
    assert stream.take(nothing, num_lost=200) == []
    assert stream.take(nothing, num_lost=400) == [Told("telemetry_loss", "repeated", 9)]
    assert stream.send([1.0] * 250) == [Told("telemetry_loss", "resolved", 259)]


# Rules that were changed


def test_a_disabled_rule_opens_nothing_and_closes_what_it_had_opened() -> None:
    stream = Stream(FP32)
    stream.send([NAN] * 3)
    stream.rules = with_rule("nonfinite_burst", enabled=False)
    assert stream.send([1.0]) == [Told("nonfinite_burst", "resolved", 2)]
    assert stream.send([NAN] * 10) == []


def test_a_sustained_condition_must_hold_for_so_many_steps() -> None:
    stream = Stream(FP16, with_rule("scale_below_one", sustain=10))
    stream.send([1.0] * 150, scale=[4.0] * 150)
    assert stream.send([1.0] * 9 + [1.0], scale=[0.5] * 9 + [2.0]) == []
    assert stream.send([1.0] * 10, scale=[0.5] * 10) == [Told("scale_below_one", "opened", 169)]


def test_a_stricter_rule_takes_its_own_numbers() -> None:
    stream = Stream(FP32, with_rule("nonfinite_burst", threshold=1, window=5, severity="warning"))
    assert stream.send([1.0, NAN]) == [Told("nonfinite_burst", "opened", 1)]
    assert stream.news[0].severity == "warning"
    assert stream.send([1.0] * 5) == [Told("nonfinite_burst", "resolved", 6)]
