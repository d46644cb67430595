"""One small training in three ways: PyTorch's plain recipe on the joint batch, and the same data split over ranks with
PyTorch's own recipe or with the hook. Run on ranks, so everything a function gives has to be plain numbers."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adagrad, AdamW, Optimizer

import gradsight
from gradsight.amp import AmpStep

INIT_SCALE = 1024.0  # low enough that fp16 overflows only where a recipe makes it
ROWS = 8
"""Of the joint batch; a rank takes its share of them."""
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    "sgd": lambda parameters: SGD(parameters, lr=0.05, momentum=0.9),
    "sgd-foreach": lambda parameters: SGD(parameters, lr=0.05, momentum=0.9, foreach=True),
    "adamw": lambda parameters: AdamW(parameters, lr=1e-3),
    "adamw-foreach": lambda parameters: AdamW(parameters, lr=1e-3, foreach=True),
    "adamw-fused": lambda parameters: AdamW(parameters, lr=1e-3, fused=True),
    "adagrad": lambda parameters: Adagrad(parameters, lr=0.05),
}


@dataclass(frozen=True)
class Recipe:
    """What every way of training has in common."""

    clip: float | str | None = 0.3
    norm_type: float = 2.0
    optimizer: str = "sgd"
    precision: Literal["fp32", "fp16"] = "fp32"
    num_steps: int = 10
    num_parts: int = 1
    """Micro-batches a step."""
    sizes: tuple[int, int, int] = (6, 7, 5)
    """Of the layers; two ranks cannot share the first choice evenly."""
    overflow: tuple[tuple[int, int], ...] = ()
    """(step, rank) at which that rank's loss overflows."""


@dataclass
class Trained:
    """What came of it, as one rank saw it."""

    parameters: list[list[float]] = field(default_factory=list)
    norms: list[float | None] = field(default_factory=list)
    coefs: list[float | None] = field(default_factory=list)
    layer_norms: list[list[float]] = field(default_factory=list)
    skipped: list[bool] = field(default_factory=list)
    scales: list[float | None] = field(default_factory=list)
    num_all_reduces: list[int] = field(default_factory=list)
    num_collectives: list[int] = field(default_factory=list)


def new_model(recipe: Recipe) -> nn.Sequential:
    """Its last bias leaves all but one of several ranks empty."""
    torch.manual_seed(0)
    a, b, c = recipe.sizes
    return nn.Sequential(nn.Linear(a, b), nn.Tanh(), nn.Linear(b, c), nn.Tanh(), nn.Linear(c, 1))


def sharded_model(recipe: Recipe, mesh: DeviceMesh | None = None) -> nn.Sequential:
    model = new_model(recipe)
    if mesh is not None and "tp" in (mesh.mesh_dim_names or ()):
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        mesh = mesh["dp"]
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def loss_of(model: nn.Module, step: int, part: int, num_parts: int, rank: int, num_ranks: int, bad: bool) -> Tensor:
    """The mean loss of this rank's rows of one micro-batch."""
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(ROWS, model_width(model), generator=generator) * 3, torch.randn(ROWS, 1, generator=generator)
    size = ROWS // num_parts // num_ranks
    first = part * (ROWS // num_parts) + rank * size
    rows = slice(first, first + size)
    loss: Tensor = (model(x[rows]) - y[rows]).float().square().mean()
    return loss * float("inf") if bad else loss


def model_width(model: nn.Module) -> int:
    return next(layer.in_features for layer in model.modules() if isinstance(layer, nn.Linear))


def plain_on_joint_batch(recipe: Recipe) -> Trained:
    """PyTorch's own recipe in one process."""
    model = new_model(recipe)
    return plain(recipe, model, model, rank=0, num_ranks=1)


def plain_with_ddp(recipe: Recipe) -> Trained:
    model = DistributedDataParallel(new_model(recipe))
    return plain(recipe, model, model.module, rank=distributed.get_rank(), num_ranks=distributed.get_world_size())


def plain(recipe: Recipe, model: nn.Module, inner: nn.Module, *, rank: int, num_ranks: int) -> Trained:
    optimizer = OPTIMIZERS[recipe.optimizer](list(model.parameters()))
    scaler = torch.amp.GradScaler("cpu", init_scale=INIT_SCALE, enabled=recipe.precision == "fp16")
    trained = Trained()
    for step in range(recipe.num_steps):
        optimizer.zero_grad()
        for part in range(recipe.num_parts):
            with torch.autocast("cpu", dtype=torch.float16, enabled=recipe.precision == "fp16"):
                loss = loss_of(model, step, part, recipe.num_parts, rank, num_ranks, (step, rank) in recipe.overflow)
            scaler.scale(loss / recipe.num_parts).backward()  # type: ignore[no-untyped-call]
        trained.scales.append(scaler.get_scale() if recipe.precision == "fp16" else None)
        scaler.unscale_(optimizer)
        grads = [parameter.grad for parameter in inner.parameters() if parameter.grad is not None]
        trained.layer_norms.append([float(torch.linalg.vector_norm(grad, recipe.norm_type)) for grad in grads])
        max_norm = recipe.clip if isinstance(recipe.clip, float) else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(inner.parameters(), max_norm, recipe.norm_type)
        trained.norms.append(float(norm))
        scaler.step(optimizer)
        scaler.update()
    trained.parameters = full_parameters(inner)
    return trained


Kind = Literal["ddp", "fsdp", "hsdp", "fsdp+tp", "plain"]


def hooked(recipe: Recipe, kind: Kind = "plain", order: Literal["host", "device"] = "host") -> Trained:
    """The hook, on the joint batch ("plain") or on this rank's share of it, in the order of a step that waits for
    numbers or in the one that never does."""
    with pytest.MonkeyPatch.context() as patch:
        if order == "device":
            patch.setattr(AmpStep, "_step_on_host", AmpStep._step_on_device)
        return _hooked(recipe, kind)


def _hooked(recipe: Recipe, kind: Kind) -> Trained:
    is_alone = kind == "plain"
    rank, num_ranks = (0, 1) if is_alone else (distributed.get_rank(), distributed.get_world_size())
    mesh = None
    if kind in ("hsdp", "fsdp+tp"):
        names = ("replica", "shard") if kind == "hsdp" else ("dp", "tp")
        mesh = init_device_mesh("cpu", (2, num_ranks // 2), mesh_dim_names=names)
    inner = new_model(recipe) if kind in ("plain", "ddp") else sharded_model(recipe, mesh)
    if kind == "fsdp+tp" and mesh is not None:
        rank, num_ranks = mesh["dp"].get_local_rank(), mesh["dp"].size()
    model = DistributedDataParallel(inner) if kind == "ddp" else inner
    optimizer = OPTIMIZERS[recipe.optimizer](list(model.parameters()))
    scale: Any = gradsight.DynamicScale(init_scale=INIT_SCALE) if recipe.precision == "fp16" else "dynamic"
    monitor = gradsight.Monitor(inner, optimizer, precision=recipe.precision, clip=policy(recipe), loss_scale=scale)
    trained = Trained()
    for step in range(recipe.num_steps):
        optimizer.zero_grad()
        for part in range(recipe.num_parts):
            is_last = part == recipe.num_parts - 1
            if isinstance(model, DistributedDataParallel):
                no_sync: Any = nullcontext() if is_last else model.no_sync()
            else:
                no_sync = nullcontext()
                if not is_alone:
                    inner.set_requires_gradient_sync(is_last)  # type: ignore[operator]
            with no_sync:
                with monitor.autocast():
                    bad = (step, rank) in recipe.overflow
                    loss = loss_of(model, step, part, recipe.num_parts, rank, num_ranks, bad)
                monitor.backward(loss / recipe.num_parts)
        with CommDebugMode() as calls:  # type: ignore[no-untyped-call]
            result = monitor.step()
        note(trained, result, calls)
    trained.parameters = full_parameters(inner)
    return trained


def policy(recipe: Recipe) -> Any:
    if isinstance(recipe.clip, str):
        return gradsight.parse_policy(recipe.clip)
    return None if recipe.clip is None else gradsight.GlobalNorm(recipe.clip, recipe.norm_type)


def note(trained: Trained, result: gradsight.StepResult, calls: CommDebugMode | None = None) -> None:
    trained.norms.append(result.grad_norm_before_clip)
    trained.coefs.append(result.clip_coef)
    trained.layer_norms.append(list(result._reading.layer_norms()))
    trained.skipped.append(result.skipped)
    trained.scales.append(result.loss_scale)
    if calls is not None:
        counts = {str(call): count for call, count in calls.get_comm_counts().items()}
        trained.num_all_reduces.append(sum(count for call, count in counts.items() if "reduce_" in call))
        trained.num_collectives.append(sum(counts.values()))


def full_parameters(model: nn.Module) -> list[list[float]]:
    return [full(parameter).flatten().tolist() for parameter in model.parameters()]


def full(tensor: Tensor) -> Tensor:
    """All of a tensor, on every rank."""
    with torch.no_grad():
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.detach()


def largest_difference(ones: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """Over all tensors, relative to each tensor's largest value."""
    pairs = [(torch.tensor(one), torch.tensor(other)) for one, other in zip(ones, others, strict=True)]
    return max(float((one - other).abs().max() / one.abs().max()) for one, other in pairs)
