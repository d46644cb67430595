"""The moving thresholds: right values, states that nothing poisons, exact resumption, the same on floats and tensors.

NORMS and the expected numbers are those of the project's reference vectors, rounded to nine digits. Of the reference's
traces the quantile without the current norm, the moving mean of raw norms and the unguarded ("poisoned") variants are
for comparison only: no threshold here is like them. Its layer-wise trace (AdaGC) belongs to the policy TensorAdaptive.
"""

import copy
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradsight import thresholds
from gradsight.errors import ConfigurationError
from gradsight.thresholds import Cosine, Ema, Percentile, Threshold, ZScore


def _numbers(text: str) -> list[float]:
    """Numbers apart by spaces; `-` stands for no threshold."""
    return [math.inf if word == "-" else float(word) for word in text.split()]


NORMS = _numbers("""
    4.948213 3.581815 2.588984 2.520717 3.332652 3.446123 1.066557 1.514669 2.494878 2.162836 2.78025 3.191429
    1.210407 1.693499 2.556008 2.247884 1.489757 1.525345 2.126757 1.242417 1.625639 2.278539 0.934872 0.919497
    1.889726 1.057052 1.212588 0.839639 1.178217 1.562205 1.562546 1.572847 0.805276 1.074121 0.98304 25.0
    1.665469 1.290384 1.112218 1.211981 1.523202 1.131996 nan 0.990063 1.118423 0.995706 1.393333 1.104671
    0.728113 0.778461 inf 1.11542 1.831336 1.249223 0.897124 1.388154 1.501378 1.050388 1.413075 0.728416
""")
NONFINITE = {42, 50}
PERCENTILE_10 = _numbers("""
    4.948213 3.7184548 2.7875502 2.5411971 2.5480238 2.5548505 1.939053 1.3802354 1.4250466 1.4698578 1.514669
    1.5794857 1.2712594 1.3016856 1.3321118 1.362538 1.378017 1.405952 1.433887 1.239216 1.242417 1.267151
    1.216809 1.109712 1.124097 1.0618045 1.062755 1.020398 1.032616 1.044834 1.057052 1.0580025 0.959308
    0.971526 0.9541392 0.958956 0.9637728 0.9685896 0.9734064 0.9782232 0.98304 0.9904412 - 0.9844446 0.9851469
    0.9858492 0.9865515 0.9872538 0.9685896 0.931797 - 0.9333345 0.934872 0.9396888 0.922572 0.9241095 0.925647
    0.9271845 0.928722 0.9127851
""")
EMA_WARMUP_10 = _numbers("""
    - - - - - - - - - - 4.1486166 4.15079244 4.21442755 3.97454584 3.83111611 3.8314057 3.78544773 3.6303665
    3.4961316 3.46553199 3.30534134 3.21865306 3.2385686 3.05494254 2.88737284 2.88209446 2.75244281 2.65908673
    2.51912391 2.44394407 2.43388041 2.42487427 2.41831389 2.2972739 2.22866466 2.1532542 2.26091691 2.28464556
    2.24973861 2.19159745 2.15423485 2.16729167 - 2.1203619 2.05683516 2.01891509 1.96637949 1.97874149
    1.94656799 1.86112814 - 1.79178448 1.77991903 1.86891498 1.86940693 1.81703484 1.84355445 1.88440571
    1.85352334 1.88013225
""")
PERCENTILE_90 = {
    0: 4.948213,
    1: 4.8115732,
    10: 3.581815,
    20: 3.446123,
    34: 3.2761628,
    35: 3.3893875,
    36: 3.3780404,
    41: 3.3185297,
    43: 3.3044074,
    49: 3.2196736,
    51: 3.2055513,
    59: 2.9036037,
}
COSINE = {
    0: 5,
    1: 4.99556014,
    10: 4.57028824,
    24: 2.89127867,
    25: 2.75,
    42: 0.77830997,
    49: 0.504439861,
    50: 0.5,
    59: 0.5,
}
ZSCORE = dict.fromkeys(range(60), math.inf) | {35: 2.18443186}
CASES: list[tuple[Threshold, dict[int, float]]] = [
    (Percentile(10), dict(enumerate(PERCENTILE_10))),
    (Percentile(90), PERCENTILE_90),
    (Ema(warmup_steps=10), dict(enumerate(EMA_WARMUP_10))),
    (ZScore(), ZSCORE),
    (Cosine(5.0, 0.5, total_steps=50), COSINE),
]
ZSCORE_STATE = {25: (2.2147788, 0.905128699), 36: (1.95114856, 0.862206962), 60: (1.57646048, 0.624173222)}
"""Mean and variance after so many calls."""

KINDS: list[Threshold] = [
    Cosine(5.0, 0.5, total_steps=7),
    Ema(warmup_steps=3),
    Ema(warmup_steps=0, beta=0.0, factor=1.0),
    ZScore(warmup_steps=4),
    ZScore(warmup_steps=0, z=1.0, alpha=0.5, max_norm=2.0),
    Percentile(q=30, history=4),
    Percentile(q=100, history=1),
    Percentile(),
]


@contextmanager
def _device_path() -> Iterator[None]:
    """CPU tensors take the way of tensors on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "_READ_ON_HOST", frozenset())
        yield


@contextmanager
def _host_path() -> Iterator[None]:
    yield


def _fed(threshold: Threshold, norms: list[float], form: Callable[[float], Any] = float) -> list[float]:
    return [float(threshold(form(norm))) for norm in norms]


def _tensor(dtype: torch.dtype) -> Callable[[float], torch.Tensor]:
    return lambda norm: torch.tensor(norm, dtype=dtype)


FORMS = [
    pytest.param(float, _host_path, id="float"),
    pytest.param(np.float32, _host_path, id="numpy-float32"),
    pytest.param(np.float64, _host_path, id="numpy-float64"),
    pytest.param(_tensor(torch.float32), _host_path, id="cpu-float32"),
    pytest.param(_tensor(torch.float64), _host_path, id="cpu-float64"),
    pytest.param(_tensor(torch.float32), _device_path, id="device-float32"),
    pytest.param(_tensor(torch.float64), _device_path, id="device-float64"),
]


@pytest.mark.parametrize(("form", "path"), FORMS)
@pytest.mark.parametrize(("threshold", "expected"), CASES, ids=lambda case: str(case)[:24])
def test_thresholds_are_those_of_the_reference(
    threshold: Threshold, expected: dict[int, float], form: Callable[[float], Any], path: Callable[[], Any]
) -> None:
    with path():
        seen = _fed(threshold.fresh(), NORMS, form)
    assert {step: seen[step] for step in expected} == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize(("form", "path"), FORMS)
def test_zscore_keeps_mean_and_variance_of_clipped_norms(form: Callable[[float], Any], path: Callable[[], Any]) -> None:
    threshold = ZScore()
    with path():
        for num_calls, norm in enumerate(NORMS, start=1):
            threshold(form(norm))
            if num_calls in ZSCORE_STATE:
                state = threshold.state_dict()
                assert (state["mean"], state["std"] ** 2) == pytest.approx(ZSCORE_STATE[num_calls], rel=2e-6)


@pytest.mark.parametrize(("form", "path"), FORMS)
def test_max_norm_caps_zscore_in_warm_up_too_and_does_not_enter_its_mean(
    form: Callable[[float], Any], path: Callable[[], Any]
) -> None:
    # The reference notes min(norm, cap) as the threshold where nothing is clipped; what it applies is the same.
    capped, free = ZScore(max_norm=1.0), ZScore()
    with path():
        seen = _fed(capped, NORMS, form)
        _fed(free, NORMS, form)
    assert seen == [math.inf if step in NONFINITE else 1.0 for step in range(60)]
    assert capped.state_dict() == free.state_dict()
    coefs = [min(1.0, seen[step] / (NORMS[step] + 1e-6)) for step in (20, 22, 25, 27, 35)]
    assert coefs == pytest.approx([0.615142344, 1.0, 0.946026358, 1.0, 0.0399999984], rel=2e-6)


def test_zscore_threshold_below_its_cap_stands() -> None:
    capped = ZScore(max_norm=2.5)
    assert _fed(capped, NORMS)[34:37] == pytest.approx([2.5, ZSCORE[35], 2.5])


def test_percentile_is_numpys_over_the_last_norms() -> None:
    norms = [norm for norm in NORMS if math.isfinite(norm)]
    for q in (0, 10, 33.3, 50, 100):
        seen = _fed(Percentile(q, history=8), norms)
        expected = [np.percentile(norms[max(0, n - 8) : n], q) for n in range(1, len(norms) + 1)]
        assert seen == pytest.approx(expected, rel=1e-12)


# Nothing poisons a state


positive_norms = st.floats(min_value=1e-6, max_value=1e6)
silent_norms = st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
kinds = st.sampled_from(KINDS)


@given(kinds, st.lists(st.one_of(positive_norms, silent_norms), max_size=40))
def test_nonfinite_and_zero_norms_leave_no_trace(threshold: Threshold, norms: list[float]) -> None:
    if isinstance(threshold, Cosine):
        return  # counts every call
    with_all, without = threshold.fresh(), threshold.fresh()
    seen = _fed(with_all, norms)
    told = [norm for norm in norms if math.isfinite(norm) and norm > 0]
    assert [value for value, norm in zip(seen, norms, strict=True) if norm in told] == _fed(without, told)
    assert with_all.state_dict() == without.state_dict()


@given(kinds, st.lists(st.one_of(st.floats(0, 1e300), silent_norms), max_size=40))
def test_thresholds_are_never_nan_and_never_fall_to_zero(threshold: Threshold, norms: list[float]) -> None:
    threshold = threshold.fresh()
    seen = _fed(threshold, norms)
    assert all(value > 0 for value in seen)
    assert all(math.isfinite(value) for value in _flat(threshold.state_dict()))


@given(kinds, silent_norms, st.lists(positive_norms, max_size=10))
def test_nonfinite_norms_have_no_threshold_save_on_a_fixed_course(
    threshold: Threshold, silent: float, norms: list[float]
) -> None:
    threshold = threshold.fresh()
    _fed(threshold, norms)
    value = threshold(silent)
    if isinstance(threshold, Cosine):
        assert 0.5 <= value <= 5.0
    elif silent != 0.0:
        assert value == math.inf


def test_a_zero_norm_gets_the_threshold_in_force() -> None:
    ema, percentile = Ema(warmup_steps=2), Percentile(q=50)
    assert _fed(ema, [0.0, 2.0, 2.0, 0.0]) == [math.inf, math.inf, math.inf, 3.0]
    assert _fed(percentile, [0.0, 2.0, 3.0, 0.0]) == [math.inf, 2.0, 2.5, 2.5]


def test_a_huge_norm_in_warm_up_does_not_cancel_the_next_ones() -> None:
    ema = Ema(factor=1.0, beta=0.0, warmup_steps=1)
    assert _fed(ema, [1e17, 1.0, 1.0])[2] == 1.0


def test_cosine_counts_each_call_and_ends_where_it_was_told() -> None:
    threshold = Cosine(4.0, 1.0, total_steps=2)
    assert _fed(threshold, [math.nan, math.inf, 0.0, 1.0]) == [4.0, 2.5, 1.0, 1.0]


def test_a_spike_does_not_lift_the_threshold_after_it() -> None:
    threshold = Ema(factor=1.5, beta=0.9, warmup_steps=5)
    _fed(threshold, [1.0] * 5)
    assert _fed(threshold, [1000.0, 1.0])[1] == pytest.approx(1.5 * 1.05)


# State


@given(kinds, st.lists(st.one_of(positive_norms, silent_norms), max_size=30), st.integers(0, 30), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_resumed_threshold_goes_on_exactly(
    threshold: Threshold, norms: list[float], cut: int, on_device: bool
) -> None:
    whole, first, second = threshold.fresh(), threshold.fresh(), threshold.fresh()
    form = _tensor(torch.float64) if on_device else float
    with _device_path():
        expected = _fed(whole, norms, form)
        seen = _fed(first, norms[:cut], form)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        seen += _fed(second, norms[cut:], form)
        assert seen == expected
        assert second.state_dict() == whole.state_dict()


@given(kinds, st.lists(st.tuples(st.one_of(positive_norms, silent_norms), st.booleans()), max_size=30))
@settings(max_examples=60, deadline=None)
def test_floats_and_device_tensors_can_be_mixed_and_give_the_same(
    threshold: Threshold, norms: list[tuple[float, bool]]
) -> None:
    mixed, floats, tensors = threshold.fresh(), threshold.fresh(), threshold.fresh()
    as_tensor = _tensor(torch.float64)
    expected = _fed(floats, [norm for norm, _ in norms])
    with _device_path():
        assert _fed(tensors, [norm for norm, _ in norms], as_tensor) == pytest.approx(expected, rel=1e-9)
        seen = [float(mixed(as_tensor(norm) if on_device else norm)) for norm, on_device in norms]
    assert seen == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("threshold", KINDS, ids=str)
def test_state_holds_plain_numbers_and_survives_json(threshold: Threshold) -> None:
    threshold = threshold.fresh()
    with _device_path():
        _fed(threshold, NORMS, _tensor(torch.float64))
        state = threshold.state_dict()
    assert {type(value) for value in _flat(state)} <= {int, float}
    assert json.loads(json.dumps(state)) == state


def test_reading_the_state_is_no_loan() -> None:
    threshold = Percentile()
    threshold(1.0)
    threshold.state_dict()["norms"].append(7.0)
    assert threshold.state_dict() == {"norms": [1.0]}


@pytest.mark.parametrize(
    ("threshold", "state", "named"),
    [
        (Ema(), ZScore().state_dict(), "ema"),
        (Ema(), {}, "ema"),
        (Ema(), None, "None"),
        (Ema(), {"num_norms": 3, "ema": math.nan}, "ema must be a finite number"),
        (Ema(), {"num_norms": 2.5, "ema": 1.0}, "num_norms must be a whole number"),
        (Ema(), {"num_norms": -1, "ema": 1.0}, "num_norms"),
        (ZScore(), {"num_norms": 3, "mean": "1", "std": 1.0}, "mean"),
        (Percentile(history=2), {"norms": [1.0, 2.0, 3.0]}, "at most 2"),
        (Percentile(), {"norms": [1.0, math.inf]}, "norms"),
        (Percentile(), {"norms": 3}, "norms"),
        (Cosine(1, 2, 3), Ema().state_dict(), "num_calls"),
    ],
)
def test_the_state_of_something_else_is_refused_and_changes_nothing(
    threshold: Threshold, state: Any, named: str
) -> None:
    threshold = threshold.fresh()
    threshold(1.0)
    before = threshold.state_dict()
    with pytest.raises(ConfigurationError, match=named):
        threshold.load_state_dict(state)
    assert threshold.state_dict() == before


@pytest.mark.parametrize("threshold", KINDS, ids=str)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"])
def test_a_copy_has_the_state_and_goes_its_own_way(threshold: Threshold, copied: Callable[[Any], Threshold]) -> None:
    threshold = threshold.fresh()
    _fed(threshold, NORMS[:30])
    other = copied(threshold)
    assert other == threshold
    assert other.state_dict() == threshold.state_dict()
    before = threshold.state_dict()
    _fed(other, NORMS[30:])
    assert threshold.state_dict() == before


def test_thresholds_are_compared_by_their_settings() -> None:
    used = Ema()
    used(1.0)
    assert used == Ema()
    assert hash(used) == hash(Ema())
    assert Ema() != Ema(beta=0.5)
    assert used.fresh().state_dict() == {"num_norms": 0, "ema": 0.0}


# Tensors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("path", [_host_path, _device_path])
@pytest.mark.parametrize("threshold", KINDS, ids=str)
def test_a_tensor_gives_a_tensor_of_its_dtype_that_keeps_no_graph(
    threshold: Threshold, path: Callable[[], Any], dtype: torch.dtype
) -> None:
    threshold = threshold.fresh()
    norm = torch.tensor(1.5, dtype=dtype, requires_grad=True)
    with path():
        for _ in range(5):
            value = threshold(norm)
    assert (value.dtype, value.shape, value.device, value.requires_grad) == (dtype, (), norm.device, False)


@pytest.mark.parametrize("threshold", KINDS, ids=str)
def test_the_device_path_never_reads_a_value(threshold: Threshold) -> None:
    threshold = threshold.fresh()
    norm = torch.empty((), dtype=torch.float32, device="meta")  # has none: reading it would raise
    for _ in range(3):
        assert threshold(norm).device == norm.device


@pytest.mark.parametrize("path", [_host_path, _device_path])
def test_a_norm_with_dimensions_is_refused(path: Callable[[], Any]) -> None:
    with path(), pytest.raises(ConfigurationError, match=r"0-dim tensor, got the shape \(2,\)"):
        Ema()(torch.ones(2))


@pytest.mark.gpu
@pytest.mark.parametrize("threshold", KINDS, ids=str)
def test_on_a_gpu_nothing_is_waited_for_and_a_resumed_state_moves_there(threshold: Threshold) -> None:
    on_gpu, on_host = threshold.fresh(), threshold.fresh()
    expected = _fed(on_host, NORMS)
    on_gpu.load_state_dict(_state_after(threshold, NORMS[:10]))
    norms = torch.tensor(NORMS[10:], dtype=torch.float64, device="cuda").unbind()
    torch.cuda.set_sync_debug_mode("error")
    try:
        seen = [on_gpu(norm) for norm in norms]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert {value.device.type for value in seen} == {"cuda"}
    assert torch.stack(seen).tolist() == pytest.approx(expected[10:], rel=1e-9)
    assert _flat(on_gpu.state_dict()) == pytest.approx(_flat(on_host.state_dict()), rel=1e-9)


def test_importing_and_calling_costs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys; from gradsight.thresholds import ZScore; from gradsight.policies import parse_policy; "
        "ZScore()(1.0); parse_policy('ema()'); "
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Settings


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda: Percentile(q=-0.1), r"q must be from 0 to 100, got -0\.1"),
        (lambda: Percentile(q=100.5), r"q .*100\.5"),
        (lambda: Percentile(q=math.nan), "q .*nan"),
        (lambda: Percentile(q=True), "q .*True"),
        (lambda: Percentile(history=0), "history must be a whole number from 1 to 10,000,000, got 0"),
        (lambda: Percentile(history=10**12), "history"),
        (lambda: Percentile(history=2.5), r"history .*2\.5"),  # type: ignore[arg-type]
        (lambda: Ema(beta=1.0), r"beta must be from 0 to below 1, got 1\.0"),
        (lambda: Ema(beta=-0.1), "beta"),
        (lambda: Ema(beta="0.9"), "beta .*'0.9'"),  # type: ignore[arg-type]
        (lambda: Ema(factor=0.5), r"factor must be from 1 on and finite, got 0\.5"),
        (lambda: Ema(factor=math.inf), "factor .*inf"),
        (lambda: Ema(warmup_steps=-1), "warmup_steps must be a whole number from 0 on, got -1"),
        (lambda: Ema(warmup_steps=1.5), "warmup_steps"),  # type: ignore[arg-type]
        (lambda: Ema(warmup_steps=True), "warmup_steps .*True"),
        (lambda: ZScore(z=0), "z must be positive and finite, got 0"),
        (lambda: ZScore(z=math.nan), "z .*nan"),
        (lambda: ZScore(alpha=1), "alpha"),
        (lambda: ZScore(warmup_steps=-3), "warmup_steps .*-3"),
        (lambda: ZScore(max_norm=0.0), r"max_norm must be positive, got 0\.0"),
        (lambda: ZScore(max_norm=Ema()), "max_norm .*Ema"),  # type: ignore[arg-type]
        (lambda: Cosine(0.0, 1.0, 10), r"start must be positive and finite, got 0\.0"),
        (lambda: Cosine(1.0, -1.0, 10), "end"),
        (lambda: Cosine(math.inf, 1.0, 10), "start"),
        (lambda: Cosine(1.0, 0.5, 0), "total_steps must be a whole number from 1 on, got 0"),
        (lambda: Cosine(10**400, 0.5, 1), "start"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(made: Callable[[], Threshold], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        made()


def test_numpy_settings_become_plain_numbers() -> None:
    threshold = Percentile(q=np.float32(25), history=np.int64(7))  # type: ignore[arg-type]
    assert str(threshold) == "percentile(q=25.0, history=7)"
    assert (type(threshold.q), type(threshold.history)) == (float, int)


def _state_after(threshold: Threshold, norms: list[float]) -> dict[str, Any]:
    threshold = threshold.fresh()
    _fed(threshold, norms)
    return threshold.state_dict()


def _flat(state: dict[str, Any]) -> list[float]:
    return [number for value in state.values() for number in (value if isinstance(value, list) else [value])]
