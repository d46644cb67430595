"""The hook on a GPU: the trainings of the CPU, and nothing that waits for the device."""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

import gradsight
from gradsight import DynamicScale, GlobalNorm, Groups, TensorAdaptive, TensorNorm, Value
from gradsight.policies import Policy
from tests.client.by_hand import (
    NUM_STEPS,
    OPTIMIZERS,
    OVERFLOWS,
    POLICIES,
    assert_same_parameters,
    loss_of,
    monitor_of,
    new_model,
    train_by_hand,
    train_with_the_hook,
)
from tests.client.conftest import layer_rows, rows, sent
from tests.client.planted import Bench, close, loss_with

pytestmark = pytest.mark.gpu

EACH_POLICY = pytest.mark.parametrize("policy", POLICIES, ids=str)


@contextmanager
def never_waiting() -> Iterator[None]:
    """Waiting for the device raises."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@EACH_POLICY
def test_parameters_are_those_of_the_recipe(policy: Policy, name: str, precision: Any, fused: bool) -> None:
    by_hand, ours = new_model("cuda"), new_model("cuda")
    plain = OPTIMIZERS[name](list(by_hand.parameters()), False)
    train_by_hand(by_hand, plain, policy, is_fp16=precision == "fp16", overflows=OVERFLOWS)
    optimizer = OPTIMIZERS[name](list(ours.parameters()), fused)
    monitor = monitor_of(ours, optimizer, policy, precision=precision)
    results = train_with_the_hook(monitor, ours, optimizer, range(NUM_STEPS), OVERFLOWS)
    assert tuple(result.step for result in results if result.skipped) == OVERFLOWS
    assert_same_parameters(by_hand, ours, within=5e-6 if precision == "fp32" else 5e-4)


@EACH_POLICY
def test_what_is_recorded_is_what_the_cpu_records(policy: Policy, run: gradsight.Run) -> None:
    for device in ("cpu", "cuda"):
        model = new_model(device)
        optimizer = SGD(model.parameters(), lr=0.01, fused=True)
        monitor = gradsight.Monitor(model, optimizer, run=run, stream=device, clip=policy)
        train_with_the_hook(monitor, model, optimizer, range(NUM_STEPS), OVERFLOWS)
    transport = sent(run)
    assert run.num_dropped == {}
    patterns = [f"/{pattern}" for pattern in policy.policies] if isinstance(policy, Groups) else []
    for stream in ("", *patterns):
        on_cpu, on_gpu = (rows(transport, f"{device}{stream}") for device in ("cpu", "cuda"))
        assert on_cpu.keys() == on_gpu.keys()
        for column in on_cpu.keys() - {"step_time_s", "hook_time_s"}:
            for one, other in zip(on_cpu[column], on_gpu[column], strict=True):
                is_number = isinstance(one, float) and not isinstance(one, bool)
                assert other == (pytest.approx(one, rel=1e-4, nan_ok=True) if is_number else one), column
    norms = layer_rows(transport)
    half = len(norms) // 2
    for (step, on_host), (same_step, on_device) in zip(norms[:half], norms[half:], strict=True):
        assert step == same_step
        assert on_device == pytest.approx(on_host, rel=1e-4, nan_ok=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: SGD(parameters, lr=0.01, fused=True),
        lambda parameters: Adam(parameters, lr=torch.tensor(1e-3), fused=True),
        lambda parameters: Adam(parameters, lr=1e-3, fused=True),
        lambda parameters: AdamW(parameters, lr=1e-3, fused=True),
    ],
)
@pytest.mark.parametrize("scale", [None, 64.0, DynamicScale(64.0, 3), DynamicScale(64.0, 3, hysteresis=2)])
@EACH_POLICY
def test_a_fused_step_never_waits_for_the_device(policy: Policy, scale: Any, make: Any, run: gradsight.Run) -> None:
    model = new_model("cuda")
    optimizer: Optimizer = make(list(model.parameters()))
    kept: dict[str, Any] = {} if scale is None else {"precision": "fp16", "loss_scale": scale}
    monitor = gradsight.Monitor(model, optimizer, run=run, clip=policy, **kept)
    results = []
    for step in range(6):
        optimizer.zero_grad()
        with monitor.autocast():
            loss = loss_of(model, step, (2, 3))
        monitor.backward(loss)
        with never_waiting():
            results.append(monitor.step())
    assert run.num_dropped == {}  # nor did the telemetry side
    assert [result.skipped for result in results] == [False, False, True, True, False, False]


def test_momentum_waits_for_its_first_step_only() -> None:
    bench = Bench([[0.0], [0.0]], device="cuda", fused=True)
    bench.optimizer.param_groups[0]["momentum"] = 0.9
    bench.step([[math.inf], [1.0]])
    bench.step([[1.0], [1.0]])
    for gradient in (1.0, math.inf, 1.0):
        bench.optimizer.zero_grad()
        bench.monitor.backward(loss_with(bench.parameters, [[gradient], [1.0]]))
        with never_waiting():
            bench.monitor.step()
    assert bench.parameters[0].tolist() == pytest.approx([-(1 + 1.9 + 2.71)])


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, Adagrad])
def test_a_step_that_is_not_fused_reads_once(kind: Any) -> None:
    model = new_model("cuda")
    optimizer = kind(model.parameters(), lr=1e-3, foreach=True)
    monitor = gradsight.Monitor(model, optimizer, precision="fp16", clip=1.0)
    train_with_the_hook(monitor, model, optimizer, range(2), ())  # the optimizer's own beginnings
    optimizer.zero_grad()
    monitor.backward(loss_of(model, 2, ()))
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as waits:
            warnings.simplefilter("always")
            monitor.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == 1


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("policy", [GlobalNorm(1.0), TensorNorm(1.0), TensorAdaptive(), Groups({"*": GlobalNorm(1.0)})])
def test_finite_gradients_with_a_huge_norm_are_no_overflow(policy: Policy, fused: bool) -> None:
    bench = Bench([[0.0] * 4], device="cuda", fused=fused, clip=policy)
    result, applied = bench.applied([[1e30] * 4])
    assert result.skipped is False
    assert result.grad_norm_before_clip == pytest.approx(2e30, rel=1e-6)
    assert close([grad.cpu() for grad in applied], [[0.5] * 4], rtol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_fp16_parameters_keep_small_factors(fused: bool) -> None:
    bench = Bench(
        [[0.0]], device="cuda", fused=fused, dtype=torch.float16, precision="fp16", loss_scale=65536.0 / 3, clip=0.5
    )
    _, applied = bench.applied([[1.0]])
    assert applied[0].tolist() == pytest.approx([0.5], rel=1e-3)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "policy",
    [None, GlobalNorm(1.0), TensorNorm(1.0), Value(0.1), TensorAdaptive(), Groups({"layer0": 1.0, "*": Value(0.1)})],  # type: ignore[dict-item]
)
def test_parameters_on_several_devices_are_clipped_together(
    policy: Policy | None, fused: bool, run: gradsight.Run
) -> None:
    grads = [[3.0, 4.0], [0.0, 12.0, 0.0]]
    spread = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(3, device="cuda"))]
    optimizer = SGD(spread, lr=1.0, fused=fused)
    named = [(f"layer{index}", parameter) for index, parameter in enumerate(spread)]
    monitor = gradsight.Monitor(named, optimizer, run=run, clip=policy)
    together = Bench(grads, clip=policy)
    for gradients in (grads, [[math.inf, 0.0], [0.0] * 3], [[0.0] * 2, [0.0, math.nan, 0.0]], grads):
        expected = together.step(gradients)
        optimizer.zero_grad()
        losses = [
            (parameter * torch.tensor(gradient, device=parameter.device)).sum().cpu()
            for parameter, gradient in zip(spread, gradients, strict=True)
        ]
        result = monitor.step(torch.stack(losses).sum())
        assert (result.skipped, result.skip_reason) == (expected.skipped, expected.skip_reason)
        assert result.grad_norm_before_clip == pytest.approx(expected.grad_norm_before_clip, rel=1e-6, nan_ok=True)
    assert close([parameter.detach().cpu() for parameter in spread], together.parameters, rtol=1e-5)
    assert run.num_dropped == {}


def test_a_state_moves_between_devices() -> None:
    for policy in POLICIES:
        model = new_model()
        optimizer = SGD(model.parameters(), lr=0.01)
        monitor = gradsight.Monitor(model, optimizer, clip=policy)
        train_with_the_hook(monitor, model, optimizer, range(5), (2,))
        saved = monitor.state_dict()
        on_gpu = new_model("cuda")
        moved = gradsight.Monitor(on_gpu, SGD(on_gpu.parameters(), lr=0.01, fused=True), clip=policy)
        moved.load_state_dict(saved)
        on_gpu.load_state_dict(model.state_dict())
        expected = train_with_the_hook(monitor, model, optimizer, range(5, 8), ())
        for one, other in zip(
            expected, train_with_the_hook(moved, on_gpu, moved._optimizer, range(5, 8), ()), strict=True
        ):
            assert other.grad_norm_before_clip == pytest.approx(one.grad_norm_before_clip, rel=1e-4)
            assert other.clip_coef == pytest.approx(one.clip_coef, rel=1e-4)
