"""The ledger of steps: applied or not, why, at which scale, and where it began."""

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

import gradsight
from gradsight import Ema, GlobalNorm
from tests.client.conftest import layer_rows, rows, sent, small_model
from tests.client.planted import ORDERS, Bench, loss_with, order_of

LEDGER = ("skipped", "skip_reason", "loss_scale", "loss_scale_after", "num_nonfinite_layers", "first_nonfinite_layer")


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> Iterator[str]:
    with order_of(request.param):
        yield request.param


def ledger(run: gradsight.Run) -> list[tuple[Any, ...]]:
    recorded = rows(sent(run))
    return list(zip(*(recorded[name] for name in LEDGER), strict=True))


def test_every_step_says_why_and_at_which_scale(run: gradsight.Run, order: str) -> None:
    scale = gradsight.DynamicScale(init_scale=64.0, growth_interval=2)
    bench = Bench([[0.0], [0.0]], precision="fp16", loss_scale=scale, run=run)
    bench.step([[1.0], [1.0]])
    bench.step([[1.0], [math.inf]])
    bench.monitor.step()
    bench.step([[1.0], [1.0]])
    bench.optimizer.zero_grad()
    bench.monitor.backward(loss_with(bench.parameters, [[1.0], [1.0]]))
    bench.monitor.skip()
    bench.optimizer.zero_grad()
    bench.monitor.backward(loss_with(bench.parameters, [[math.nan], [1.0]]))
    bench.monitor.skip()
    assert ledger(run) == [
        (False, None, 64.0, 64.0, 0, None),
        (True, "overflow", 64.0, 32.0, 1, "layer1"),
        (True, "no_gradient", None, None, 0, None),
        (False, None, 32.0, 32.0, 0, None),
        (True, "user", 32.0, 64.0, 0, None),  # a good backward counts, applied or not
        (True, "user", 64.0, 32.0, 1, "layer0"),
    ]
    assert bench.parameters[0].tolist() == [-2.0]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_without_scaling_the_guard_has_a_reason_of_its_own(precision: Any, run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0]], precision=precision, run=run)
    for gradient in (1.0, math.nan, 1.0):
        bench.step([[gradient]])
    assert [entry[:4] for entry in ledger(run)] == [
        (False, None, None, None),
        (True, "nonfinite", None, None),
        (False, None, None, None),
    ]


def test_the_loop_can_count_what_was_applied(order: str) -> None:
    bench = Bench([[0.0]], precision="fp16", loss_scale=gradsight.DynamicScale(init_scale=4.0))
    results = [bench.step([[gradient]]) for gradient in (math.inf, math.inf, 1.0, math.nan, 1.0)]
    assert bench.monitor.num_steps == 5
    assert [result.step for result in results] == [0, 1, 2, 3, 4]
    assert sum(not result.skipped for result in results) == 2
    assert bench.parameters[0].tolist() == [-2.0]


# A step skipped by choice


def test_a_step_skipped_by_choice_is_measured_and_not_applied(run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0, 0.0]], clip=GlobalNorm(Ema(warmup_steps=1)), run=run)
    bench.step([[0.3, 0.4]])
    bench.optimizer.zero_grad()
    bench.monitor.backward(loss_with(bench.parameters, [[30.0, 40.0]]))
    result = bench.monitor.skip()
    assert (result.skipped, result.skip_reason) == (True, "user")
    assert result.grad_norm_before_clip == pytest.approx(50.0)
    assert (result.clip_coef, result.max_norm) == (None, None)
    assert bench.parameters[0].tolist() == pytest.approx([-0.3, -0.4])
    assert bench.parameters[0].grad is not None  # clearing it stays the user's
    assert bench.step([[0.3, 0.4]]).max_norm == pytest.approx(0.75)  # the spike has not lifted it
    transport = sent(run)
    assert rows(transport)["loss"][1] == pytest.approx(-25.0)
    assert dict(layer_rows(transport))[1] == pytest.approx((50.0,))


def test_skipping_without_a_backward_is_a_step_without_a_gradient() -> None:
    bench = Bench([[0.0]])
    assert bench.monitor.skip().skip_reason == "no_gradient"
    assert bench.monitor.num_steps == 1


# Where it began


def test_the_first_layer_is_that_of_the_first_backward_order(run: gradsight.Run, order: str) -> None:
    """Layers are defined in another order than they are used in."""
    layers = nn.ModuleDict({name: nn.Linear(2, 2, bias=False) for name in ("last", "first", "middle")})
    optimizer = SGD(layers.parameters(), lr=0.1)
    monitor = gradsight.Monitor(layers, optimizer, run=run)

    def loss() -> torch.Tensor:
        out: torch.Tensor = layers["last"](layers["middle"](layers["first"](torch.ones(1, 2)))).sum()
        return out

    monitor.step(loss())
    expected: list[str | None] = [None]
    for bad in (("first", "middle"), ("first", "last"), ("first",), ("last", "middle")):
        weights = [layers[name].get_parameter("weight") for name in bad]
        handles = [weight.register_hook(lambda grad: grad * math.inf) for weight in weights]  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        monitor.step(loss())
        for handle in handles:
            handle.remove()
        expected.append(max(bad, key=["first", "middle", "last"].index) + ".weight")
    recorded = rows(sent(run))
    assert recorded["first_nonfinite_layer"] == expected
    assert recorded["num_nonfinite_layers"] == [0, 2, 2, 1, 2]


def test_nan_and_inf_are_told_apart(run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0, 0.0], [0.0]], run=run)
    for first, second in ((math.nan, 1.0), (math.inf, 1.0), (math.inf, math.nan), (1.0, 1.0)):
        bench.step([[first, 1.0], [second]])
    assert rows(sent(run))["nonfinite_kind"] == ["nan", "inf", "nan+inf", None]


def test_a_layer_without_a_gradient_is_none_that_is_not_finite(run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0], [0.0], [0.0]], run=run)
    bench.step([None, [math.nan], None])
    recorded = rows(sent(run))
    assert (recorded["num_nonfinite_layers"], recorded["num_layers_without_grad"]) == ([1], [2])
    assert recorded["first_nonfinite_layer"] == ["layer1"]


# Time


def test_times_are_of_the_step_and_of_the_hook(run: gradsight.Run) -> None:
    bench = Bench([[0.0]], run=run)
    begin = time.perf_counter()
    for _ in range(5):
        bench.step([[1.0]])
    took_s = time.perf_counter() - begin
    recorded = rows(sent(run))
    assert recorded["step_time_s"][0] is None
    steps_s, hooks_s = [float(str(value)) for value in recorded["step_time_s"][1:]], recorded["hook_time_s"]
    assert 0 < sum(steps_s) <= took_s
    assert all(0 < float(str(hook_s)) < took_s for hook_s in hooks_s)


def test_the_optimizers_own_time_is_not_the_hooks(run: gradsight.Run) -> None:
    bench = Bench([[0.0]], run=run)
    until: list[float] = []

    def busy(*_: object) -> None:
        end = time.perf_counter() + 0.05
        while time.perf_counter() < end:
            pass
        until.append(end)

    bench.optimizer.register_step_pre_hook(busy)
    bench.step([[1.0]])
    bench.step([[1.0]])
    recorded = rows(sent(run))
    assert float(str(recorded["step_time_s"][1])) >= 0.05
    assert float(str(recorded["hook_time_s"][1])) < 0.05


def test_the_loss_is_the_sum_of_what_backward_was_given(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.0)
    monitor = gradsight.Monitor(model, optimizer, run=run, precision="fp16", loss_scale=256.0)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        for part in range(4):
            loss = model(torch.full((2, 4), 1.0 + part)).square().mean() / 4
            losses.append(float(loss.detach()))
            monitor.backward(loss)
        monitor.step()
    assert rows(sent(run))["loss"] == pytest.approx([sum(losses[:4]), sum(losses[4:])])
