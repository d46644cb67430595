"""Every policy in a training: the parameters of the recipe by hand, what is recorded, what is learned."""

import math
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

import gradsight
from gradsight import Ema, GlobalNorm, Groups, TensorAdaptive, TensorNorm, Value
from gradsight.errors import ConfigurationError
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
from tests.client.conftest import rows, sent
from tests.client.planted import ORDERS, Bench, order_of


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> Iterator[str]:
    with order_of(request.param):
        yield request.param


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


def _tied_model() -> nn.Module:
    """An embedding that is the head too: its first name says nothing of the head."""
    model = nn.ModuleDict({"embedding": nn.Linear(4, 4, bias=False), "head": nn.Linear(4, 4, bias=False)})
    model["head"].weight = model["embedding"].weight
    model["body"] = nn.Linear(4, 4, bias=False)
    return model


def test_a_tied_weight_belongs_to_the_group_of_any_of_its_names() -> None:
    model = _tied_model()
    optimizer = SGD(model.parameters(), lr=1.0)
    policy = Groups({"head.*": 0.25, "*": 1.0})  # type: ignore[dict-item]
    monitor = gradsight.Monitor(model, optimizer, clip=policy)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)  # norm 4
    before = [parameter.detach().clone() for parameter in model.parameters()]
    monitor.step()
    moved = [float((old - new.detach()).norm()) for old, new in zip(before, model.parameters(), strict=True)]
    assert moved == pytest.approx([0.25, 1.0], rel=1e-4)


def test_a_tied_weight_is_excluded_by_any_of_its_names() -> None:
    model = _tied_model()
    optimizer = SGD(model.parameters(), lr=1.0)
    monitor = gradsight.Monitor(model, optimizer, clip=gradsight.UnitNorm(exclude=("head.*",)))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    monitor.step()
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert torch.equal(grads[0], torch.ones(4, 4))
    assert float(grads[1].max()) < 0.1
