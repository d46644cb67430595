"""What PyTorch does that a hook has to survive, each shown as torch does it and as a step of ours comes out."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import FileStore
from torch.amp import GradScaler
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

import gradsight
from gradsight import GlobalNorm, Groups, TensorAdaptive, TensorNorm, UnitNorm, Value
from gradsight.errors import ConfigurationError
from gradsight.norms import layer_norms_on_host
from tests.client.conftest import rows, sent, small_model
from tests.client.planted import ORDERS, Bench, loss_with, order_of, take_step

POLICIES = [
    None,
    GlobalNorm(1.0),
    TensorNorm(1.0),
    Value(1.0),
    UnitNorm(),
    TensorAdaptive(),
    Groups({"*": GlobalNorm(1.0)}),
    Groups({"*": Value(1.0)}),
]


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest) -> Iterator[str]:
    with order_of(request.param):
        yield request.param


# Fused SGD allocates its momentum uninitialised and, on an overflow, leaves it so


def planted_steps(optimizer: Optimizer, parameters: list[nn.Parameter], steps: list[list[Any]], **kept: Any) -> None:
    named = [(f"layer{index}", parameter) for index, parameter in enumerate(parameters)]
    monitor = gradsight.Monitor(named, optimizer, precision="fp16", loss_scale=4.0, **kept)
    for grads in steps:
        take_step(monitor, optimizer, parameters, grads)


@pytest.mark.parametrize("clip", [None, 1.0, Value(1.0)])
@pytest.mark.parametrize("dampening", [0.0, 0.5])
def test_momentum_begins_with_the_first_applied_step(dampening: float, clip: Any, order: str) -> None:
    results = []
    for fused in (True, False):
        parameters = [nn.Parameter(torch.ones(1000)) for _ in range(3)]
        one, bad = torch.ones(1000), torch.full((1000,), math.inf)
        # The first parameter has no gradient for a while, and the second group none at first.
        optimizer = SGD(
            [{"params": parameters[:2]}, {"params": parameters[2:]}],
            lr=0.1,
            momentum=0.9,
            dampening=dampening,
            fused=fused,
        )
        steps = [[None, bad, None], [None, bad, None], [None, one, None], [None, one, bad], [None, -one, bad]]
        steps += [[None, one, one], [None, bad, one], [None, one, one]]
        planted_steps(optimizer, parameters, steps, clip=clip)
        results.append([parameter.detach() for parameter in parameters])
    for fused_one, plain_one in zip(*results, strict=True):
        assert torch.allclose(fused_one, plain_one, rtol=1e-6)


def test_a_first_parameter_that_never_learns_does_not_hold_up_the_rest() -> None:
    """Waiting for its momentum, every step would read from the device."""
    bench = Bench([[0.0], [0.0]], fused=True)
    bench.optimizer.param_groups[0]["momentum"] = 0.9
    bench.step([None, [1.0]])
    assert bench.monitor._amp._has_safe_state()
    bench.optimizer.state[bench.parameters[1]]["momentum_buffer"] = None  # as older checkpoints have it
    assert not bench.monitor._amp._has_safe_state()


# found_inf has to be 0-dim and exactly 0 or 1: the kernel applies a step with 2


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW, Adagrad])
def test_the_kernel_is_given_exactly_zero_or_one(kind: Any) -> None:
    given: list[Tensor] = []
    parameters = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))]
    optimizer = kind(parameters, lr=0.1, fused=True)
    optimizer.register_step_pre_hook(lambda optimizer, *_: given.append(optimizer.found_inf))
    named = [("a", parameters[0]), ("b", parameters[1])]
    with order_of("device"):
        monitor = gradsight.Monitor(named, optimizer, precision="fp16", loss_scale=4.0)
        bad = [[math.inf, math.nan, 1.0], [math.inf, -math.inf]]
        for grads in ([[1.0] * 3, [1.0] * 2], bad, [[1.0] * 3, [math.nan] * 2], [[1.0] * 3, [1.0] * 2]):
            before = [parameter.detach().clone() for parameter in parameters]
            skipped = take_step(monitor, optimizer, parameters, grads).skipped
            is_same = [torch.equal(old, new) for old, new in zip(before, parameters, strict=True)]
            assert is_same == [skipped, skipped]
    assert [(flag.ndim, flag.dtype, flag.item()) for flag in given] == [
        (0, torch.float32, flag) for flag in (0.0, 1.0, 1.0, 0.0)
    ]
    assert not hasattr(optimizer, "found_inf")
    assert not hasattr(optimizer, "grad_scale")


def test_two_overflows_at_once_are_one_to_the_scaler(order: str) -> None:
    scaler = GradScaler("cpu", init_scale=16.0)
    benches = [
        Bench([[0.0]], fused=True, precision="fp16", loss_scale=scaler, update_scaler=is_last)
        for is_last in (False, False, True)
    ]
    for bench in benches:
        bench.step([[math.inf]])
    assert scaler.get_scale() == 8.0
    assert [bench.parameters[0].tolist() for bench in benches] == [[0.0]] * 3


def test_what_a_user_has_set_on_the_optimizer_is_gone_after_an_error() -> None:
    """Nor is anything of ours left behind where the optimizer raises."""
    bench = Bench([[0.0]], fused=True, precision="fp16", loss_scale=4.0)

    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    handle = bench.optimizer.register_step_pre_hook(broken)
    for name in ORDERS:
        with order_of(name), pytest.raises(RuntimeError, match="out of memory"):
            bench.step([[1.0]])
        assert not {"found_inf", "grad_scale"} & vars(bench.optimizer).keys()
    handle.remove()
    assert bench.step([[1.0]]).skipped is False


# A scaler made for shards gives fused kernels a flag of another shape, and the sum over ranks


@pytest.mark.parametrize("fused", [True, False])
def test_a_sharded_scaler_is_as_good_as_any(fused: bool, order: str, tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        scaler = ShardedGradScaler("cpu", init_scale=16.0, growth_interval=2)
        bench = Bench([[0.0]], fused=fused, precision="fp16", loss_scale=scaler)
        results = [bench.step([[gradient]]) for gradient in (1.0, math.inf, 1.0, 1.0, 1.0)]
    finally:
        torch.distributed.destroy_process_group()
    assert [result.loss_scale for result in results] == [16.0, 16.0, 8.0, 8.0, 16.0]
    assert bench.parameters[0].tolist() == [-4.0]


# Norms on the CPU are biased low: 1.1 % at 100 M elements


def test_the_norm_of_a_hundred_million_elements_is_right() -> None:
    grad = torch.full((100_000_000,), 0.1)
    exact = float(torch.tensor(0.1)) * 1e4
    assert layer_norms_on_host([grad]) == [pytest.approx(exact, rel=1e-6)]
    assert layer_norms_on_host([grad[:50_000_000].half()]) == [pytest.approx(0.1 * math.sqrt(5e7), rel=3e-4)]


@pytest.mark.parametrize("norm_type", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("numel", [10_000, 200_000, 3_000_000])
def test_other_norms_of_many_elements_are_right_too(numel: int, norm_type: float) -> None:
    torch.manual_seed(0)
    grad = torch.randn(numel)
    exact = float(torch.linalg.vector_norm(grad.double(), norm_type))
    assert layer_norms_on_host([grad], norm_type) == [pytest.approx(exact, rel=1e-6)]


# fp16 gradients have a norm in fp16, infinite above 65504, a ratio of zero, and zeros for gradients


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_gradients_are_not_zeroed(dtype: torch.dtype, order: str) -> None:
    bench = Bench([[0.0] * 4], dtype=dtype, clip=1.0)
    result, applied = bench.applied([[6e4] * 4])
    assert result.grad_norm_before_clip == pytest.approx(1.2e5, rel=1e-2)
    assert applied[0].tolist() == pytest.approx([0.5] * 4, rel=1e-2)


# After an overflow torch leaves gradients unscaled, or scaled where the optimizer is fused


@pytest.mark.parametrize("fused", [True, False])
def test_after_an_overflow_gradients_are_as_they_were(fused: bool, order: str) -> None:
    bench = Bench([[0.0, 0.0]], fused=fused, precision="fp16", loss_scale=4.0, clip=1.0)
    bench.step([[math.inf, 1.0]])
    assert bench.parameters[0].grad is not None
    assert bench.parameters[0].grad.tolist() == [math.inf, 4.0]


# A closure goes past torch's scaler as a positional argument


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_closure_by_position_is_refused(precision: Any) -> None:
    model = small_model()
    monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.1), precision=precision)
    with pytest.raises(ConfigurationError, match=r"loss must be a tensor, got <function .*step\(closure=…\)"):
        monitor.step(lambda: model(torch.ones(1, 4)).sum())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"loss must be a tensor, got 0\.5"):
        monitor.step(0.5)  # type: ignore[arg-type]
    assert monitor.num_steps == 0


# Clipping nothing: clip_grad_value_ raises, clip_grad_norm_ says 0


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_there_may_be_nothing_to_clip(policy: Any, precision: Any, run: gradsight.Run, order: str) -> None:
    bench = Bench([None, None], precision=precision, clip=policy, run=run)
    result = bench.monitor.step()
    assert (result.skip_reason, result.grad_norm_before_clip, result.clip_coef) == ("no_gradient", None, None)
    assert bench.step([[0.0], None]).skipped is False
    assert bench.monitor.step(loss_with(bench.parameters, [None, [0.5]])).skipped is False
    recorded = rows(sent(run))
    assert recorded["num_layers_without_grad"] == [2, 1, 0]
    assert recorded["grad_norm_before_clip"] == [None, 0.0, 0.5]
