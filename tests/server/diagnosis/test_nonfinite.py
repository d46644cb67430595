"""NaN and Inf: where they begin, whether they are routine, whether the run is dead."""

from typing import Any

import numpy as np
import pytest

from gradsight_server.diagnosis import Context, Diagnosis, LayerNorms, diagnose
from tests.server.diagnosis.kit import codes, context, finding, said, steps, usual_norms

FP32 = context(precision="fp32", scaler=None, policy="global_norm(1.5)")


def with_nan(*places: int | range, num_steps: int = 400, about: Context | None = FP32, **columns: Any) -> Diagnosis:
    norms = usual_norms(num_steps)
    for place in places:
        norms[place] = np.nan
    return said(norms, about=about, **columns)


def test_bursts_have_their_steps_and_their_first_layer() -> None:
    layers = [None] * 400
    layers[300] = "blocks.1.fc1.weight"  # type: ignore[call-overload]
    answer = with_nan(range(300, 305), 306, 350, first_nonfinite_layer=layers)
    first, second = answer.nonfinite.bursts
    assert (first.first_step, first.last_step, first.num_steps) == (300, 306, 6)
    assert (first.first_layer, second.first_layer) == ("blocks.1.fc1.weight", None)
    assert answer.nonfinite.num_steps == 7
    found = finding(answer, "nonfinite_steps")
    assert found is not None
    assert "First seen in blocks.1.fc1.weight" in found.advice
    assert "set_detect_anomaly(True)" in found.advice


def test_the_layer_may_come_from_the_layer_norms() -> None:
    norms = np.ones((400, 3))
    norms[300, 1] = np.inf
    values = usual_norms(400)
    values[300] = np.inf
    rows = LayerNorms(np.arange(400), ("a.weight", "b.weight", "c.weight"), norms)
    assert diagnose(steps(values, layers=rows)).nonfinite.bursts[0].first_layer == "b.weight"


def test_one_nan_in_fp32_is_a_warning_and_under_a_scaler_is_not() -> None:
    guarded = with_nan(300, skipped=np.arange(400) == 300)
    assert guarded.severity == "warning"
    found = finding(guarded, "nonfinite_steps")
    assert found is not None
    assert found.title.endswith("these steps were skipped")
    scale = np.where(np.arange(400) <= 300, 65536.0, 32768.0)
    amp = context(precision="fp16", scaler="dynamic(growth_interval=2000)", policy="global_norm(1.5)")
    assert with_nan(300, loss_scale=scale, skipped=np.arange(400) == 300, about=amp).severity in ("ok", "info")


@pytest.mark.parametrize(("num_nan", "severity"), [(4, "info"), (5, "warning")])
def test_where_nobody_says_what_was_used_one_in_a_hundred_is_routine(num_nan: int, severity: str) -> None:
    answer = with_nan(*range(100, 100 + 40 * num_nan, 40), about=None)
    found = finding(answer, "nonfinite_steps")
    assert found is not None
    assert found.severity == severity


def test_some_nan_at_the_start_are_routine_where_nobody_says_what_was_used() -> None:
    found = finding(with_nan(0, 1, 4, about=None), "nonfinite_steps")
    assert found is not None
    assert found.severity == "info"


def test_ten_newest_nan_steps_are_critical() -> None:
    skipped = np.arange(400) >= 390
    found = finding(with_nan(range(390, 400), skipped=skipped), "nonfinite_steps")
    assert found is not None
    assert found.severity == "critical"
    nine = finding(with_nan(range(391, 400), skipped=skipped), "nonfinite_steps")
    assert nine is not None
    assert nine.severity == "warning"


@pytest.mark.parametrize(("num_nan", "is_dead"), [(4, False), (5, True)])
def test_a_run_whose_later_steps_are_all_nan_is_dead(num_nan: int, is_dead: bool) -> None:
    loss = np.where(np.arange(400) < 400 - num_nan, 1.0, np.nan)
    answer = with_nan(range(400 - num_nan, 400), about=None, loss=loss)
    assert ("run_dead" in codes(answer)) == is_dead


def test_a_run_whose_loss_lives_on_is_not_dead_but_learns_nothing() -> None:
    for num_nan, severity in ((5, "warning"), (10, "critical")):
        answer = with_nan(range(400 - num_nan, 400), about=None)
        assert "run_dead" not in codes(answer)
        found = finding(answer, "nonfinite_steps")
        assert found is not None
        assert (found.severity, found.title.endswith("while the loss is finite")) == (severity, True)
    repeated = with_nan(range(390, 400), about=None, loss=np.minimum(np.arange(400.0), 390.0))
    assert "run_dead" in codes(repeated)


def test_a_search_for_a_loss_scale_that_nobody_recorded_is_not_a_dead_run() -> None:
    for num_steps in (1, 5, 12, 24):
        answer = said(np.full(num_steps, np.nan), loss=np.linspace(11, 10.9, num_steps))
        assert "run_dead" not in codes(answer)
    for num_steps in (30, 100, 300):
        assert with_nan(range(12), num_steps=num_steps, about=None).severity == "info"


def test_two_nan_steps_that_were_applied_suffice() -> None:
    applied = np.zeros(400, dtype=bool)
    answer = with_nan(398, 399, skipped=applied)
    found = finding(answer, "run_dead")
    assert found is not None
    assert (found.severity, found.evidence["first_bad_step"]) == ("critical", 398)
    assert "run_dead" not in codes(with_nan(399, skipped=applied))


def test_a_loss_of_zero_beside_nan_norms_is_not_real() -> None:
    answer = said(np.full(10, np.nan), loss=np.zeros(10))
    found = finding(answer, "run_dead")
    assert found is not None
    assert found.title == "The run is dead since step 0"
    assert "loss of 0.0 is not real" in found.advice


def test_skipped_steps_do_not_kill_a_run_but_stop_it() -> None:
    answer = with_nan(range(380, 400), skipped=np.arange(400) >= 380)
    assert "run_dead" not in codes(answer)
    found = finding(answer, "steps_skipped")
    assert found is not None
    assert found.severity == "critical"


def test_an_applied_nan_is_named_even_if_the_run_lives_on() -> None:
    found = finding(with_nan(200, skipped=np.zeros(400)), "nonfinite_applied")
    assert found is not None
    assert found.severity == "warning"


@pytest.mark.parametrize(("num_skipped", "is_found"), [(40, False), (41, True)])
def test_more_than_a_tenth_of_the_updates_skipped_without_a_scale(num_skipped: int, is_found: bool) -> None:
    places = np.linspace(5, 395, num_skipped).astype(int)
    skipped = np.isin(np.arange(400), places)
    answer = with_nan(*places.tolist(), skipped=skipped)
    assert ("steps_skipped" in codes(answer)) == is_found


def test_a_loss_that_ends_in_nan_is_critical() -> None:
    for num_nan, severity in ((4, "warning"), (5, "critical")):
        loss = np.where(np.arange(400) < 400 - num_nan, 1.0, np.nan)
        found = finding(said(usual_norms(400), loss=loss, about=FP32), "loss_nonfinite")
        assert found is not None
        assert found.severity == severity


def test_steps_without_a_gradient_are_counted() -> None:
    reasons = [None, "no_gradient"] * 200
    norms = [1.0, None] * 200
    answer = said(norms, skip_reason=reasons, skipped=[reason is not None for reason in reasons], about=FP32)
    found = finding(answer, "no_gradient_steps")
    assert found is not None
    assert (found.severity, found.evidence["num_steps"]) == ("info", 200)
    assert answer.range.num_finite == 200
    always = said([None] * 50, skip_reason=["no_gradient"] * 50, skipped=[True] * 50)
    found = finding(always, "no_gradient_steps")
    assert found is not None
    assert found.severity == "warning"


@pytest.mark.parametrize(("first", "severity"), [(0, "info"), (200, "warning")])
def test_several_nan_in_a_row_are_routine_at_the_start_alone(first: int, severity: str) -> None:
    found = finding(with_nan(range(first, first + 4), about=None), "nonfinite_steps")
    assert found is not None
    assert (found.severity, f"first at step {first}, up to 4 in a row" in found.advice) == (severity, True)


def test_a_dead_run_is_not_also_asked_about_its_threshold() -> None:
    answer = with_nan(range(200, 400), about=None, loss=np.where(np.arange(400) < 200, 1.0, 0.0))
    assert codes(answer) == {"run_dead"}


def test_norms_that_are_all_nan_are_not_asked_to_be_recorded() -> None:
    answer = said(np.full(60, np.nan), loss_scale=65536.0 * 0.5 ** np.arange(60), skipped=[True] * 60)
    assert answer.clipping.verdict == "unknown"
    assert answer.clipping.advice.startswith("Every norm so far is NaN or Inf.")
    assert not {code for code in codes(answer) if code.startswith("clipping_")}


def test_updates_that_the_user_left_out_are_not_counted_against_the_run() -> None:
    skipped = np.arange(400) % 4 == 0
    reasons = ["user" if one else None for one in skipped]
    assert "steps_skipped" not in codes(said(usual_norms(400), skipped=skipped, skip_reason=reasons, about=FP32))
    assert "steps_skipped" not in codes(with_nan(0, 3, num_steps=8, skipped=np.isin(np.arange(8), (0, 3))))
