"""Gradients and models that are not the usual ones."""

import copy
import math
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer
from torch.utils.checkpoint import checkpoint

import gradsight
from gradsight import Cosine, Ema, GlobalNorm, Groups, TensorAdaptive, TensorNorm, UnitNorm, Value
from gradsight.errors import ConfigurationError
from gradsight.norms import layer_norms_on_host
from gradsight.policies import Policy
from tests.client.conftest import layer_rows, rows, sent, small_model
from tests.client.planted import ORDERS, Bench, close, loss_with, order_of, take_step

POLICIES: list[Policy] = [
    GlobalNorm(0.5),
    GlobalNorm(0.5, norm_type=math.inf),
    GlobalNorm(Ema(warmup_steps=1)),
    TensorNorm(0.3),
    Value(0.2),
    UnitNorm(0.05),
    TensorAdaptive(warmup_steps=2, max_norm=0.5),
    Groups({"0.*": TensorNorm(0.2), "*": GlobalNorm(0.3)}),
    Groups({"0.*": UnitNorm(0.05), "*": Value(0.2)}),
]


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> Iterator[str]:
    with order_of(request.param):
        yield request.param


def differences(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs if a.numel())


# Sparse gradients


def embedder(*, sparse: bool) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 6, sparse=sparse), nn.Flatten(), nn.Linear(18, 2))


WORDS = [torch.tensor([[1, 1, 2]]), torch.tensor([[7, 3, 3]]), torch.tensor([[1, 19, 0]]), torch.tensor([[2, 2, 2]])]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("policy", [None, *POLICIES], ids=str)
def test_sparse_gradients_are_clipped_as_dense_ones(policy: Policy | None, precision: Any, order: str) -> None:
    models = [embedder(sparse=sparse) for sparse in (True, False)]
    norms: list[list[float | None]] = []
    for model in models:
        scale: dict[str, Any] = {"loss_scale": 256.0} if precision == "fp16" else {}
        optimizer = SGD(model.parameters(), lr=0.1)
        monitor = gradsight.Monitor(model, optimizer, precision=precision, clip=policy, **scale)
        norms.append([])
        for words in WORDS:
            optimizer.zero_grad()
            norms[-1].append(monitor.step(model(words).square().sum()).grad_norm_before_clip)
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert differences(*models) < 1e-6


def test_a_sparse_gradient_that_is_only_measured_is_left_as_it_is(run: gradsight.Run, order: str) -> None:
    model = embedder(sparse=True)
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), run=run)
    monitor.backward(model(WORDS[0]).sum())
    grad = model[0].weight.grad
    assert isinstance(grad, Tensor)
    assert not grad.is_coalesced()
    true_norm = float(grad.coalesce().values().norm())
    monitor.step()
    assert model[0].weight.grad is grad
    assert (grad.is_coalesced(), grad._nnz()) == (False, 3)
    assert layer_rows(sent(run))[0][1][0] == pytest.approx(true_norm, rel=1e-6)


def test_a_sparse_gradient_is_never_made_dense() -> None:
    words, values = torch.tensor([[5, 5, 10**11]]), torch.tensor([[3.0], [0.0], [4.0]])
    grad = torch.sparse_coo_tensor(words, values, (10**12, 1), check_invariants=True)  # 4 TB, made dense
    assert layer_norms_on_host([grad]) == [5.0]


def test_sparse_adam_is_an_optimizer_like_others() -> None:
    table = nn.Embedding(20, 6, sparse=True)
    optimizer = torch.optim.SparseAdam(list(table.parameters()))
    monitor = gradsight.Monitor(table, optimizer, clip=0.1)
    assert monitor.step(table(torch.tensor([1, 1, 2])).sum()).clip_coef == pytest.approx(0.1 / math.sqrt(30), rel=1e-5)


# Complex, empty, and mixed


@pytest.mark.parametrize(
    ("policy", "applied"),
    [
        (None, 3 + 4j),
        (GlobalNorm(1.0), (3 + 4j) / 13),
        (GlobalNorm(1.0, norm_type=math.inf), (3 + 4j) / 12),
        (TensorNorm(1.0), (3 + 4j) / 5),
        (Value(3.5), 3 + 3.5j),
        (UnitNorm(1000.0, eps=1e-3), (3 + 4j) / 5),
        (TensorAdaptive(max_norm=1.0), (3 + 4j) / 13),
    ],
)
def test_complex_gradients_are_clipped_by_their_absolute_value(policy: Any, applied: complex, order: str) -> None:
    grads = [torch.tensor([3 + 4j]), torch.tensor(12.0), torch.zeros(0, 5)]
    bench = Bench(grads, clip=policy)
    result, taken = bench.applied(grads)
    is_largest = isinstance(policy, GlobalNorm) and policy.norm_type == math.inf
    assert result.grad_norm_before_clip == pytest.approx(12.0 if is_largest else 13.0)
    assert close(taken[:1], [torch.tensor([applied])], rtol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("policy", [None, *POLICIES[:-2], Groups({"layer0": 1.0, "*": TensorNorm(0.5)})], ids=str)  # type: ignore[dict-item]
def test_empty_parameters_take_part(policy: Policy | None, fused: bool, run: gradsight.Run, order: str) -> None:
    grads = [torch.zeros(0, 5), torch.zeros(0), torch.tensor(0.25), torch.tensor([0.0, 0.5])]
    bench = Bench(grads, fused=fused, clip=policy, run=run)
    for _ in range(2):
        assert bench.step(grads).skipped is False
    assert layer_rows(sent(run))[0][1][:2] == (0.0, 0.0)


@pytest.mark.parametrize("policy", [None, *POLICIES[:-2]], ids=str)
def test_mixed_dtypes_are_clipped_together(policy: Policy | None, order: str) -> None:
    dtypes = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    parameters = [nn.Parameter(torch.ones(4, dtype=dtype)) for dtype in dtypes]
    alike = [nn.Parameter(torch.ones(4)) for _ in dtypes]
    for held in (parameters, alike):
        named = [(f"layer{index}", parameter) for index, parameter in enumerate(held)]
        optimizer = SGD(held, lr=1.0)
        monitor = gradsight.Monitor(named, optimizer, clip=policy)
        for grads in ([[0.25] * 4] * 4, [[2.0] * 4] * 4):
            take_step(monitor, optimizer, held, grads)
    for one, other in zip(parameters, alike, strict=True):
        assert torch.allclose(one.float(), other, rtol=2e-2)


# Norms past float32


@pytest.mark.parametrize("policy", [GlobalNorm(1.0), TensorNorm(1.0), TensorAdaptive(), Groups({"*": GlobalNorm(1.0)})])
def test_finite_gradients_with_a_huge_norm_are_no_overflow(policy: Policy, run: gradsight.Run, order: str) -> None:
    bench = Bench([[0.0] * 4], clip=policy, run=run)
    result, applied = bench.applied([[1e30] * 4])
    assert result.skipped is False
    assert result.grad_norm_before_clip == pytest.approx(2e30, rel=1e-6)
    assert close(applied, [[0.5] * 4], rtol=1e-5)
    assert bench.step([[1e30, 1e30, math.inf, 1e30]]).skip_reason == "nonfinite"
    recorded = rows(sent(run))
    assert recorded["num_nonfinite_layers"] == [0, 1]
    assert recorded["nonfinite_kind"] == [None, "inf"]


@pytest.mark.parametrize("norm_type", [0.001, 0.5, 9.0, 100.0])
def test_a_norm_of_any_order_never_raises(norm_type: float) -> None:
    bench = Bench([[0.0] * 3, [0.0] * 2], clip=GlobalNorm(1.0, norm_type=norm_type))
    for size in (1e-30, 1.0, 1e30):
        result = bench.step([[size] * 3, [size] * 2])
        assert result.grad_norm_before_clip is not None
        if norm_type > 0.1:
            assert result.grad_norm_before_clip == pytest.approx(size * 5 ** (1 / norm_type), rel=1e-5)


# Models that change


def test_a_parameter_thawed_in_mid_run_joins(run: gradsight.Run) -> None:
    model = small_model()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    optimizer = AdamW(model.parameters(), lr=0.01)
    monitor = gradsight.Monitor(model, optimizer, run=run, clip=1.0)
    for step in range(4):
        if step == 2:
            for parameter in model[0].parameters():
                parameter.requires_grad_(True)
        optimizer.zero_grad()
        monitor.step(model(torch.ones(2, 4)).square().sum())
    transport = sent(run)
    assert rows(transport)["num_layers_without_grad"] == [2, 2, 0, 0]
    assert [[norm == -1.0 for norm in norms] for _, norms in layer_rows(transport)] == [
        [True, True, False, False]
    ] * 2 + [[False] * 4] * 2


def test_layers_added_in_front_are_found_by_name(run: gradsight.Run) -> None:
    """With them the backward order is learned anew: it goes by the places of layers."""
    linears = [nn.Linear(2, 2, bias=False) for _ in range(3)]
    model = nn.Sequential(*linears)
    optimizer = SGD([*model[1].parameters(), *model[2].parameters()], lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run)
    monitor.step(model(torch.ones(1, 2)).sum())
    optimizer.add_param_group({"params": list(model[0].parameters())})
    optimizer.zero_grad()
    # In the new layers' terms the two bad ones are the last to get their gradient and the first.
    for index in (0, 2):
        linears[index].weight.register_hook(lambda grad: grad * math.nan)  # type: ignore[no-untyped-call]
    monitor.step(model(torch.ones(1, 2)).sum())
    assert rows(sent(run))["first_nonfinite_layer"] == [None, "2.weight"]


def test_a_parameter_the_model_does_not_name_gets_a_number(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run, clip=TensorAdaptive(warmup_steps=1))
    monitor.step(model(torch.ones(2, 4)).sum())
    extra = nn.Parameter(torch.ones(3))
    optimizer.add_param_group({"params": [extra]})
    for _ in range(2):
        optimizer.zero_grad()
        monitor.step(model(torch.ones(2, 4)).sum() + extra.sum())
    transport = sent(run)
    names = [batch.layers for _, _, batch in transport.batches if batch.layers is not None]
    assert names[-1] == ["0.weight", "0.bias", "2.weight", "2.bias", "unnamed.0"]
    assert rows(transport)["step"] == [0, 1, 2]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_parameters_put_in_place_of_others_are_measured_and_clipped(precision: Any) -> None:
    """As many as before: Gaussian splatting grows its tensors so, and so does surgery on a layer."""
    model = nn.Linear(4, 1)
    optimizer = SGD(model.parameters(), lr=0.1)
    scale: Any = 16.0 if precision == "fp16" else "dynamic"
    monitor = gradsight.Monitor(model, optimizer, clip=0.5, precision=precision, loss_scale=scale)
    for step in range(4):
        if step == 2:
            model.weight, model.bias = (nn.Parameter(old.detach().clone()) for old in (model.weight, model.bias))
            optimizer.param_groups[0]["params"] = list(model.parameters())
        optimizer.zero_grad()
        before = model.weight.detach().clone()
        result = monitor.step(model(torch.full((8, 4), 3.0)).square().sum())
        assert result.grad_norm_before_clip is not None
        moved = (model.weight - before).norm().detach()
        assert 0.0 < float(moved) <= 0.1 * 0.5 * 1.001, f"step {step}: only the clipped gradient moves the weights"


def test_layers_thawed_later_have_their_place_in_the_order(run: gradsight.Run) -> None:
    linears = [nn.Linear(2, 2, bias=False) for _ in range(3)]
    model = nn.Sequential(*linears)
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run)
    linears[2].weight.requires_grad_(False)
    for step in range(3):
        linears[2].weight.requires_grad_(step > 0)
        if step == 2:
            for linear in (linears[0], linears[2]):
                linear.weight.register_hook(lambda grad: grad * math.nan)  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        monitor.step(model(torch.ones(1, 2)).sum())
    assert rows(sent(run))["first_nonfinite_layer"] == [None, None, "2.weight"]


def test_experts_that_take_turns_keep_their_places_in_the_order(run: gradsight.Run) -> None:
    inner = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(3))
    outer = nn.Linear(2, 2, bias=False)
    optimizer = SGD([*outer.parameters(), *inner.parameters()], lr=0.1)
    monitor = gradsight.Monitor(nn.ModuleList([inner, outer]), optimizer, run=run)
    for expert in (0, 1, 2, 0, 1):
        optimizer.zero_grad()
        monitor.step(outer(inner[expert](torch.ones(1, 2))).sum())
    for weight in (inner[0].get_parameter("weight"), outer.weight):
        weight.register_hook(lambda grad: grad * math.nan)  # type: ignore[no-untyped-call]
    optimizer.zero_grad()
    monitor.step(outer(inner[0](torch.ones(1, 2))).sum())
    assert rows(sent(run))["first_nonfinite_layer"] == [None] * 5 + ["1.weight"]


def test_a_name_that_comes_twice_is_refused() -> None:
    """What a policy learns is kept by name."""
    parameters = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    with pytest.raises(ConfigurationError, match="name each parameter differently, got 'w' more than once"):
        gradsight.Monitor([("w", parameter) for parameter in parameters], SGD(parameters, lr=0.1))


def test_one_meta_parameter_among_others_is_refused_by_name() -> None:
    parameters = [("body", nn.Parameter(torch.ones(2))), ("head", nn.Parameter(torch.ones(2, device="meta")))]
    with pytest.raises(ConfigurationError, match="got meta tensor 'head': materialise it first"):
        gradsight.Monitor(parameters, SGD([parameter for _, parameter in parameters], lr=0.1))


def test_what_is_learned_of_a_layer_waits_for_it(order: str) -> None:
    """A layer that has no gradient for a while is judged by its own past when it comes back."""
    for policy in (TensorNorm(Ema(warmup_steps=1, factor=1.0)), TensorAdaptive(warmup_steps=1, relative=1.0)):
        bench = Bench([[0.0], [0.0]], clip=policy)
        bench.step([[0.5], [0.25]])
        for _ in range(3):
            bench.step([None, [0.25]])
        _, applied = bench.applied([[5.0], [0.25]])
        assert close(applied, [[0.5], [0.25]], rtol=1e-5)


# Models with a life of their own


def test_a_checkpointed_weight_that_is_shared_is_one_layer(run: gradsight.Run) -> None:
    """Gradient hooks fire several times in a backward; what counts is `.grad` at the step."""
    for use_reentrant in (True, False):
        torch.manual_seed(0)
        plain, shared = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        shared.load_state_dict(plain.state_dict())
        x = torch.randn(2, 3, requires_grad=True)
        plain(plain(x)).square().sum().backward()
        assert plain.weight.grad is not None
        stream = f"reentrant {use_reentrant}"
        monitor = gradsight.Monitor(shared, SGD(shared.parameters(), lr=0.1), run=run, stream=stream)
        y = checkpoint(shared, x, use_reentrant=use_reentrant)
        y = checkpoint(shared, y, use_reentrant=use_reentrant)
        result = monitor.step(y.square().sum())
        assert result.grad_norm_before_clip == pytest.approx(float(plain.weight.grad.norm()), rel=1e-6)
    transport = sent(run)
    for use_reentrant in (True, False):
        assert rows(transport, f"reentrant {use_reentrant}")["step"] == [0]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_compiled_model_is_trained_as_the_plain_one(precision: Any, run: gradsight.Run) -> None:
    plain, model = small_model(), small_model()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    for built, forward in ((plain, plain), (model, compiled)):
        optimizer = AdamW(built.parameters(), lr=0.01)
        # The wrapped module names its layers "_orig_mod.…"; pass the one you want to read of.
        kept = {} if built is plain else {"run": run}
        monitor = gradsight.Monitor(built, optimizer, precision=precision, clip=0.5, **kept)  # type: ignore[arg-type]
        with torch._dynamo.config.patch(error_on_recompile=True):
            for step in range(4):
                optimizer.zero_grad()
                with monitor.autocast():
                    loss = forward(torch.full((2, 4), 0.5 + step)).float().square().sum()
                assert monitor.step(loss).skipped is False
    assert differences(plain, model) < 1e-6
    assert rows(sent(run))["first_nonfinite_layer"] == [None] * 4


def test_gradients_with_a_graph_are_taken_without_a_word() -> None:
    """`create_graph=True`, for gradient penalties: torch warns of the cycle it makes, we of nothing."""
    for policy in (None, *POLICIES[:-2]):
        model = small_model()
        monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), clip=policy)
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True")
                model(torch.ones(2, 4)).square().sum().backward(create_graph=True)
            assert all(parameter.grad is not None and parameter.grad.requires_grad for parameter in model.parameters())
            assert monitor.step().skipped is False
            model.zero_grad()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"])
def test_a_model_can_be_copied_after_a_step(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1, fused=True)
    monitor = gradsight.Monitor(model, optimizer, precision="fp16", clip=1.0)
    monitor.step(model(torch.ones(2, 4)).sum())
    again, optimizer_again = copied(model), copied(optimizer)
    assert differences(model, again) == 0.0
    assert len(optimizer_again.param_groups) == 1
    torch.save(model, tmp_path / "model")
    torch.save(optimizer.state_dict(), tmp_path / "optimizer")


def test_a_backward_that_fails_leaves_nothing_behind(run: gradsight.Run) -> None:
    model = small_model()
    optimizer = SGD(model.parameters(), lr=0.1)
    monitor = gradsight.Monitor(model, optimizer, run=run)
    weight = model.get_parameter("2.weight")
    handle = weight.register_hook(lambda grad: 1 / 0)  # type: ignore[no-untyped-call]
    with pytest.raises(ZeroDivisionError):
        monitor.step(model(torch.ones(2, 4)).sum())
    handle.remove()
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).sum()
    assert monitor.step(loss).step == 0
    assert rows(sent(run))["loss"] == [pytest.approx(float(loss.detach()))]


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: SGD(parameters, lr=torch.tensor(0.1), fused=True),
        lambda parameters: SGD(parameters, lr=0.1, maximize=True),
        lambda parameters: SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True),
        lambda parameters: Adam(parameters, lr=torch.tensor(0.1), foreach=False),
        lambda parameters: Adam(parameters, amsgrad=True, fused=True),
        lambda parameters: torch.optim.Rprop(parameters),
        lambda parameters: torch.optim.Muon([parameter for parameter in parameters if parameter.ndim == 2]),
    ],
)
def test_any_optimizer_will_do(make: Callable[[Any], Optimizer], order: str) -> None:
    models = [small_model(), small_model()]
    for model, is_ours in zip(models, (True, False), strict=True):
        optimizer = make(list(model.parameters()))
        monitor = gradsight.Monitor(model, optimizer, clip=0.5)
        held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for step in range(4):
            optimizer.zero_grad()
            loss = model(torch.full((2, 4), 1.0 + step)).square().sum()
            if is_ours:
                monitor.step(loss)
            else:
                loss.backward()
                torch.nn.utils.clip_grad_norm_(held, 0.5)
                optimizer.step()
    assert differences(*models) < 1e-5


# Backwards of the user's own


def test_a_backward_that_reaches_some_layers_only_counts() -> None:
    """Without zero_grad, and past the last layer: its gradient is still the same."""
    bench = Bench([[0.0], [0.0]])
    loss_with(bench.parameters, [[1.0], [1.0]]).backward()  # type: ignore[no-untyped-call]
    assert bench.monitor.step().skipped is False
    assert bench.monitor.step().skip_reason == "no_gradient"
    loss_with(bench.parameters, [[1.0], None]).backward()  # type: ignore[no-untyped-call]
    assert bench.monitor.step().skipped is False
    assert bench.parameters[0].tolist() == [-3.0]  # 1, and 1 + 1 that piled up


def test_one_backward_feeds_two_optimizers() -> None:
    benches = [Bench([[0.0]]), Bench([[0.0]])]
    parameters = [bench.parameters[0] for bench in benches]
    for _ in range(2):
        for bench in benches:
            bench.optimizer.zero_grad()
        benches[0].monitor.backward(loss_with(parameters, [[1.0], [2.0]]))
        assert [bench.monitor.step().grad_norm_before_clip for bench in benches] == [1.0, 2.0]
    assert [bench.monitor.step().skip_reason for bench in benches] == ["no_gradient", "no_gradient"]


def test_a_step_skipped_by_choice_is_not_applied_by_the_next(order: str) -> None:
    bench = Bench([[0.0]], clip=1.0)
    bench.monitor.backward(loss_with(bench.parameters, [[1.0]]))
    assert bench.monitor.skip().skip_reason == "user"
    assert bench.monitor.step().skip_reason == "no_gradient"
    assert bench.parameters[0].tolist() == [0.0]


# Closures


class Quadratic:
    """A parameter that an optimizer with a closure brings to 3; the closure keeps what it was given."""

    def __init__(self, make: Callable[[Any], Optimizer], *, backward_by_us: bool = False, **kept: Any) -> None:
        self.weight = nn.Parameter(torch.zeros(2))
        self.optimizer = make([self.weight])
        self.monitor = gradsight.Monitor([("weight", self.weight)], self.optimizer, **kept)
        self.factors: list[float] = []
        self.seen: list[float] = []
        self._backward_by_us = backward_by_us

    def closure(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = (self.weight - 3.0).square().sum() * (self.factors.pop(0) if self.factors else 1.0)
        if self._backward_by_us:
            self.monitor.backward(loss)
        else:
            loss.backward()  # type: ignore[no-untyped-call]
        self.seen.append(float(loss.detach()))
        return loss


@pytest.mark.parametrize("backward_by_us", [True, False])
def test_a_step_with_several_evaluations_is_one(backward_by_us: bool, run: gradsight.Run) -> None:
    task = Quadratic(lambda p: LBFGS(p, lr=0.3, max_iter=4), backward_by_us=backward_by_us, run=run)
    firsts = []
    for _ in range(2):
        firsts.append(len(task.seen))
        task.monitor.step(closure=task.closure)
    assert len(task.seen) > 4
    recorded = rows(sent(run))
    assert recorded["step"] == [0, 1]
    assert recorded["loss"] == pytest.approx([task.seen[first] for first in firsts])
    assert recorded["skipped"] == [False, False]


@pytest.mark.parametrize(
    "policy", [GlobalNorm(Cosine(1.0, 0.5, total_steps=9)), GlobalNorm(Ema(warmup_steps=2)), TensorAdaptive()]
)
def test_thresholds_learn_once_a_step(policy: Policy) -> None:
    task = Quadratic(lambda p: LBFGS(p, lr=0.1, max_iter=5), clip=policy)
    for _ in range(3):
        task.monitor.step(closure=task.closure)
    assert len(task.seen) > 6
    (state,) = task.monitor.state_dict()["thresholds"].values()
    assert next(value for name, value in state.items() if name.startswith("num_")) == 3


@pytest.mark.parametrize("make", [lambda p: LBFGS(p, max_iter=4), lambda p: SGD(p, lr=0.1)])
@pytest.mark.parametrize("clip", [None, 1.0, Value(0.5)])
def test_a_closure_that_is_not_finite_at_first_changes_nothing(make: Any, clip: Any, run: gradsight.Run) -> None:
    task = Quadratic(make, run=run, clip=clip)
    task.factors = [math.nan]
    result = task.monitor.step(closure=task.closure)
    assert (result.skipped, result.skip_reason) == (True, "nonfinite")
    assert (task.weight.tolist(), len(task.seen)) == ([0.0, 0.0], 1)
    assert task.monitor.step(closure=task.closure).skipped is False
    assert all(weight > 0 for weight in task.weight.tolist())
    assert rows(sent(run))["num_nonfinite_layers"] == [1, 0]


def test_a_closure_that_is_not_finite_later_on_is_taken_back(run: gradsight.Run) -> None:
    task = Quadratic(lambda p: LBFGS(p, lr=0.1, max_iter=4, tolerance_grad=0.0, tolerance_change=0.0), run=run)
    alone = Quadratic(lambda p: LBFGS(p, lr=0.1, max_iter=4, tolerance_grad=0.0, tolerance_change=0.0))
    for each in (task, alone):
        each.monitor.step(closure=each.closure)
    before = task.weight.tolist()
    task.factors = [1.0, 1.0, math.nan]
    result = task.monitor.step(closure=task.closure)
    assert (result.skipped, result.skip_reason) == (True, "nonfinite")
    assert task.weight.tolist() == before
    for each in (task, alone):  # the history is that of before, too
        assert each.monitor.step(closure=each.closure).skipped is False
    assert task.weight.tolist() == alone.weight.tolist()
    assert rows(sent(run))["skipped"] == [False, True, False]


def test_a_line_search_comes_back_from_where_the_loss_is_not_finite() -> None:
    task = Quadratic(lambda p: LBFGS(p, max_iter=4, line_search_fn="strong_wolfe"))
    task.factors = [1.0, math.inf]
    assert task.monitor.step(closure=task.closure).skipped is False
    assert task.weight.tolist() == pytest.approx([3.0, 3.0], abs=1e-3)


def test_a_closure_is_left_to_itself_where_nothing_is_to_be_skipped() -> None:
    task = Quadratic(lambda p: LBFGS(p, lr=0.1, max_iter=4), skip_nonfinite=False)
    task.factors = [1.0, math.nan]
    assert task.monitor.step(closure=task.closure).skipped is False
    assert not task.weight.isfinite().any()


def test_a_closure_without_a_gradient_is_a_step_without_one(run: gradsight.Run) -> None:
    task = Quadratic(lambda p: SGD(p, lr=0.1), run=run)
    result = task.monitor.step(closure=lambda: torch.zeros(()))
    assert result.skip_reason == "no_gradient"


def test_every_evaluation_is_clipped() -> None:
    task = Quadratic(lambda p: SGD(p, lr=1.0), clip=0.5)
    result = task.monitor.step(closure=task.closure)
    assert result.grad_norm_before_clip == pytest.approx(6 * math.sqrt(2))
    assert task.weight.tolist() == pytest.approx([0.5 / math.sqrt(2)] * 2)
