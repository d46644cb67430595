"""The plain PyTorch recipe, recorded step by step as the wire has it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from tests.server.diagnosis.calibration.models import Task

Fault = Callable[[int, nn.Module, Tensor], Tensor]
"""(step, model, input of the batch) -> the input to use: where something is to go wrong, it does so here."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training, as planned."""

    task: Callable[[], Task]
    optimizer: Literal["sgd", "adamw"] = "adamw"
    lr: float = 3e-3
    lr_factor: Callable[[int], float] = lambda step: min(1.0, (step + 1) / 30)
    max_norm: float | Callable[[float], float] | None = None
    num_steps: int = 600
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    init_scale: float = 65536.0
    growth_interval: int = 2000
    static_scale: float | None = None
    guard: bool = True
    """Skip steps with non-finite gradients in fp32 and bf16 too."""
    fault: Fault | None = None
    restart_at: int | None = None
    """A resume that brings back the weights alone: optimizer and loss scale begin anew."""
    clip_scaled: bool = False
    record_after_clip: bool = False
    apply_clip: bool = True
    loss_factor: Callable[[int], float] = lambda step: 1.0
    layer_every: int = 0
    """Record layer norms every so many steps; 0 never."""


@dataclass
class Recorded:
    columns: dict[str, list[Any]] = field(default_factory=dict)
    layer_names: list[str] = field(default_factory=list)
    layer_step: list[int] = field(default_factory=list)
    layer_norms: list[list[float]] = field(default_factory=list)

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)


def train(training: Training, seed: int) -> Recorded:
    torch.manual_seed(seed)
    np.random.seed(seed)
    model, batches, loss_of = training.task()
    optimizer = _optimizer(training, model)
    scaler = _scaler(training)
    dtype = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[training.precision]
    recorded = Recorded(layer_names=[name for name, _ in model.named_parameters()])
    for step in range(training.num_steps):
        x, y = next(batches)
        if step == training.restart_at:
            optimizer, scaler = _optimizer(training, model), _scaler(training)
        if training.fault is not None:
            x = training.fault(step, model, x)
        optimizer.param_groups[0]["lr"] = training.lr * training.lr_factor(step)
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = loss_of(model(x), y) * training.loss_factor(step)
        scaler.scale(loss.float()).backward()  # type: ignore[no-untyped-call]
        _finish_step(training, model, optimizer, scaler, recorded, step, float(loss.detach()))
    return recorded


def _finish_step(
    training: Training,
    model: nn.Module,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    recorded: Recorded,
    step: int,
    loss: float,
) -> None:
    """Unscale, measure, clip, step, update, and record all that."""
    parameters = [parameter for _, parameter in model.named_parameters()]
    scale = (training.static_scale or scaler.get_scale()) if scaler.is_enabled() else None
    if scaler.is_enabled() and not training.clip_scaled:
        scaler.unscale_(optimizer)
    layers = [math.nan if p.grad is None else float(p.grad.norm()) for p in parameters]
    norm = math.hypot(*layers)
    max_norm = training.max_norm(norm) if callable(training.max_norm) else training.max_norm
    if max_norm is not None and math.isfinite(norm) and training.apply_clip:
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    coef = min(1.0, max_norm / (norm + 1e-6)) if max_norm is not None and math.isfinite(norm) else 1.0
    if scaler.is_enabled():
        scaler.step(optimizer)
        scaler.update()
    elif math.isfinite(norm) or not training.guard:
        optimizer.step()
    bad = [name for name, value in zip(recorded.layer_names, layers, strict=True) if not math.isfinite(value)]
    recorded.add(
        step=step,
        loss=loss,
        grad_norm_before_clip=norm * coef if training.record_after_clip else norm,
        max_norm=max_norm if max_norm is not None and math.isfinite(max_norm) else None,
        clip_coef=coef if training.apply_clip else 1.0,
        loss_scale=scale,
        skipped=not math.isfinite(norm) and (scaler.is_enabled() or training.guard),
        lr=optimizer.param_groups[0]["lr"],
        first_nonfinite_layer=bad[-1] if bad else None,  # backward meets the last layer first
    )
    if training.layer_every and step % training.layer_every == 0:
        recorded.layer_step.append(step)
        recorded.layer_norms.append(layers)


def _scaler(training: Training) -> torch.amp.GradScaler:
    """A static scale is one that never grows and backs off by next to nothing."""
    is_static = training.static_scale is not None
    return torch.amp.GradScaler(
        "cpu",
        init_scale=training.static_scale if training.static_scale is not None else training.init_scale,
        growth_interval=2**31 - 1 if is_static else training.growth_interval,
        backoff_factor=1 - 1e-9 if is_static else 0.5,
        enabled=training.precision == "fp16",
    )


def _optimizer(training: Training, model: nn.Module) -> Optimizer:
    if training.optimizer == "sgd":
        return SGD(model.parameters(), lr=training.lr, momentum=0.9)
    return AdamW(model.parameters(), lr=training.lr)
