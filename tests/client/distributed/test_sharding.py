"""Norms of gradients placed by hand: every placement, mixed meshes, gradients that some ranks lack."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.optim import SGD

import gradsight
from gradsight.errors import ConfigurationError, GradsightError
from gradsight.sharding import Sharding
from gradsight.transport import MemoryTransport, send_spooled
from tests.client.conftest import rows
from tests.client.distributed.ranks import Ranks
from tests.client.distributed.recipes import Trained, full_parameters, note

Placed = tuple[tuple[int, ...], str | None, Sequence[Placement]]
"""Shape, mesh ("line" of all ranks, "square", or a side of it; None: a plain tensor), placements."""


def mesh_of(name: str) -> DeviceMesh:
    size = distributed.get_world_size()
    if name == "line":
        return init_device_mesh("cpu", (size,))
    square = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("rows", "columns"))
    return square if name == "square" else square[name]


def value_of(name: str, shape: tuple[int, ...]) -> Tensor:
    """The same on every rank and in every process."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(name.encode())))


def model_of(placed: Mapping[str, Placed]) -> dict[str, nn.Parameter]:
    """Parameters of zeros whose gradients are `value_of` them."""
    model = {}
    meshes: dict[str, DeviceMesh] = {}
    for name, (shape, mesh, placements) in placed.items():
        parameter, grad = torch.zeros(shape), value_of(name, shape)
        if mesh is not None:
            on = meshes.setdefault(mesh, mesh_of(mesh))
            parameter, grad = (distribute_tensor(tensor, on, placements) for tensor in (parameter, grad))
        model[name] = nn.Parameter(parameter)
        model[name].grad = grad
    return model


def stepped(placed: Mapping[str, Placed], clip: Any, missing: Mapping[int, Sequence[str]] | None = None) -> Trained:
    """One step of plain descent (the parameters become minus the clipped gradients)."""
    model = model_of(placed)
    for name in (missing or {}).get(distributed.get_rank(), ()):
        model[name].grad = None
    monitor = gradsight.Monitor(model.items(), SGD(model.values(), lr=1.0, foreach=False), clip=clip)
    trained = Trained()
    with CommDebugMode() as calls:  # type: ignore[no-untyped-call]
        result = monitor.step()
    note(trained, result, calls)
    trained.parameters = full_parameters(nn.ParameterList(model.values()))
    return trained


def assert_right(of_ranks: list[Trained], placed: Mapping[str, Placed], norm_type: float = 2.0) -> None:
    """Norms, and minus the parameters, are those of the whole gradients, clipped to 1."""
    grads = [value_of(name, shape) for name, (shape, _, _) in placed.items()]
    norms = [float(torch.linalg.vector_norm(grad.double(), norm_type)) for grad in grads]
    total = float(torch.linalg.vector_norm(torch.tensor(norms, dtype=torch.float64), norm_type))
    for trained in of_ranks:
        assert trained.norms == [pytest.approx(total, rel=2e-6)]
        assert trained.coefs == of_ranks[0].coefs == [pytest.approx(1 / (total + 1e-6), rel=2e-6)]
        assert trained.layer_norms[0] == pytest.approx(norms, rel=2e-6)
        for parameter, grad in zip(trained.parameters, grads, strict=True):
            assert parameter == pytest.approx((-grad / (total + 1e-6)).flatten().tolist(), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, math.inf])
def test_every_placement_has_its_true_norm(norm_type: float, two_ranks: Ranks) -> None:
    placed: dict[str, Placed] = {
        "even": ((4, 3), "line", [Shard(0)]),
        "uneven": ((5, 3), "line", [Shard(0)]),
        "columns": ((3, 5), "line", [Shard(1)]),
        "on one rank": ((1,), "line", [Shard(0)]),
        "replicated": ((3, 2), "line", [Replicate()]),
        "plain": ((7,), None, []),
        "scalar": ((), "line", [Replicate()]),
    }
    of_ranks = two_ranks(stepped, placed, gradsight.GlobalNorm(1.0, norm_type))
    assert_right(of_ranks, placed, norm_type)
    assert of_ranks[0].num_collectives == [1]


@pytest.mark.parametrize("norm_type", [2.0, math.inf])
def test_every_mesh_takes_one_all_reduce(norm_type: float, four_ranks: Ranks) -> None:
    placed: dict[str, Placed] = {
        "both": ((4, 6), "square", [Shard(0), Shard(1)]),
        "both in one": ((7, 2), "square", [Shard(0), Shard(0)]),
        "half": ((5, 3), "square", [Replicate(), Shard(0)]),
        "other half": ((3, 5), "square", [Shard(1), Replicate()]),
        "nowhere": ((3,), "square", [Replicate(), Replicate()]),
        "line": ((6, 2), "line", [Shard(0)]),
        "side": ((3, 3), "rows", [Shard(0)]),
        "plain": ((2, 2), None, []),
    }
    of_ranks = four_ranks(stepped, placed, gradsight.GlobalNorm(1.0, norm_type))
    assert_right(of_ranks, placed, norm_type)
    assert of_ranks[0].num_collectives == [3]  # the square, the line, the side


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_dtensor_beside_a_plain_tensor(world_size: int, ranks_of: Any) -> None:
    """torch's own clip_grad_norm_ raises here (pytorch#180346)."""
    for total, coef in ranks_of(world_size)(ones_of_both_kinds):
        assert total == pytest.approx(math.sqrt(19), rel=1e-6)
        assert coef == pytest.approx(1 / math.sqrt(19), rel=1e-6)


def ones_of_both_kinds() -> tuple[float | None, float | None]:
    mesh = mesh_of("line")
    a = nn.Parameter(distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]))
    b = nn.Parameter(torch.ones(3))
    a.grad, b.grad = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)]), torch.ones(3)
    monitor = gradsight.Monitor([("a", a), ("b", b)], SGD([a, b], lr=0.1), clip=1.0)
    result = monitor.step()
    return result.grad_norm_before_clip, result.clip_coef


EXPERTS: dict[str, Placed] = {f"expert {i}": ((4, 3), "line", [Shard(0)]) for i in range(4)}


@pytest.mark.parametrize("clip", ["global_norm(1.0)", "tensor_norm(0.5)", "value(0.1)", "unit_norm(0.1)"])
def test_an_expert_without_gradient_on_one_rank_holds_nobody_up(clip: str, two_ranks: Ranks) -> None:
    policy = gradsight.parse_policy(clip)
    here, there = two_ranks(stepped, EXPERTS, policy, {1: ["expert 2"]})
    assert here.norms == there.norms
    assert here.num_collectives == there.num_collectives
    assert len(here.layer_norms[0]) == 4
    assert there.layer_norms[0] == [here.layer_norms[0][index] for index in (0, 1, 3)]
    half = value_of("expert 2", (4, 3))[:2]
    assert here.layer_norms[0][2] == pytest.approx(float(half.norm()), rel=1e-6)


@pytest.mark.parametrize("clip", ["global_norm(1.0)", 'groups("*0": value(0.1), "*": global_norm(1.0))'])
def test_a_rank_without_any_gradient_takes_part_in_the_step(clip: str, two_ranks: Ranks) -> None:
    here, there = two_ranks(stepped, EXPERTS, gradsight.parse_policy(clip), {1: list(EXPERTS)})
    assert here.norms == there.norms
    assert here.norms[0] is not None
    assert here.skipped == there.skipped == [False]
    assert there.layer_norms == [[]]


def test_experts_that_take_turns_change_nothing_for_the_others(two_ranks: Ranks) -> None:
    here, there = two_ranks(stepped, EXPERTS, None, {rank: ["expert 1", "expert 3"] for rank in range(2)})
    used = [float(value_of(name, (4, 3)).norm()) for name in ("expert 0", "expert 2")]
    assert here.layer_norms == there.layer_norms == [pytest.approx(used, rel=1e-6)]
    assert here.norms == there.norms == [pytest.approx(math.hypot(*used), rel=1e-6)]


def test_no_gradient_anywhere_is_no_gradient_everywhere(two_ranks: Ranks) -> None:
    for trained in two_ranks(stepped, EXPERTS, None, {rank: list(EXPERTS) for rank in range(2)}):
        assert trained.norms == [None]
        assert trained.skipped == [True]


def with_bad_element(where: str, bad: float, norm_type: float, folder: Path) -> Trained:
    """One element that is not finite, on rank 1 alone; the step is recorded."""
    model = model_of({**EXPERTS, "plain": ((2,), None, [])})
    if distributed.get_rank() == 1:
        grad = model[where].grad
        assert grad is not None
        (grad.to_local() if isinstance(grad, DTensor) else grad).view(-1)[0] = bad
    trained = Trained()
    clip = gradsight.GlobalNorm(1.0, norm_type)
    with gradsight.Run(spool_dir=folder, mode="offline", quiet=True) as run:
        optimizer = SGD(model.values(), lr=1.0, foreach=False)
        note(trained, gradsight.Monitor(model.items(), optimizer, run=run, clip=clip).step())
    return trained


@pytest.mark.parametrize("norm_type", [2.0, math.inf])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_on_one_rank_is_named_on_all(
    bad: float, norm_type: float, two_ranks: Ranks, tmp_path: Path
) -> None:
    for trained in two_ranks(with_bad_element, "expert 2", bad, norm_type, tmp_path):
        assert trained.skipped == [True]
        assert [str(norm) for norm in trained.norms] == [str(bad)]
        assert [str(norm) for norm in trained.layer_norms[0] if not math.isfinite(norm)] == [str(bad)]
    transport = MemoryTransport()
    send_spooled(tmp_path, transport)
    recorded = rows(transport)
    assert recorded["num_nonfinite_layers"] == [1]
    assert recorded["first_nonfinite_layer"] == ["expert 2"]
    assert recorded["nonfinite_kind"] == [str(bad)]


def test_all_ranks_skip_where_a_plain_gradient_is_not_finite_on_one(two_ranks: Ranks, tmp_path: Path) -> None:
    for norm_type in (2.0, math.inf):
        for trained in two_ranks(with_bad_element, "plain", math.nan, norm_type, tmp_path):
            assert trained.skipped == [True]


def scales_of_uneven_ranks() -> list[float | None]:
    """A scaler that all ranks have to move alike: at step 1 rank 1 has no gradient, at step 2 rank 0 overflows."""
    weight = nn.Parameter(distribute_tensor(torch.ones(4), mesh_of("line"), [Shard(0)]))
    scale = gradsight.DynamicScale(init_scale=8.0, growth_interval=1)
    monitor = gradsight.Monitor(
        [("weight", weight)], SGD([weight], lr=0.1, foreach=False), precision="fp16", loss_scale=scale
    )
    assert monitor.scaler is not None
    monitor.scaler.scale(torch.ones(()))
    scales = []
    for step in range(5):
        parts = torch.full((2,), math.inf if (step, distributed.get_rank()) == (2, 0) else 1.0)
        weight.grad = DTensor.from_local(parts, weight.device_mesh, [Shard(0)])  # type: ignore[attr-defined]
        if (step, distributed.get_rank()) == (1, 1):
            weight.grad = None
        scales.append(monitor.step().loss_scale)
    return scales


def test_loss_scales_stay_together_when_ranks_differ(two_ranks: Ranks) -> None:
    assert two_ranks(scales_of_uneven_ranks) == [[8.0, 16.0, 32.0, 16.0, 32.0]] * 2


def with_partial_gradient(on_ranks: Sequence[int], again: bool = False) -> tuple[Trained, list[bool]] | str:
    """A weight that is the same on all ranks, whose gradient is still to be summed over them."""
    mesh, rank = mesh_of("line"), distributed.get_rank()
    weight = nn.Parameter(distribute_tensor(torch.zeros(3), mesh, [Replicate()]))
    other = nn.Parameter(distribute_tensor(torch.zeros(2), mesh, [Shard(0)]))
    monitor = gradsight.Monitor(
        {"weight": weight, "other": other}.items(), SGD([weight, other], lr=1.0, foreach=False), clip=1.0
    )
    trained, is_whole = Trained(), []
    for _ in range(2 if again else 1):
        if rank in on_ranks:
            weight.grad = DTensor.from_local(torch.tensor([rank, 0.0, 3.0]), mesh, [Partial()])
        other.grad = distribute_tensor(torch.tensor([0.0, 2.0]), mesh, [Shard(0)])
        try:
            note(trained, monitor.step())
        except GradsightError as error:
            return str(error)
        is_whole.append(weight.grad is not None and weight.grad.placements == weight.placements)  # type: ignore[attr-defined]
    if len(on_ranks) == mesh.size():
        trained.parameters = full_parameters(nn.ParameterList([weight, other]))
    return trained, is_whole


def test_a_gradient_still_to_be_summed_is_summed_first(two_ranks: Ranks) -> None:
    total = math.sqrt(1 + 36 + 4)
    for answer in two_ranks(with_partial_gradient, [0, 1], again=True):
        assert not isinstance(answer, str)
        trained, is_whole = answer
        assert trained.norms == [pytest.approx(total), pytest.approx(total)]
        assert trained.layer_norms[0] == pytest.approx([math.sqrt(37), 2.0])
        assert trained.parameters[0] == pytest.approx([-2 / total, 0.0, -12 / total], rel=1e-5)
        assert is_whole == [True, True]


def test_a_gradient_to_be_summed_that_a_rank_lacks_is_an_error_not_a_hang(two_ranks: Ranks) -> None:
    there, here = two_ranks(with_partial_gradient, [1])
    assert "must be there on all of them alike" in str(here)
    assert not isinstance(there, str)  # it has nothing to be summed and goes on


def losses_of_dtensor_model() -> float | None:
    """A loss that is a DTensor itself, still to be summed over ranks."""
    mesh = mesh_of("line")
    weight = nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
    monitor = gradsight.Monitor([("weight", weight)], SGD([weight], lr=0.1, foreach=False), clip=1.0)
    loss: Tensor = (weight * weight).sum()
    assert any(placement.is_partial() for placement in loss.placements)  # type: ignore[attr-defined]
    result = monitor.step(loss)
    assert result.grad_norm_before_clip == pytest.approx(4.0)
    value: float | None = result._reading.values()["loss"]
    return value


def test_a_loss_spread_over_ranks_is_recorded_whole(two_ranks: Ranks) -> None:
    assert two_ranks(losses_of_dtensor_model) == [4.0, 4.0]


def refused(placed: Mapping[str, Placed], clip: str) -> str:
    model = model_of(placed)
    with pytest.raises(ConfigurationError) as error:
        gradsight.Monitor(model.items(), SGD(model.values(), lr=1.0), clip=gradsight.parse_policy(clip))
    return str(error.value)


def test_units_that_no_rank_holds_whole_are_refused(two_ranks: Ranks) -> None:
    placed: dict[str, Placed] = {"rows": ((4, 4), "line", [Shard(0)]), "columns": ((4, 4), "line", [Shard(1)])}
    for told in two_ranks(refused, placed, "unit_norm(0.1)"):
        assert told.startswith("clip must not be unit_norm(clipping=0.1) for layers")
        assert "got 'columns' with placements (Shard(dim=1),)" in told
    for told in two_ranks(refused, placed, 'groups("rows": value(1.0), "*": unit_norm(0.1))'):
        assert "'columns'" in told
    for trained in two_ranks(stepped, placed, gradsight.UnitNorm(0.1, exclude=("columns",))):
        assert len(trained.norms) == 1


def test_other_norms_in_groups_are_refused(two_ranks: Ranks) -> None:
    placed: dict[str, Placed] = {"a": ((4, 4), "line", [Shard(0)]), "b": ((4,), None, [])}
    for told in two_ranks(refused, placed, 'groups("b": global_norm(1.0, norm_type=1.0), "*": value(1.0))'):
        assert told.startswith("clip must have norm_type 2 in each of its groups")


def refused_with_flat_pieces() -> str:
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(nn.Linear(4, 4), device_id=torch.device("cpu"), use_orig_params=True)
    with pytest.raises(ConfigurationError) as error:
        gradsight.Monitor(model, SGD(model.parameters(), lr=1.0))
    return str(error.value)


def test_flat_pieces_of_the_first_fsdp_are_refused(two_ranks: Ranks) -> None:
    for told in two_ranks(refused_with_flat_pieces):
        assert told.startswith("model must be sharded by fully_shard, got FullyShardedDataParallel")


def test_plain_tensors_are_not_looked_at_again() -> None:
    assert Sharding.of([nn.Parameter(torch.ones(2))]) is None
