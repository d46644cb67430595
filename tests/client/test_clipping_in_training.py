"""Every policy in a training: the parameters of a plain recipe written by hand, what is recorded, what is learned.

The recipe unscales, looks for overflows, clips with float64 norms and steps, as one would write it with torch alone.
"""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from fnmatch import fnmatchcase
from typing import Any

import pytest
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
from gradsight.errors import ConfigurationError
from gradsight.policies import Policy
from gradsight.thresholds import Threshold
from tests.client.conftest import rows, sent
from tests.client.planted import ORDERS, Bench, order_of

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


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> Iterator[str]:
    with order_of(request.param):
        yield request.param


def new_model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 2))


def loss_of(model: nn.Module, step: int, overflows: tuple[int, ...]) -> Tensor:
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 6, generator=generator), torch.randn(8, 2, generator=generator)
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
    scaler = torch.amp.GradScaler("cpu", init_scale=INIT_SCALE, enabled=is_fp16)
    recipe = Recipe(policy)
    for step in range(NUM_STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=is_fp16):
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


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_parameters_are_those_of_the_recipe(policy: Policy, name: str, precision: Any, fused: bool, order: str) -> None:
    by_hand, ours = new_model(), new_model()
    train_by_hand(
        by_hand,
        OPTIMIZERS[name](list(by_hand.parameters()), False),
        policy,
        is_fp16=precision == "fp16",
        overflows=OVERFLOWS,
    )
    optimizer = OPTIMIZERS[name](list(ours.parameters()), fused)
    monitor = monitor_of(ours, optimizer, policy, precision=precision)
    results = train_with_the_hook(monitor, ours, optimizer, range(NUM_STEPS), OVERFLOWS)
    assert tuple(result.step for result in results if result.skipped) == OVERFLOWS
    assert any(result.clip_coef is not None and result.clip_coef < 0.95 for result in results)
    # fp16 products make gradients of fp16's precision, and both trainings see them a rounding apart.
    assert_same_parameters(by_hand, ours, within=2e-6 if precision == "fp32" else 2e-4)


LEARNING = [
    policy
    for policy in POLICIES
    if any(word in str(policy) for word in ("ema", "zscore", "percentile", "adaptive", "groups"))
]
"""Policies with a state that is made of finite steps alone."""


@pytest.mark.parametrize("policy", LEARNING, ids=str)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_step_that_is_not_applied_teaches_nothing(policy: Policy, precision: Any, order: str) -> None:
    model = new_model()
    optimizer = SGD(model.parameters(), lr=0.01)
    monitor = monitor_of(model, optimizer, policy, precision=precision)
    train_with_the_hook(monitor, model, optimizer, range(6), ())
    learned = deepcopy(monitor.state_dict()["thresholds"])
    assert learned
    results = train_with_the_hook(monitor, model, optimizer, range(6, 9), (6, 7, 8))
    assert all(result.skipped for result in results)
    assert monitor.state_dict()["thresholds"] == learned
    optimizer.zero_grad()
    monitor.backward(loss_of(model, 9, ()))
    assert monitor.skip().skip_reason == "user"
    assert monitor.state_dict()["thresholds"] == learned


def test_one_bad_layer_keeps_the_others_from_learning(order: str) -> None:
    policy = Groups({"layer0": TensorAdaptive(warmup_steps=1), "layer1": TensorNorm(Ema(warmup_steps=1)), "*": Ema()})  # type: ignore[dict-item]
    bench = Bench([[1.0]] * 3, clip=policy)
    bench.step([[1.0], [1.0], [1.0]])
    learned = deepcopy(bench.monitor.state_dict()["thresholds"])
    for bad in range(3):
        grads = [[9.0], [9.0], [9.0]]
        grads[bad] = [math.nan]
        assert bench.step(grads).skipped
    assert bench.monitor.state_dict()["thresholds"] == learned


# State


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_resumed_training_goes_on_exactly(policy: Policy, precision: Any, order: str, tmp_path: Any) -> None:
    straight, first = new_model(), new_model()
    optimizer = SGD(straight.parameters(), lr=0.05)
    monitor = monitor_of(straight, optimizer, policy, precision=precision)
    expected = train_with_the_hook(monitor, straight, optimizer, range(NUM_STEPS), OVERFLOWS)

    optimizer = SGD(first.parameters(), lr=0.05)
    monitor = monitor_of(first, optimizer, policy, precision=precision)
    train_with_the_hook(monitor, first, optimizer, range(7), OVERFLOWS)
    torch.save({"model": first.state_dict(), "monitor": monitor.state_dict()}, tmp_path / "checkpoint")

    saved = torch.load(tmp_path / "checkpoint", weights_only=True)  # plain values only
    second = new_model()
    second.load_state_dict(saved["model"])
    optimizer = SGD(second.parameters(), lr=0.05)
    monitor = monitor_of(second, optimizer, policy, precision=precision)
    monitor.load_state_dict(saved["monitor"])
    resumed = train_with_the_hook(monitor, second, optimizer, range(7, NUM_STEPS), OVERFLOWS)
    assert [repr(result) for result in resumed] == [repr(result) for result in expected[7:]]
    assert_same_parameters(straight, second, within=0.0)


def _breakages(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """A name and a state that is wrong in one place, for every place there is."""
    yield "no mapping", None
    yield "empty", {}
    for key in ("num_steps", "policy", "thresholds", "scaler"):
        yield f"without {key}", {name: value for name, value in state.items() if name != key}
    for count in (-1, 1.5, "3", None):
        yield f"num_steps {count!r}", {**state, "num_steps": count}
    yield "thresholds of another kind", {**state, "thresholds": {"other": {}}}
    yield "no thresholds", {**state, "thresholds": None}
    for name in state["thresholds"]:
        for wrong in (None, {"layer0": {"num_norms": -1}}, {"num_steps": 1, "gamma": {"0.weight": None}}, [1]):
            yield f"{name} {wrong!r}", {**state, "thresholds": {**state["thresholds"], name: wrong}}
    if state["scaler"] is not None:
        yield "no scaler", {**state, "scaler": None}
        for name, value in state["scaler"].items():
            yield f"scaler {name}", {**state, "scaler": {**state["scaler"], name: f"{value}"}}
        yield "half a scaler", {**state, "scaler": {"scale": 2.0}}


@pytest.mark.parametrize("policy", [*LEARNING, POLICIES[5]], ids=str)
@pytest.mark.parametrize("scale", [None, gradsight.DynamicScale(1024.0), gradsight.DynamicScale(1024.0, hysteresis=2)])
def test_a_broken_state_is_refused_and_changes_nothing(policy: Policy, scale: Any) -> None:
    model = new_model()
    optimizer = SGD(model.parameters(), lr=0.05)
    kept: dict[str, Any] = {} if scale is None else {"precision": "fp16", "loss_scale": scale}
    monitor = gradsight.Monitor(model, optimizer, clip=policy, **kept)
    train_with_the_hook(monitor, model, optimizer, range(5), (1,))
    good = monitor.state_dict()
    train_with_the_hook(monitor, model, optimizer, range(5, 8), ())
    before = deepcopy(monitor.state_dict())
    for what, broken in _breakages(good):
        print(what)  # shown where this one is taken
        with pytest.raises(ConfigurationError):
            monitor.load_state_dict(broken)
        assert monitor.state_dict() == before, what
    monitor.load_state_dict(good)
    assert monitor.state_dict() == good


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_state_of_another_policy_is_refused_and_changes_nothing(policy: Policy) -> None:
    model = new_model()
    optimizer = SGD(model.parameters(), lr=0.05)
    state = gradsight.Monitor(model, optimizer, clip=policy).state_dict()
    for other in (*POLICIES, None):
        monitor = gradsight.Monitor(model, optimizer, clip=other)
        before = monitor.state_dict()
        if other is policy:
            continue
        with pytest.raises(ConfigurationError, match="state must be of policy"):
            monitor.load_state_dict(state)
        assert monitor.state_dict() == before


# What is recorded


def test_groups_are_clipped_and_recorded_apart(run: gradsight.Run, order: str) -> None:
    """A mixture of experts whose router is held tighter than the rest."""
    named = {"layers.0.router.weight": [3.0, 4.0], "layers.0.experts.0": [6.0, 8.0], "layers.0.experts.1": [0.0, 24.0]}
    parameters = [(name, nn.Parameter(torch.zeros(2))) for name in named]
    optimizer = SGD([parameter for _, parameter in parameters], lr=1.0)
    policy = Groups({"*router*": GlobalNorm(0.5), "*": GlobalNorm(13.0)})
    monitor = gradsight.Monitor(parameters, optimizer, run=run, clip=policy)
    loss = torch.stack([(p * torch.tensor(named[name])).sum() for name, p in parameters]).sum()
    result = monitor.step(loss)
    router, *experts = (-parameter.detach() for _, parameter in parameters)
    assert router.tolist() == pytest.approx([0.3, 0.4])
    assert torch.cat(experts).tolist() == pytest.approx([3.0, 4.0, 0.0, 12.0])
    assert result.grad_norm_before_clip == pytest.approx(math.hypot(5, 26))
    assert result.max_norm is None
    assert result.clip_coef == pytest.approx(math.hypot(0.5, 13) / math.hypot(5, 26))
    transport = sent(run)
    assert rows(transport)["clipped_layer_fraction"] == [1.0]
    of_router, of_rest = rows(transport, "main/*router*"), rows(transport, "main/*")
    assert (of_router["grad_norm_before_clip"], of_router["max_norm"]) == ([pytest.approx(5.0)], [0.5])
    assert of_router["clip_coef"] == [pytest.approx(0.1)]
    assert (of_rest["grad_norm_before_clip"], of_rest["max_norm"]) == ([pytest.approx(26.0)], [13.0])
    assert of_rest["clip_coef"] == [pytest.approx(0.5)]


def test_the_run_is_told_of_every_group(run: gradsight.Run) -> None:
    model = new_model()
    policy = Groups({"0.*": GlobalNorm(0.5), "*": Value(1.0)})
    gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), run=run, stream="generator", clip=policy)
    records = [record for records in sent(run).runs.values() for record in records]
    streams = {name: stream for record in records for name, stream in (record.streams or {}).items()}
    assert {name: record.policy for name, record in streams.items()} == {
        "generator": str(policy),
        "generator/0.*": "global_norm(0.5)",
        "generator/*": "value(1.0)",
    }


def test_a_pattern_that_matches_nothing_is_refused_by_name() -> None:
    model = new_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    for policies, pattern in (({"*router*": 0.1, "*": 1.0}, r"\*router\*"), ({"*": 1.0, "0.*": 0.1}, r"0\.\*")):
        with pytest.raises(ConfigurationError, match=f"'{pattern}'; layers are 0.weight, 0.bias"):
            gradsight.Monitor(model, optimizer, clip=Groups(policies))  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if not policy.has_global_coef], ids=str)
def test_without_one_coefficient_the_effective_one_is_recorded(policy: Policy, run: gradsight.Run, order: str) -> None:
    model = new_model()
    optimizer = SGD(model.parameters(), lr=0.05)
    monitor = gradsight.Monitor(model, optimizer, run=run, clip=policy)
    for step in range(6):
        optimizer.zero_grad()
        monitor.backward(loss_of(model, step, ()))
        before = {
            name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None
        }
        result = monitor.step()
        after = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        norm_before = math.hypot(*(float(grad.norm()) for grad in before.values()))
        norm_after = math.hypot(*(float(grad.norm()) for grad in after.values()))
        assert result.clip_coef == pytest.approx(norm_after / norm_before, rel=1e-5)
        assert result.max_norm == (policy.max_norm if str(policy) == "tensor_norm(0.1)" else None)  # type: ignore[union-attr]
        changed = [bool(float(after[name].norm()) < float(grad.norm()) * (1 - 1e-4)) for name, grad in before.items()]
        assert result._reading.values()["clipped_layer_fraction"] == pytest.approx(sum(changed) / len(changed))
    assert rows(sent(run))["clipped_layer_fraction"][-1] == pytest.approx(sum(changed) / len(changed))
