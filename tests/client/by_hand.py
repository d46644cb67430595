"""Clipping as one would write it by hand with torch alone, and small trainings with it and with the hook."""

import math
from collections.abc import Callable
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

import gradsight
from gradsight import (
    Cosine,
    Ema,
    GlobalNorm,
    Groups,
    Percentile,
    TensorAdaptive,
    TensorNorm,
    UnitNorm,
    Value,
    ZScore,
)
from gradsight.policies import Policy
from gradsight.thresholds import Threshold

NUM_STEPS = 14
INIT_SCALE = 1024.0
OVERFLOWS = (0, 6, 7)

POLICIES: list[Policy] = [
    GlobalNorm(0.3),
    GlobalNorm(0.2, norm_type=math.inf),
    GlobalNorm(Ema(warmup_steps=3, factor=1.0)),
    GlobalNorm(ZScore(warmup_steps=4, z=0.5)),
    GlobalNorm(Percentile(q=30)),
    GlobalNorm(Cosine(0.5, 0.1, total_steps=8)),
    TensorNorm(0.1),
    TensorNorm(Percentile(q=50)),
    Value(0.05),
    UnitNorm(0.02, exclude=("4.*",)),
    TensorAdaptive(warmup_steps=4, max_norm=0.4),
    Groups({"0.*": GlobalNorm(0.1), "*.bias": TensorNorm(Ema(warmup_steps=2)), "2.*": TensorAdaptive(warmup_steps=3)}),
    Groups({"0.*": GlobalNorm(0.1), "4.*": Value(0.05), "*": GlobalNorm(Ema(warmup_steps=2))}),
]
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], bool], Optimizer]] = {
    "sgd": lambda parameters, fused: SGD(parameters, lr=0.05, momentum=0.9, fused=fused),
    "adamw": lambda parameters, fused: AdamW(parameters, lr=1e-3, fused=fused),
}


def new_model(device: str = "cpu") -> nn.Sequential:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 2))
    return model.to(device)


def loss_of(model: nn.Module, step: int, overflows: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    device = next(model.parameters()).device
    x, y = torch.randn(8, 6, generator=generator).to(device), torch.randn(8, 2, generator=generator).to(device)
    loss: Tensor = (1 + step % 3) * (model(x) - y).float().square().mean()
    return loss * math.inf if step in overflows else loss


# The recipe


class Recipe:
    """A policy as one would write it by hand; keeps what it learns by name."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._thresholds: dict[str, Threshold] = {}
        self._gamma: dict[str, float] = {}
        self._num_steps = 0
        parts = policy.policies.items() if isinstance(policy, Groups) else ()
        self._parts = {pattern: Recipe(part) for pattern, part in parts}

    def clip(self, named: list[tuple[str, nn.Parameter]]) -> None:
        """Clip the unscaled, finite gradients in place."""
        grads = {name: parameter.grad for name, parameter in named if parameter.grad is not None}
        norms = {name: float(grad.double().norm()) for name, grad in grads.items()}
        policy = self._policy
        if isinstance(policy, GlobalNorm):
            each = [float(torch.linalg.vector_norm(grad.double(), policy.norm_type)) for grad in grads.values()]
            total = float(torch.linalg.vector_norm(torch.tensor(each, dtype=torch.float64), policy.norm_type))
            coef = min(1.0, self._limit("all", policy.max_norm, total) / (total + 1e-6))
            for grad in grads.values():
                grad.mul_(coef)
        elif isinstance(policy, TensorNorm):
            for name, grad in grads.items():
                grad.mul_(min(1.0, self._limit(name, policy.max_norm, norms[name]) / (norms[name] + 1e-6)))
        elif isinstance(policy, Value):
            torch.nn.utils.clip_grad_value_([parameter for _, parameter in named], policy.clip_value)
        elif isinstance(policy, UnitNorm):
            for name, parameter in named:
                if not any(fnmatchcase(name, pattern) for pattern in policy.exclude):
                    self._hold_units(parameter, policy)
        elif isinstance(policy, TensorAdaptive):
            self._adapt(grads, norms, policy)
        else:
            for pattern, part in self._parts.items():
                part.clip([(name, parameter) for name, parameter in named if self._group_of(name) == pattern])

    def pass_over(self) -> None:
        """A step that is not applied: only what runs by the count of steps goes on."""
        if isinstance(self._policy, GlobalNorm):
            self._limit("all", self._policy.max_norm, math.nan)

    def _group_of(self, name: str) -> str | None:
        return next((pattern for pattern in self._parts if fnmatchcase(name, pattern)), None)

    def _limit(self, name: str, max_norm: float | Threshold, norm: float) -> float:
        if not isinstance(max_norm, Threshold):
            return max_norm
        return self._thresholds.setdefault(name, deepcopy(max_norm))(norm)

    def _hold_units(self, parameter: nn.Parameter, policy: UnitNorm) -> None:
        grad = parameter.grad
        assert grad is not None
        pairs = zip(grad, parameter.detach(), strict=True) if grad.ndim > 1 else [(grad, parameter.detach())]
        for unit, weight in pairs:
            limit = policy.clipping * max(float(weight.norm()), policy.eps)
            if float(unit.norm()) >= limit:
                unit.mul_(limit / max(float(unit.norm()), 1e-6))

    def _adapt(self, grads: dict[str, Tensor], norms: dict[str, float], policy: TensorAdaptive) -> None:
        together = min(1.0, policy.max_norm / (math.hypot(*norms.values()) + 1e-6))
        for name, grad in grads.items():
            norm, gamma = norms[name], self._gamma.get(name, math.inf)
            if self._num_steps < policy.warmup_steps:
                grad.mul_(together)
                self._gamma[name] = min(gamma, norm * together)
            else:
                limit = policy.relative * gamma
                grad.mul_(min(1.0, limit / (norm + 1e-6)))
                self._gamma[name] = policy.beta * gamma + (1 - policy.beta) * min(norm, limit)
        self._num_steps += 1


def train_by_hand(
    model: nn.Module, optimizer: Optimizer, policy: Policy, *, is_fp16: bool, overflows: tuple[int, ...]
) -> None:
    device = next(model.parameters()).device.type
    scaler = torch.amp.GradScaler(device, init_scale=INIT_SCALE, enabled=is_fp16)
    recipe = Recipe(policy)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16, enabled=is_fp16):
            loss = loss_of(model, step, overflows)
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.unscale_(optimizer)
        is_finite = all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())  # type: ignore[union-attr]
        if is_finite:
            recipe.clip(list(model.named_parameters()))
            optimizer.step()
        else:
            recipe.pass_over()
        if is_fp16:
            scaler.update(scaler.get_scale() * (1.0 if is_finite else 0.5))


def train_with_the_hook(
    monitor: gradsight.Monitor, model: nn.Module, optimizer: Optimizer, steps: range, overflows: tuple[int, ...]
) -> list[gradsight.StepResult]:
    results = []
    for step in steps:
        optimizer.zero_grad()
        with monitor.autocast():
            loss = loss_of(model, step, overflows)
        results.append(monitor.step(loss))
    return results


def monitor_of(model: nn.Module, optimizer: Optimizer, policy: Policy, **kept: Any) -> gradsight.Monitor:
    is_fp16 = kept.get("precision") == "fp16"
    scale: dict[str, Any] = {"loss_scale": gradsight.DynamicScale(init_scale=INIT_SCALE)} if is_fp16 else {}
    return gradsight.Monitor(model, optimizer, clip=policy, **scale, **kept)


def assert_same_parameters(one: nn.Module, other: nn.Module, *, within: float = 2e-6) -> None:
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert float((a - b).detach().abs().max()) <= within * float(a.detach().abs().max())
