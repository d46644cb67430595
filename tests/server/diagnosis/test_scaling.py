"""The verdict on the loss scale, on both sides of each border."""

from typing import Any

import numpy as np
import pytest

from gradsight_server.diagnosis import Context, Diagnosis, RangeFacts, diagnose
from tests.server.diagnosis.kit import codes, context, finding, long_range, said, steps, usual_norms

DYNAMIC = "dynamic(init_scale=65536.0, growth_interval=100)"


def scaled(
    skipped: list[bool],
    *,
    init_scale: float = 65536.0,
    growth_interval: int = 100,
    about: Context | None = None,
    kind: float = np.inf,
    **columns: Any,
) -> Diagnosis:
    """A run whose scaler skips these steps and moves its scale as torch's does."""
    scale, clean, scales = init_scale, 0, []
    for skip in skipped:
        scales.append(scale)
        clean = 0 if skip else clean + 1
        if skip:
            scale *= 0.5
        elif clean == growth_interval:
            scale, clean = 2 * scale, 0
    norms = np.where(skipped, kind, usual_norms(len(skipped)))
    record = context(precision="fp16", scaler=f"dynamic(init_scale={init_scale}, growth_interval={growth_interval})")
    return said(norms, loss_scale=scales, skipped=skipped, max_norm=1.5, about=about or record, **columns)


def skips(num_steps: int, *places: int | range) -> list[bool]:
    flags = np.zeros(num_steps, dtype=bool)
    for place in places:
        flags[place] = True
    return flags.tolist()


def test_without_scaling_there_is_nothing_to_judge() -> None:
    assert said(usual_norms(), about=context(precision="fp32", scaler=None)).loss_scaling.verdict == "not_used"
    assert said(usual_norms(), about=context(precision="bf16")).loss_scaling.verdict == "not_used"
    assert said(usual_norms()).loss_scaling.verdict == "unknown"
    assert said(usual_norms(), loss_scale=1.0).loss_scaling.verdict == "not_used"


@pytest.mark.parametrize("num_skips", [4, 17])
def test_the_first_burst_is_warm_up_however_long_from_a_high_scale(num_skips: int) -> None:
    answer = scaled(skips(60, range(num_skips)), init_scale=2.0**32, growth_interval=2000)
    assert (answer.loss_scaling.verdict, answer.loss_scaling.severity) == ("warming_up", "info")
    assert answer.severity == "info"
    later = scaled(skips(400, range(num_skips)), init_scale=2.0**32, growth_interval=2000)
    assert (later.loss_scaling.verdict, later.loss_scaling.severity) == ("healthy", "ok")
    assert "loss_scale_found" in codes(later)


def test_the_first_burst_may_not_go_on_below_1024_for_eight_skips() -> None:
    # 65536 is below 1024 at the 8th skip (at 512): seven skips there are still a search, eight are not.
    assert scaled(skips(60, range(14)), growth_interval=2000).loss_scaling.verdict == "warming_up"
    answer = scaled(skips(60, range(15)), growth_interval=2000)
    assert answer.loss_scaling.verdict == "collapsed"
    spaced = scaled(skips(60, *range(0, 45, 3)), growth_interval=2000)
    assert (spaced.loss_scaling.verdict, spaced.loss_scaling.severity) == ("collapsing", "warning")


def test_a_sawtooth_is_healthy() -> None:
    flags = skips(1500, range(3), *range(203, 1500, 101))
    answer = scaled(flags)
    assert (answer.loss_scaling.verdict, answer.severity) == ("healthy", "info")
    assert answer.loss_scaling.num_skipped == sum(flags)


@pytest.mark.parametrize(("hysteresis", "verdict"), [(2, "healthy"), (3, "thrashing")])
def test_two_skips_in_a_growth_interval_are_healthy_and_three_are_not(hysteresis: int, verdict: str) -> None:
    scale, flags = [], []
    for _ in range(10):  # 100 steps until it doubles, then so many skips until it halves
        scale += [1024.0] * 100 + [2048.0] * hysteresis
        flags += [False] * 100 + [True] * hysteresis
    answer = said(
        usual_norms(len(scale)), loss_scale=scale, skipped=flags, about=context(scaler=DYNAMIC, precision="fp16")
    )
    assert answer.loss_scaling.verdict == verdict


@pytest.mark.parametrize(("num_skips", "verdict"), [(25, "healthy"), (26, "thrashing")])
def test_where_the_interval_is_unknown_the_border_is_a_rate(num_skips: int, verdict: str) -> None:
    flags = skips(1000, *np.linspace(110, 998, num_skips).astype(int).tolist())
    scale = np.where(np.arange(1000) % 2, 4096.0, 2048.0)
    answer = said(usual_norms(), loss_scale=scale, skipped=flags, about=context(precision="fp16"))
    assert answer.loss_scaling.verdict == verdict


@pytest.mark.parametrize(
    ("streak", "verdict", "severity"),
    [(4, "healthy", "ok"), (5, "thrashing", "warning"), (9, "thrashing", "warning"), (10, "collapsed", "critical")],
)
def test_skips_in_a_row_after_the_first_burst(streak: int, verdict: str, severity: str) -> None:
    flags = skips(900, range(400, 400 + streak))
    answer = scaled(flags, init_scale=2.0**30, growth_interval=20)
    assert (answer.loss_scaling.verdict, answer.loss_scaling.severity) == (verdict, severity)


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "healthy"), (0.5, "collapsed")])
def test_a_scale_below_one_is_a_collapse(scale: float, verdict: str) -> None:
    scales = np.concatenate([np.full(150, 2.0), np.full(250, scale)])
    answer = said(usual_norms(400), loss_scale=scales, skipped=skips(400, 149), about=context(scaler=DYNAMIC))
    assert answer.loss_scaling.verdict == verdict


def test_new_lows_within_a_hundred_steps_are_a_fall() -> None:
    assert scaled(skips(300, 220, 235, 250), growth_interval=2000).loss_scaling.verdict == "healthy"
    answer = scaled(skips(300, 220, 235, 250, 265, 280), growth_interval=2000)
    assert (answer.loss_scaling.verdict, answer.loss_scaling.severity) == ("collapsing", "warning")


def test_a_slow_fall_is_seen_quarter_by_quarter() -> None:
    answer = scaled(skips(2000, *range(250, 2000, 250)), growth_interval=5000)
    assert answer.loss_scaling.verdict == "collapsing"


def test_nan_that_persists_while_the_scale_falls_is_the_models() -> None:
    flags = skips(400, range(388, 400))
    assert scaled(flags, kind=np.nan).loss_scaling.verdict == "model_nan"
    assert scaled(flags, kind=np.inf).loss_scaling.verdict == "collapsed"


def test_a_loss_that_is_nan_is_the_models_from_the_first_steps_on() -> None:
    loss = np.where(np.arange(30) < 25, 1.0, np.nan)
    answer = scaled(skips(30, range(25, 30)), kind=np.nan, loss=loss)
    assert (answer.loss_scaling.verdict, answer.loss_scaling.severity) == ("model_nan", "critical")
    assert "set_detect_anomaly" in answer.loss_scaling.advice
    assert "several times slower" in answer.loss_scaling.advice


def test_a_fixed_scale_is_judged_by_its_overflows() -> None:
    about = context(precision="fp16", scaler="static(1024.0)")
    calm = said(usual_norms(), loss_scale=1024.0, skipped=skips(1000, 500), about=about)
    assert (calm.loss_scaling.verdict, calm.loss_scaling.severity) == ("static", "ok")
    high = said(usual_norms(), loss_scale=1024.0, skipped=skips(1000, *range(100, 1000, 20)), about=about)
    assert (high.loss_scaling.verdict, high.loss_scaling.severity) == ("static", "warning")
    assert "Divide the scale by 16" in high.loss_scaling.advice


@pytest.mark.parametrize(
    ("scale", "num_steps", "verdict"),
    [(12.0, 500, "static"), (1024.0, 500, "static"), (65536.0, 500, "healthy"), (65536.0, 4001, "static")],
)
def test_a_scale_that_never_moves_and_nobody_explains(scale: float, num_steps: int, verdict: str) -> None:
    assert said(usual_norms(num_steps), loss_scale=scale).loss_scaling.verdict == verdict


def test_a_scale_that_has_grown_unseen_is_no_new_search() -> None:
    scale = np.concatenate([[65536.0, 65536.0, 32768.0, 4096.0], np.full(996, 2048.0)])
    scale[990:] = 32768.0  # the log names the scale only where it overflows
    flags = skips(1000, range(3), range(990, 992))
    assert said(usual_norms(), loss_scale=scale, skipped=flags).loss_scaling.verdict == "healthy"


def test_a_scale_that_does_not_grow_in_two_intervals_is_mentioned() -> None:
    about = context(precision="fp16", scaler=DYNAMIC)
    for num_steps, is_said in ((200, False), (202, True)):
        answer = said(usual_norms(num_steps), loss_scale=1024.0, skipped=skips(num_steps), about=about)
        assert ("loss_scale_never_grows" in codes(answer)) == is_said
        assert answer.severity in ("ok", "info")


@pytest.mark.parametrize(("after", "last"), [([1024.0, 512.0], 512.0), ([1024.0, None], 1024.0), (None, 1024.0)])
def test_the_scale_at_the_end_is_the_one_the_next_step_begins_with(
    after: list[float | None] | None, last: float
) -> None:
    rows = None if after is None else [*[1024.0] * 98, *after]
    found = said(usual_norms(100), loss_scale=1024.0, loss_scale_after=rows, skipped=skips(100, 99)).loss_scaling
    assert (found.last_scale, found.min_scale) == (last, last)


def test_bf16_with_a_scaler_is_told_that_it_needs_none() -> None:
    answer = said(usual_norms(), loss_scale=65536.0, about=context(precision="bf16"))
    assert answer.loss_scaling.verdict == "not_used"
    found = finding(answer, "loss_scale_under_bf16")
    assert found is not None
    assert found.severity == "info"
    always_one = said(usual_norms(), loss_scale=1.0, about=context(precision="bf16"))
    assert "loss_scale_under_bf16" not in codes(always_one)


@pytest.mark.parametrize("placeholder", [-1.0, 0.0])
def test_a_placeholder_is_no_scale(placeholder: float) -> None:
    answer = said(usual_norms(), loss_scale=placeholder)
    assert (answer.loss_scaling.verdict, answer.loss_scaling.last_scale) == ("unknown", None)
    assert "loss_scale_not_recorded" in codes(answer)


def test_a_mean_of_scales_that_is_no_power_of_two_is_no_fault() -> None:
    scale = np.tile([8646.06, 8192.0, 8704.7, 8200.5], 100)
    assert said(usual_norms(400), loss_scale=scale).severity in ("ok", "info")


def test_skips_are_seen_from_the_scale_where_they_are_not_recorded() -> None:
    scale = np.repeat([65536.0, 32768.0, 16384.0], 100)
    answer = said(usual_norms(300), loss_scale=scale)
    assert answer.loss_scaling.num_skipped == 2


@pytest.mark.parametrize("spacing", [100, 1000, 3000])
def test_a_sawtooth_seen_from_afar_is_counted_against_all_steps(spacing: int) -> None:
    scale = np.where(np.random.default_rng(0).random(300) < 0.5, 32768.0, 65536.0)
    norms = usual_norms(300)
    answer = said(norms, loss_scale=scale, step=np.arange(1, 301) * spacing)
    assert (answer.loss_scaling.verdict, answer.severity) == ("healthy", "info")
    num_skipped = int(np.count_nonzero(np.diff(scale) < 0))
    assert answer.loss_scaling.num_skipped == num_skipped
    assert answer.loss_scaling.skip_rate == pytest.approx(num_skipped / (300 * spacing))
    assert f"as far as its falls tell, {num_skipped} of {300 * spacing:,} steps" in answer.loss_scaling.advice
    assert "loss_scale_found" not in codes(answer)
    assert said(norms, loss_scale=scale).loss_scaling.verdict == "thrashing"


def test_falls_between_rows_that_lie_apart_are_no_streak() -> None:
    scale = np.concatenate([np.full(200, 2.0**24), 2.0 ** np.arange(23, 3, -1), np.full(5, 16.0)])
    lines = np.repeat(np.arange(225) * 50, 2)
    lines[1::2] += 1  # other lines, which say nothing of the scale
    told = [value for one in scale for value in (None, one)]
    for step, scales in ((np.arange(225) * 50, scale), (lines, told)):
        answer = said(usual_norms(len(step)), step=step, loss_scale=scales)
        assert (answer.loss_scaling.verdict, answer.severity) == ("collapsing", "warning")
        assert "in a row" not in answer.loss_scaling.advice
    assert said(usual_norms(225), loss_scale=scale).loss_scaling.verdict == "collapsed"


def test_overflows_that_rows_tell_of_themselves_are_counted_against_rows() -> None:
    overflows = np.arange(300) % 20 == 10
    scale = np.where(np.arange(300) % 2, 32768.0, 65536.0)
    norms = np.where(overflows, np.inf, usual_norms(300))
    answer = said(norms, loss_scale=scale, step=np.arange(300) * 1000)
    assert answer.loss_scaling.verdict == "thrashing"
    assert "15 of the last 299 steps (5 %) were skipped" in answer.loss_scaling.advice


def test_a_resume_without_the_scalers_state_searches_again() -> None:
    scale = np.concatenate([np.full(300, 4096.0), 2.0 ** np.arange(24, 12, -1), np.full(200, 4096.0)])
    flags = skips(512, range(300, 312))
    answer = said(usual_norms(512), loss_scale=scale, skipped=flags, about=context(scaler=DYNAMIC, precision="fp16"))
    assert answer.severity in ("ok", "info")


def test_counts_of_a_long_range_come_from_its_facts() -> None:
    facts = RangeFacts(
        first_step=0,
        last_step=999_999,
        num_steps=1_000_000,
        num_finite=999_500,
        num_nonfinite=500,
        num_skipped=500,
        num_clipped=0,
        smallest_scale=128.0,
    )
    rows = steps(usual_norms(300), loss_scale=1024.0, skipped=skips(300), step=np.arange(999_700, 1_000_000))
    answer = diagnose(rows, context(scaler=DYNAMIC, precision="fp16"), facts)
    assert (answer.loss_scaling.num_skipped, answer.loss_scaling.skip_rate) == (500, 5e-4)
    assert answer.loss_scaling.min_scale == 128.0
    assert answer.nonfinite.num_steps == 500


def test_most_scaled_gradients_underflowing_is_mentioned() -> None:
    assert "gradients_underflow" in codes(said(usual_norms(), underflow_fraction=0.6))
    assert "gradients_underflow" not in codes(said(usual_norms(), underflow_fraction=0.4))


def test_a_fixed_scale_searches_for_nothing() -> None:
    flags = (np.random.default_rng(0).random(500) < 0.15).tolist()
    answer = said(
        usual_norms(500), loss_scale=2.0**20, skipped=flags, about=context(precision="fp16", scaler="static(1048576.0)")
    )
    assert (answer.loss_scaling.verdict, answer.loss_scaling.severity) == ("static", "warning")
    assert "loss_scale_found" not in codes(answer)


def test_skipped_steps_without_a_scale_search_for_nothing() -> None:
    norms = np.where(np.random.default_rng(0).random(500) < 0.2, np.nan, usual_norms(500))
    assert "loss_scale_found" not in codes(said(norms, skipped=np.isnan(norms)))


@pytest.mark.parametrize(("num_skips", "is_found"), [(12, True), (13, False)])
def test_a_search_lowers_the_scale_with_every_skip_or_two(num_skips: int, is_found: bool) -> None:
    # Four halvings, so twelve skips with some to spare: one more, and the scale does not help.
    scale = np.full(600, 4096.0)
    scale[:4] = [65536.0, 32768.0, 16384.0, 8192.0]
    answer = said(usual_norms(600), loss_scale=scale, skipped=skips(600, range(num_skips)))
    assert ("loss_scale_found" in codes(answer)) == is_found
    assert answer.loss_scaling.verdict == ("healthy" if is_found else "collapsed")


@pytest.mark.parametrize(("num_stuck", "verdict"), [(4, "healthy"), (5, "collapsed")])
def test_a_scale_at_its_floor_is_seen_within_five_steps(num_stuck: int, verdict: str) -> None:
    scale = np.concatenate([np.full(200, 2.0), np.full(num_stuck, 1.0)])
    flags = skips(200 + num_stuck, range(199, 200 + num_stuck))
    if num_stuck == 4:
        flags[199] = False  # four in a row altogether
    answer = said(
        np.where(flags, np.inf, usual_norms(len(flags))),
        loss_scale=scale,
        skipped=flags,
        about=context(precision="fp16", scaler="dynamic(init_scale=2.0, growth_interval=2000)"),
    )
    assert answer.loss_scaling.verdict == verdict
    assert ("falls no more" in answer.loss_scaling.advice) == (verdict == "collapsed")


@pytest.mark.parametrize(("num_steps", "verdict"), [(7, "warming_up"), (8, "model_nan")])
def test_pure_nan_from_the_first_step_on_is_seen_within_ten(num_steps: int, verdict: str) -> None:
    scale = 65536.0 * 0.5 ** np.arange(num_steps)
    columns: dict[str, Any] = {"loss": [65.1] * num_steps, "loss_scale": scale, "skipped": [True] * num_steps}
    answer = said(np.full(num_steps, np.nan), nonfinite_kind=["nan"] * num_steps, **columns)
    assert answer.loss_scaling.verdict == verdict
    overflow = said(np.full(num_steps, np.nan), nonfinite_kind=["nan+inf"] * num_steps, **columns)
    assert overflow.loss_scaling.verdict == "warming_up"


def test_counts_in_the_words_are_of_the_whole_run_and_rates_of_what_was_judged() -> None:
    facts = long_range(num_steps=12_480, num_skipped=4)
    rows = steps(usual_norms(5000), loss_scale=1024.0, skipped=skips(5000, 10, 2500), step=np.arange(7_480, 12_480))
    answer = diagnose(rows, context(scaler=DYNAMIC, precision="fp16"), facts)
    assert "4 of 12,480 steps were skipped" in answer.loss_scaling.advice
    scale = np.where(np.arange(1500) % 2, 4096.0, 2048.0)
    thrashing = said(
        usual_norms(1500),
        loss_scale=scale,
        skipped=skips(1500, *range(300, 1500, 30)),
        about=context(precision="fp16", scaler="dynamic(growth_interval=100)"),
    )
    assert "40 of the last 1,500 steps (2.7 %) were skipped." in thrashing.loss_scaling.advice
    assert "in a row" not in thrashing.loss_scaling.advice


def test_that_the_scale_was_found_is_no_news_where_the_run_is_lost() -> None:
    found = range(17)
    assert "loss_scale_found" in codes(scaled(skips(400, found), init_scale=2.0**32, growth_interval=2000))
    for lost in (range(389, 400), range(320, 395, 15)):
        answer = scaled(skips(400, found, *lost), init_scale=2.0**32, growth_interval=2000)
        assert answer.loss_scaling.verdict in ("collapsed", "collapsing")
        assert "loss_scale_found" not in codes(answer)
    dead = scaled(
        skips(400, found), loss=np.where(np.arange(400) < 390, 1.0, np.nan), init_scale=2.0**32, growth_interval=2000
    )
    assert dead.loss_scaling.verdict == "model_nan"
    assert "loss_scale_found" not in codes(dead)
