"""Gradients spread over ranks (DTensor: `fully_shard`, tensor parallelism): their true norms, by one all-reduce a mesh.

Each rank measures the elements it holds. One float64 vector carries, of every layer that is spread, the sum of |g|^p
(where p is inf the largest |g|), and beside them whether any rank has a non-finite gradient and whether any has a
fresh one: all ranks clip by one coefficient, skip alike and move their loss scales alike. Every rank sends every
spread layer, with or without a gradient, so that none waits for a rank that has nothing to say.

What ranks hold alike (Replicate) is counted once. Plain tensors are taken as they are, the same on every rank as
DistributedDataParallel leaves them. Shapes: L layers of a layer set, K of them with a gradient on this rank.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from gradsight.errors import ConfigurationError, GradsightError
from gradsight.norms import layer_norms, layer_norms_on_host
from gradsight.policies import GlobalNorm, Groups, Policy, UnitNorm

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


def is_spread(tensor: object) -> "TypeGuard[DTensor]":
    """Whether this is a DTensor. Where nobody has imported them there are none; torch may be built without them."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


@torch.no_grad()
def whole(value: Tensor) -> Tensor:
    """A loss as a plain tensor. Where it is still to be summed over ranks, all of them have to ask."""
    full: Tensor = value.full_tensor() if is_spread(value) else value
    return full


@dataclass(frozen=True, slots=True)
class Shards:
    """What this rank holds of one step's gradients, and what the ranks together found out about them.

    parameters, grads: [K] local tensors; writing to a gradient here writes to the one in `.grad`.
    norms: [K] float64, of the whole gradients as they stand; on the gradients' device.
    total: 0-dim float64, the norm of all layers on all ranks; not finite where any rank has a gradient that is not.
    is_fresh: Whether any rank had a backward since the last step.
    """

    sharding: "Sharding"
    present: list[int] | None
    parameters: list[Tensor]
    grads: list[Tensor]
    norms: Tensor
    total: Tensor
    is_fresh: bool

    def norms_of(self, tensors: Sequence[Tensor]) -> Tensor:
        """2-norms [K] float64 of whole tensors of which these [K] are the local parts. All ranks have to ask."""
        return self.sharding._norms(self.present, tensors, 2.0)


class Sharding:
    """How one layer set is spread over ranks.

    Args:
        parameters: L parameters, some of them DTensors.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._meshes = sorted(_meshes(parameters), key=lambda mesh: mesh.num_ranks)  # the widest hears of all others
        self._index: tuple[list[int], Tensor] | None = None
        self.device: torch.device = local([parameters[0]])[0].device

    @classmethod
    def of(cls, parameters: Sequence[Tensor]) -> "Sharding | None":
        """None where every parameter is a plain tensor."""
        return cls(parameters) if any(map(is_spread, parameters)) else None

    @torch.no_grad()
    def measure(self, present: list[int] | None, grads: Sequence[Tensor], p: float, *, is_fresh: bool) -> Shards:
        """Measure one step's gradients together with the other ranks, all of which have to.

        Args:
            present: Which of the L layers have a gradient here; None: all.
            grads: Those K gradients, as they are in `.grad`.
            p: Of the p-norm.
            is_fresh: Whether this rank had a backward since the last step.

        Raises:
            GradsightError: a gradient that is still to be summed (Partial) is there on some ranks only.
        """
        layers = range(len(self._parameters)) if present is None else present
        parameters: list[Any] = [self._parameters[layer] for layer in layers]
        is_elsewhere = [
            is_spread(grad) and grad.placements != parameter.placements
            for grad, parameter in zip(grads, parameters, strict=True)
        ]
        unsettled = [layer for layer, elsewhere in zip(layers, is_elsewhere, strict=True) if elsewhere]
        found = self._exchange(self._powers(present, local(grads), p), p, is_fresh=is_fresh, unsettled=unsettled)
        if unsettled:
            grads = [
                _settled(parameter, grad) if elsewhere else grad
                for parameter, grad, elsewhere in zip(parameters, grads, is_elsewhere, strict=True)
            ]
            found = self._exchange(self._powers(present, local(grads), p), p, is_fresh=is_fresh)
        total = _root(found.powers.amax() if math.isinf(p) else found.powers.sum(), p)
        return Shards(
            self,
            present,
            local(parameters),
            local(grads),
            _root(self._of_present(present, found.powers), p),
            torch.where(total.isfinite(), total + found.bad, total),
            is_fresh or bool(found.fresh > 0),
        )

    def _norms(self, present: list[int] | None, tensors: Sequence[Tensor], p: float) -> Tensor:
        found = self._exchange(self._powers(present, tensors, p), p)
        return _root(self._of_present(present, found.powers), p)

    def _powers(self, present: list[int] | None, tensors: Sequence[Tensor], p: float) -> Tensor:
        """‖·‖^p of the local parts, [L] float64, zero for a layer that is not present."""
        if not tensors:
            norms = torch.zeros(0, dtype=torch.float64, device=self.device)
        elif _is_on_one_gpu(tensors):
            norms = layer_norms(tensors, p).double()
        else:
            norms = torch.tensor(layer_norms_on_host(tensors, p), dtype=torch.float64)
        powers = norms if math.isinf(p) else norms.square() if p == 2.0 else norms.pow(p)
        if present is None:
            return powers
        return powers.new_zeros(len(self._parameters)).index_copy(0, self._index_of(present, powers.device), powers)

    def _of_present(self, present: list[int] | None, values: Tensor) -> Tensor:
        return values if present is None else values[self._index_of(present, values.device)]

    def _index_of(self, present: list[int], device: torch.device) -> Tensor:
        if self._index is None or self._index[0] != present or self._index[1].device != device:
            self._index = (present, torch.tensor(present, dtype=torch.long, device=device))
        return self._index[1]

    def _exchange(
        self, powers: Tensor, p: float, *, is_fresh: bool = False, unsettled: Sequence[int] = ()
    ) -> "_Exchanged":
        """Complete the powers [L]; one all-reduce a mesh. Nothing waits for a device, save where layers are unsettled:
        then every rank must have the same ones, as they are about to be summed together."""
        is_max = math.isinf(p)
        bad = torch.where(powers.isfinite().all(), 0.0, math.inf).to(powers.dtype)
        fresh = torch.full_like(bad, float(is_fresh))
        for mesh in self._meshes:
            index, weights = mesh.on(powers.device)
            own = powers[index] if is_max else powers[index] * weights
            key = float(sum(layer + 1 for layer in unsettled if layer in mesh.layers))
            keys = (key, -key) if is_max else (key, key * key)
            said = torch.stack([bad, fresh, *(torch.full_like(bad, value) for value in keys)])
            heard = mesh.all_reduce(torch.cat((own, said)), is_max=is_max)
            powers = powers.index_copy(0, index, heard[: len(own)])
            bad, fresh, *sums = heard[len(own) :].unbind()
            if key and not _agree(*map(float, sums), num_ranks=1 if is_max else mesh.num_ranks):
                raise GradsightError(
                    "gradients that are still to be summed over ranks (Partial) must be there on all of them alike, "
                    f"got other ones than on this rank, which has {len(unsettled)}."
                )
        return _Exchanged(powers, bad, fresh)


class _Exchanged(NamedTuple):
    """powers: [L]. bad: 0-dim, inf where any rank has something non-finite, else 0. fresh: 0-dim, above 0 where any
    rank has a fresh gradient."""

    powers: Tensor
    bad: Tensor
    fresh: Tensor


class _Mesh:
    """The spread layers of one mesh and the process groups their parts lie on.

    Parts that several ranks hold alike are weighted by one over their number, so that a sum counts them once.
    """

    def __init__(self, mesh: "DeviceMesh", layers: dict[int, Any]) -> None:
        dims = [dim for dim in range(mesh.ndim) if mesh.size(dim) > 1]
        split = [dim for dim in dims if any(not placements[dim].is_replicate() for placements in layers.values())]
        distributed = sys.modules["torch.distributed"]
        if len(split) > 1 and mesh.size() == distributed.get_world_size():
            self._groups = [distributed.group.WORLD]  # one all-reduce instead of one a dimension
        else:
            dims = split or dims
            self._groups = [mesh.get_group(dim) for dim in dims]
        self.layers = frozenset(layers)
        self.num_ranks = math.prod(mesh.size(dim) for dim in dims)
        self._device_type = mesh.device_type
        self._all_reduce, self._op = distributed.all_reduce, distributed.ReduceOp
        self._weights = {
            layer: 1.0 / math.prod(mesh.size(dim) for dim in dims if placements[dim].is_replicate())
            for layer, placements in layers.items()
        }
        self._on: tuple[Tensor, Tensor] | None = None

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Indices and weights of its layers."""
        if self._on is None or self._on[0].device != device:
            weights = torch.tensor(list(self._weights.values()), dtype=torch.float64, device=device)
            self._on = (torch.tensor(list(self._weights), dtype=torch.long, device=device), weights)
        return self._on

    def all_reduce(self, values: Tensor, *, is_max: bool) -> Tensor:
        """The sum or the largest of all ranks' values, NaN where any has one (which a backend's MAX may lose)."""
        vector = torch.cat((values.where(~values.isnan(), math.inf), values.isnan().double())) if is_max else values
        sent = vector.to(self._device_type)
        for group in self._groups:
            self._all_reduce(sent, self._op.MAX if is_max else self._op.SUM, group=group)
        heard = sent.to(values.device)
        return heard[: len(values)].where(heard[len(values) :] == 0, math.nan) if is_max else heard


def _meshes(parameters: Sequence[Tensor]) -> list[_Mesh]:
    """The meshes of more than one rank that this rank is part of, in the order of their first layers."""
    found: dict[DeviceMesh, dict[int, Any]] = {}
    for layer, parameter in enumerate(parameters):
        if is_spread(parameter):
            mesh = parameter.device_mesh
            if mesh.size() > 1 and mesh.get_coordinate() is not None:
                found.setdefault(mesh, {})[layer] = parameter.placements
    return [_Mesh(mesh, layers) for mesh, layers in found.items()]


@torch.no_grad()
def local(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The part of each tensor that this rank holds; writing to it writes to the tensor."""
    parts = [tensor.to_local() if is_spread(tensor) else tensor for tensor in tensors]
    return [part.wait() if hasattr(part, "wait") else part for part in parts]


def _settled(parameter: Any, grad: Any) -> Tensor:
    """The gradient, spread as its parameter is, and left so for the optimizer, which would have to do the same."""
    settled: Tensor = grad.redistribute(placements=parameter.placements)
    parameter.grad = settled
    return settled


def _root(powers: Tensor, p: float) -> Tensor:
    return powers if math.isinf(p) else powers.sqrt() if p == 2.0 else powers.pow(1.0 / p)


def _agree(total: float, other: float, *, num_ranks: int) -> bool:
    """Whether all ranks said the same number: from sum and sum of squares, or from largest and minus the smallest."""
    return total == -other if num_ranks == 1 else math.isclose(total * total, num_ranks * other, rel_tol=1e-9)


def _is_on_one_gpu(tensors: Sequence[Tensor]) -> bool:
    device = tensors[0].device
    return device.type == "cuda" and all(tensor.device == device for tensor in tensors)


def _num_ranks() -> int:
    distributed: Any = sys.modules["torch.distributed"]
    is_initialized = distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_world_size()) if is_initialized else 1


def refuse(policy: Policy | None, names: Sequence[str], parameters: Sequence[Tensor]) -> None:
    """Refuse what cannot be right when parameters are spread over ranks.

    Raises:
        ConfigurationError: a policy that would need more of the other ranks than norms, or FSDP's first version.
    """
    if any(getattr(parameter, "_fsdp_flattened", False) for parameter in parameters) and _num_ranks() > 1:
        raise ConfigurationError(
            "model must be sharded by fully_shard, got FullyShardedDataParallel: no rank knows its norms."
        )
    if isinstance(policy, Groups):
        for pattern, part in policy.policies.items():
            of_group = [index for index, name in enumerate(names) if policy.pattern_of(name) == pattern]
            if isinstance(part, GlobalNorm) and part.norm_type != 2.0 and any(map(is_spread, parameters)):
                raise ConfigurationError(
                    f"clip must have norm_type 2 in each of its groups when gradients are spread over ranks, "
                    f"got {part} for {pattern!r}."
                )
            refuse(part, [names[index] for index in of_group], [parameters[index] for index in of_group])
    elif isinstance(policy, UnitNorm):
        for name, parameter in zip(names, parameters, strict=True):
            if is_spread(parameter) and parameter.ndim > 1 and not policy.excludes(name):
                placements = parameter.placements
                if any(getattr(placement, "dim", 0) != 0 for placement in placements):
                    raise ConfigurationError(
                        f"clip must not be {policy} for layers with units (rows) spread over ranks, got {name!r} with "
                        f"placements {placements}: exclude it, or shard dimension 0."
                    )
