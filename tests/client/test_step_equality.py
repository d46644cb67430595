"""A training with the hook gives the parameters that PyTorch's plain recipe gives.

Bit-equal where nothing is clipped and the scale is a power of two; where clipping, equal to the plain recipe up to
the rounding of one multiply (2e-7 of a tensor's largest value a step).
"""

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

import gradsight
from gradsight.amp import AmpStep

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
INIT_SCALE = 1024.0  # low enough that fp16 overflows only where a test makes it
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], bool], Optimizer]] = {
    "sgd": lambda parameters, fused: SGD(parameters, lr=1e-2, fused=fused),
    "sgd-momentum": lambda parameters, fused: SGD(parameters, lr=1e-2, momentum=0.9, fused=fused),
    "adam": lambda parameters, fused: Adam(parameters, lr=1e-3, fused=fused),
    "adamw": lambda parameters, fused: AdamW(parameters, lr=1e-3, fused=fused),
    "adagrad": lambda parameters, fused: Adagrad(parameters, lr=1e-2, fused=fused),
}


@pytest.fixture(params=["host", "device"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both orders of a step: the one for CPUs, and the one that never waits for a device (run on CPU tensors here)."""
    if request.param == "device":
        monkeypatch.setattr(AmpStep, "_step_on_host", AmpStep._step_on_device)
    return str(request.param)


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


def loss_of(model: nn.Module, step: int, overflow_at: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 16, generator=generator), torch.randn(8, 1, generator=generator)
    loss: Tensor = (model(x) - y).float().square().mean()
    return loss * float("inf") if step in overflow_at else loss


def plain_recipe(
    optimizer: Optimizer, model: nn.Module, precision: Precision, clip: float | None, steps: range, bad: tuple[int, ...]
) -> list[float]:
    scaler = torch.amp.GradScaler("cpu", init_scale=INIT_SCALE, enabled=precision == "fp16")
    scales = []
    for step in steps:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=DTYPES[precision], enabled=precision != "fp32"):
            loss = loss_of(model, step, bad)
        scales.append(scaler.get_scale())
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.unscale_(optimizer)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
    return scales


def with_the_hook(
    optimizer: Optimizer, model: nn.Module, precision: Precision, clip: float | None, steps: range, bad: tuple[int, ...]
) -> list[gradsight.StepResult]:
    monitor = gradsight.Monitor(model, optimizer, precision=precision, clip=clip)
    if monitor.scaler is not None:
        monitor.scaler.load_state_dict({**monitor.scaler.state_dict(), "scale": INIT_SCALE})
    results = []
    for step in steps:
        optimizer.zero_grad()
        with monitor.autocast():
            loss = loss_of(model, step, bad)
        results.append(monitor.step(loss))
    return results


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    """Over all parameters, relative to each tensor's largest value."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max() / a.detach().abs().max()) for a, b in pairs)


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("precision", DTYPES)
def test_unclipped_parameters_are_bit_equal(precision: Precision, name: str, fused: bool, order: str) -> None:
    plain, ours = new_model(), new_model()
    plain_recipe(OPTIMIZERS[name](list(plain.parameters()), fused), plain, precision, None, range(20), ())
    with_the_hook(OPTIMIZERS[name](list(ours.parameters()), fused), ours, precision, None, range(20), ())
    assert largest_difference(plain, ours) == 0.0


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_clipped_parameters_are_equal_to_rounding(name: str, fused: bool, order: str) -> None:
    plain, ours = new_model(), new_model()
    plain_recipe(OPTIMIZERS[name](list(plain.parameters()), fused), plain, "fp32", 0.5, range(20), ())
    results = with_the_hook(OPTIMIZERS[name](list(ours.parameters()), fused), ours, "fp32", 0.5, range(20), ())
    assert any(result.clip_coef is not None and result.clip_coef < 0.9 for result in results)
    assert largest_difference(plain, ours) < 2e-6


@pytest.mark.parametrize("bad", [(0,), (9,), (9, 10), (0, 1, 2)], ids=["at 0", "in the middle", "twice", "at first"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_overflows_are_skipped_with_the_same_scales(name: str, bad: tuple[int, ...], order: str) -> None:
    plain, ours = new_model(), new_model()
    scales = plain_recipe(OPTIMIZERS[name](list(plain.parameters()), False), plain, "fp16", None, range(15), bad)
    results = with_the_hook(OPTIMIZERS[name](list(ours.parameters()), False), ours, "fp16", None, range(15), bad)
    assert [result.loss_scale for result in results] == scales
    assert [result.step for result in results if result.skipped] == list(bad)
    assert {result.skip_reason for result in results if result.skipped} == {"overflow"}
    assert largest_difference(plain, ours) == 0.0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_fused_optimizer_survives_an_overflow_on_its_first_step(name: str, order: str) -> None:
    """PyTorch's own recipe corrupts fused SGD's momentum here; the foreach one is right."""
    plain, ours = new_model(), new_model()
    plain_recipe(OPTIMIZERS[name](list(plain.parameters()), False), plain, "fp16", None, range(15), (0, 7))
    with_the_hook(OPTIMIZERS[name](list(ours.parameters()), True), ours, "fp16", None, range(15), (0, 7))
    assert largest_difference(plain, ours) < 2e-6


def test_accumulation_equals_one_large_batch() -> None:
    plain, ours = new_model(), new_model()
    plain_optimizer, optimizer = SGD(plain.parameters(), lr=1e-2), SGD(ours.parameters(), lr=1e-2)
    monitor = gradsight.Monitor(ours, optimizer, precision="fp16", clip=0.5)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(5):
        plain_optimizer.zero_grad()
        optimizer.zero_grad()
        for part in range(4):
            with torch.autocast("cpu", dtype=torch.float16):
                loss = loss_of(plain, 4 * step + part, ())
            scaler.scale(loss / 4).backward()  # type: ignore[no-untyped-call]
            with monitor.autocast():
                loss = loss_of(ours, 4 * step + part, ())
            monitor.backward(loss / 4)
        scaler.unscale_(plain_optimizer)
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        scaler.step(plain_optimizer)
        scaler.update()
        monitor.step()
    assert monitor.num_steps == 5
    assert largest_difference(plain, ours) < 2e-6
