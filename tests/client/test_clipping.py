"""Clipping by every policy, against hand values: the norm, what is applied, what is recorded."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import gradsight
from gradsight import GlobalNorm, TensorAdaptive, TensorNorm, UnitNorm, Value
from gradsight.policies import Policy
from tests.client.conftest import rows, sent
from tests.client.planted import ORDERS, Bench, Planted, close, order_of

BASIC: Planted = [[3.0, 4.0], [0.0, 12.0, 0.0]]


def _seeded() -> list[Tensor]:
    random = np.random.RandomState(123)
    shapes_and_sizes = (((3, 4), 1.0), ((5,), 10.0), ((2, 2, 2), 0.01))
    return [
        torch.from_numpy(random.standard_normal(shape).astype(np.float32) * np.float32(size))
        for shape, size in shapes_and_sizes
    ]


@pytest.fixture(params=ORDERS, autouse=True)
def order(request: pytest.FixtureRequest) -> Iterator[str]:
    with order_of(request.param):
        yield request.param


@pytest.fixture(params=[True, False], ids=["fused", "plain"])
def fused(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=["fp32", "fp16"])
def precision(request: pytest.FixtureRequest) -> Any:
    return request.param


GLOBAL = [
    pytest.param(BASIC, GlobalNorm(1.0), 13.0, 0.07692307100591762, id="basic"),
    pytest.param(BASIC, GlobalNorm(100.0), 13.0, 1.0, id="below the threshold"),
    pytest.param(BASIC, GlobalNorm(13.0), 13.0, 0.9999999230769291, id="at the threshold: scaled all the same"),
    pytest.param(BASIC, GlobalNorm(math.inf), 13.0, 1.0, id="threshold inf"),
    pytest.param(BASIC, GlobalNorm(1.0, norm_type=math.inf), 12.0, 0.08333332638888948, id="p inf"),
    pytest.param(BASIC, GlobalNorm(1.0, norm_type=1.0), 19.0, 0.05263157617728546, id="p 1"),
    pytest.param(_seeded(), GlobalNorm(1.0), 28.371053402608613, 0.035247191937570484, id="seeded"),
    pytest.param(
        _seeded(), GlobalNorm(1.0, norm_type=math.inf), 22.05929946899414, 0.045332353190690185, id="seeded p inf"
    ),
    pytest.param([None, [3.0, 4.0], None, [0.0, 12.0, 0.0]], GlobalNorm(1.0), 13.0, 0.07692307100591762, id="None"),
    pytest.param([[0.0, 0.0]], GlobalNorm(1.0), 0.0, 1.0, id="zeros"),
    pytest.param([[1e20, 1e20]], GlobalNorm(1.0), 1.4142135623730951e20, 1 / 1.4142135623730951e20, id="huge"),
]


@pytest.mark.parametrize(("grads", "policy", "norm", "coef"), GLOBAL)
def test_the_global_norm_is_clipped_as_torch_does(
    grads: Planted, policy: Policy, norm: float, coef: float, fused: bool, precision: Any
) -> None:
    scale: dict[str, Any] = {"loss_scale": 1024.0} if precision == "fp16" else {}
    bench = Bench(grads, fused=fused, precision=precision, clip=policy, **scale)
    result, applied = bench.applied(grads)
    assert result.grad_norm_before_clip == pytest.approx(norm, rel=2e-6)
    assert result.clip_coef == pytest.approx(coef, rel=2e-6)
    assert result.skipped is False
    assert close(applied, [torch.zeros(1) if grad is None else torch.as_tensor(grad) * coef for grad in grads])


def test_a_fused_step_takes_scale_and_ratio_in_one_number() -> None:
    bench = Bench(BASIC, fused=True, precision="fp16", loss_scale=65536.0, clip=1.0)
    for group in bench.optimizer.param_groups:
        group["lr"] = 0.1
    for parameter in bench.parameters:
        parameter.data.fill_(1.0)
    result = bench.step(BASIC)
    assert result.grad_norm_before_clip == pytest.approx(13.0, rel=2e-6)
    assert close(bench.parameters, [[0.9769230786982247, 0.9692307715976329], [1.0, 0.9076923147928988, 1.0]])
    written = [parameter.grad for parameter in bench.parameters if parameter.grad is not None]
    assert close(written, [[0.23076921301775288, 0.3076922840236705], [0.0, 0.9230768520710115, 0.0]])


def test_each_tensor_is_held_to_the_norm(fused: bool, precision: Any, run: gradsight.Run) -> None:
    bench = Bench(BASIC, fused=fused, precision=precision, clip=TensorNorm(1.0), run=run)
    result, applied = bench.applied(BASIC)
    assert close(applied, [[0.599999880000024, 0.799999840000032], [0.0, 0.9999999166666738, 0.0]])
    assert result.grad_norm_before_clip == pytest.approx(13.0)
    assert result.clip_coef == pytest.approx(1.4142133620262094 / 13.0)
    assert result.max_norm == 1.0
    assert rows(sent(run))["clipped_layer_fraction"] == [1.0]


def test_each_tensor_has_its_own_ratio(fused: bool, run: gradsight.Run) -> None:
    grads = _seeded()
    bench = Bench(grads, fused=fused, clip=TensorNorm(1.0), run=run)
    result, applied = bench.applied(grads)
    coefs = (0.24632672183545312, 0.03561370246124949, 1.0)
    assert close(applied, [grad * coef for grad, coef in zip(grads, coefs, strict=True)])
    assert result.clip_coef == pytest.approx(1.4146565034960004 / 28.371053402608613)
    assert rows(sent(run))["clipped_layer_fraction"] == [pytest.approx(2 / 3)]


def test_elements_are_held_to_the_value(fused: bool, precision: Any, run: gradsight.Run) -> None:
    bench = Bench(BASIC, fused=fused, precision=precision, clip=Value(2.0), run=run)
    result, applied = bench.applied(BASIC)
    assert close(applied, [[2.0, 2.0], [0.0, 2.0, 0.0]])
    assert result.clip_coef == pytest.approx(math.sqrt(12) / 13)
    assert result.max_norm is None
    assert rows(sent(run))["clipped_layer_fraction"] == [1.0]


def test_a_value_clip_without_the_guard_keeps_nan_and_bounds_inf() -> None:
    grads: Planted = [[3.0, math.nan], [-math.inf, math.inf, 1.0]]
    bench = Bench(grads, clip=Value(2.0), skip_nonfinite=False)
    _, applied = bench.applied(grads)
    assert close(applied, [[2.0, math.nan], [-2.0, 2.0, 1.0]])


@pytest.mark.parametrize("grads", [[[3.0, math.nan], [1.0]], [[math.inf, 1.0], [1.0]], [[-math.inf, 1.0], [1.0]]])
@pytest.mark.parametrize(
    "policy", [GlobalNorm(1.0), GlobalNorm(1.0, norm_type=math.inf), TensorNorm(1.0), Value(2.0), UnitNorm()], ids=str
)
def test_the_guard_sees_an_overflow_before_any_policy_hides_it(
    policy: Policy, grads: Planted, fused: bool, precision: Any
) -> None:
    bench = Bench(grads, fused=fused, precision=precision, clip=policy)
    result, applied = bench.applied(grads)
    assert (result.skipped, result.clip_coef) == (True, None)
    assert close(applied, [[0.0, 0.0], [0.0]])


def test_units_are_held_to_a_share_of_their_weights(precision: Any, run: gradsight.Run) -> None:
    weights = [torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.6, 0.8]]), torch.tensor([0.3, 0.4])]
    grads: Planted = [[[0.03, 0.04], [3.0, 4.0], [0.003, 0.004]], [1.0, 0.0]]
    bench = Bench(grads, precision=precision, clip=UnitNorm(0.01, 1e-3), run=run)
    for parameter, weight in zip(bench.parameters, weights, strict=True):
        parameter.data.copy_(weight)
    result = bench.step(grads)
    clipped = [parameter.grad for parameter in bench.parameters if parameter.grad is not None]
    expected = [[[0.03, 0.04], [6e-6, 8e-6], [0.003, 0.004]], [0.005, 0.0]]
    assert close(clipped, expected)
    after = math.sqrt(0.05**2 + 1e-5**2 + 0.005**2 + 0.005**2)
    assert result.clip_coef == pytest.approx(after / math.sqrt(0.05**2 + 25 + 0.005**2 + 1), rel=1e-5)
    assert rows(sent(run))["clipped_layer_fraction"] == [1.0]


def test_excluded_layers_are_not_held() -> None:
    grads: Planted = [[30.0, 40.0], [30.0, 40.0]]
    bench = Bench(grads, clip=UnitNorm(exclude=("layer1",)))
    _, applied = bench.applied(grads)
    assert float(applied[0].norm()) == pytest.approx(1e-5)
    assert close(applied[1:], [[30.0, 40.0]])


# AdaGC: a layer with the norms of the reference trace beside a steadier one; two steps are not finite.


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split()]


NORMS_A = _numbers("""
    4.948213 3.581815 2.588984 2.520717 3.332652 3.446123 1.066557 1.514669 2.494878 2.162836 2.78025 3.191429
    1.210407 1.693499 2.556008 2.247884 1.489757 1.525345 2.126757 1.242417 1.625639 2.278539 0.934872 0.919497
    1.889726 1.057052 1.212588 0.839639 1.178217 1.562205 1.562546 1.572847 0.805276 1.074121 0.98304 25
    1.665469 1.290384 1.112218 1.211981 1.523202 1.131996 nan 0.990063 1.118423 0.995706 1.393333 1.104671
    0.728113 0.778461 inf 1.11542 1.831336 1.249223 0.897124 1.388154 1.501378 1.050388 1.413075 0.728416
""")
NORMS_B = _numbers("""
    0.687184 0.810732 0.52495 0.613019 0.686039 1.075432 0.925026 0.671562 0.815497 0.729304 0.568375 0.593161
    0.566978 0.687683 0.722501 0.489417 0.865906 0.705216 0.677445 0.655527 0.961866 0.674063 0.675016 0.808079
    0.699901 0.818533 0.712285 0.709338 0.889975 0.69142 0.584583 0.544153 0.707974 0.576997 0.813049 0.74005
    0.657819 0.614187 0.689861 0.787976 0.830976 0.551281 1.023915 0.615259 0.552604 10 0.892784 0.844165
    0.611534 0.866918 0.684803 0.529765 0.612029 0.543846 0.838411 0.885191 0.568626 0.678439 0.757482 0.554366
""")
COEFS_A = _numbers("""
    0.200172047 0.272299769 0.378548539 0.385477066 0.293898758 0.27700592 0.708308426 0.603547344 0.380984676
    0.438118531 0.352391404 0.308063439 0.748156046 0.547106008 0.376483239 0.434679248 0.580339699 0.59506836
    0.448019342 0.71187118 0.483298493 0.344950552 0.841074695 0.855480428 0.416423741 0.744751643 0.649483754
    0.93834486 0.668965359 0.504736444 0.504828144 0.501722499 0.980344506 0.735265326 0.803710698 0.0316158628
    0.474768539 0.613017855 0.711501472 0.653196165 0.519942949 0.699909497 nan 0.8005668 0.708970313
    0.796666675 0.569543185 0.718657945 1 1 nan 0.711827149 0.433729317 0.6360927 0.886097384 0.572888541
    0.529896978 0.757713976 0.563460694 1
""")
COEFS_B = COEFS_A[:20] + _numbers("""
    0.1487287 0.212315821 0.212100877 0.177246023 0.204723315 0.175122319 0.201324903 0.202242186 0.161257892
    0.207649261 0.245696921 0.264057493 0.203037418 0.249226019 0.176939223 0.194470354 0.218867695 0.234509852
    0.208868948 0.182934764 0.173537951 0.261687718 nan 0.234569831 0.261270098 0.01444369 0.161847129
    0.17123704 0.236471024 0.166876204 nan 0.273188576 0.23656342 0.266328256 0.172826439 0.163758507
    0.255027818 0.213834251 0.191597354 0.261901938
""")
GAMMA_AFTER = {"layer0": 0.7655206561708979, "layer1": 0.13966141095309234}


def test_adagc_follows_the_reference(fused: bool, precision: Any) -> None:
    scale: dict[str, Any] = {"loss_scale": gradsight.DynamicScale(init_scale=256.0)} if precision == "fp16" else {}
    bench = Bench([[0.0], [0.0]], fused=fused, precision=precision, clip=TensorAdaptive(warmup_steps=20), **scale)
    for norms, coefs in zip(zip(NORMS_A, NORMS_B, strict=True), zip(COEFS_A, COEFS_B, strict=True), strict=True):
        result, applied = bench.applied([[norms[0]], [norms[1]]])
        assert result.skipped == math.isnan(coefs[0])
        if not result.skipped:
            # What is left of a parameter near 20 after a subtraction is right to float32 at that size.
            assert close(applied, [[norms[0] * coefs[0]], [norms[1] * coefs[1]]], rtol=1e-5, atol=1e-5)
    gamma = bench.monitor.state_dict()["thresholds"]["gamma"]["gamma"]
    assert gamma == {name: pytest.approx(value, rel=2e-6) for name, value in GAMMA_AFTER.items()}


def test_adagc_does_not_let_a_layer_die_that_had_no_signal_in_warm_up() -> None:
    bench = Bench([[0.0], [0.0]], clip=TensorAdaptive(warmup_steps=20))
    for _ in range(20):
        bench.step([[0.0], [0.5]])
    applied = [float(bench.applied([[1.0], [0.5]])[1][0]) for _ in range(5)]
    assert applied == pytest.approx([1.0] * 5, rel=1e-5)  # its first norm is the first it learns from


def test_adagc_lets_a_layer_begin_after_the_warm_up() -> None:
    bench = Bench([[0.0], [0.0]], clip=TensorAdaptive(warmup_steps=3))
    for _ in range(5):
        bench.step([None, [0.5]])
    assert close(bench.applied([[0.2], [0.5]])[1][:1], [[0.2]], rtol=1e-5)
    assert close(bench.applied([[20.0], [0.5]])[1][:1], [[0.2 * 1.04]], rtol=1e-5)
