"""Gradients spread over ranks (DTensor: `fully_shard`, tensor parallelism): what one rank holds of them, and their
true norms, by one all-reduce a mesh.

What ranks hold alike (Replicate) is counted once. Plain tensors are taken as they are, the same on every rank as
DistributedDataParallel leaves them. Shapes: L layers of a layer set, K of them with a gradient on this rank.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradsight.errors import ConfigurationError
from gradsight.meshes import complete, is_spread, meshes_of
from gradsight.norms import layer_norms, layer_norms_on_host
from gradsight.policies import GlobalNorm, Groups, Policy, UnitNorm


def whole(value: Tensor) -> Tensor:
    """A loss, detached, as a plain tensor. Where it is still to be summed over ranks, all of them have to ask."""
    full: Tensor = value.full_tensor() if is_spread(value) else value
    return full


@dataclass(frozen=True, slots=True)
class Shards:
    """What this rank holds of one step's gradients, and what the ranks together found out about them. (What is sampled
    now and then, fp16 head-room say, is of this rank's part alone: ranks do not agree on when.)

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
        self._meshes = meshes_of(parameters)
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
        found = complete(
            self._meshes, self._powers(present, local(grads), p), p, is_fresh=is_fresh, unsettled=unsettled
        )
        if unsettled:
            grads = [
                _settled(parameter, grad) if elsewhere else grad
                for parameter, grad, elsewhere in zip(parameters, grads, is_elsewhere, strict=True)
            ]
            found = complete(self._meshes, self._powers(present, local(grads), p), p, is_fresh=is_fresh)
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
        found = complete(self._meshes, self._powers(present, tensors, p), p)
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
        return values if present is None else values.index_select(0, self._index_of(present, values.device))

    def _index_of(self, present: list[int], device: torch.device) -> Tensor:
        if self._index is None or self._index[0] != present or self._index[1].device != device:
            self._index = (present, torch.tensor(present, dtype=torch.long, device=device))
        return self._index[1]


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


def _is_on_one_gpu(tensors: Sequence[Tensor]) -> bool:
    device = tensors[0].device
    return device.type == "cuda" and all(tensor.device == device for tensor in tensors)


def _num_ranks() -> int:
    distributed: Any = sys.modules["torch.distributed"]
    is_initialized = distributed.is_available() and distributed.is_initialized()
    return int(distributed.get_world_size()) if is_initialized else 1


def refuse(policy: Policy | None, all_names: Sequence[Sequence[str]], parameters: Sequence[Tensor]) -> None:
    """Refuse what cannot be right when parameters, each with all its names, are spread over ranks.

    Raises:
        ConfigurationError: a policy that would need more of the other ranks than norms, or FSDP's first version.
    """
    if any(getattr(parameter, "_fsdp_flattened", False) for parameter in parameters) and _num_ranks() > 1:
        raise ConfigurationError(
            "model must be sharded by fully_shard, got FullyShardedDataParallel: no rank knows its norms."
        )
    if isinstance(policy, Groups):
        for pattern, part in policy.policies.items():
            of_group = [index for index, names in enumerate(all_names) if policy.pattern_of(*names) == pattern]
            if isinstance(part, GlobalNorm) and part.norm_type != 2.0 and any(map(is_spread, parameters)):
                raise ConfigurationError(
                    "clip must have norm_type 2 in each of its groups when gradients are spread over ranks, "
                    f"got {part} for {pattern!r}."
                )
            refuse(part, [all_names[index] for index in of_group], [parameters[index] for index in of_group])
    elif isinstance(policy, UnitNorm):
        for names, parameter in zip(all_names, parameters, strict=True):
            if is_spread(parameter) and parameter.ndim > 1 and not policy.excludes(*names):
                placements = parameter.placements
                if any(getattr(placement, "dim", 0) != 0 for placement in placements):
                    raise ConfigurationError(
                        f"clip must not be {policy} for layers with units (rows) spread over ranks, got {names[0]!r} "
                        f"with placements {placements}: exclude it, or shard dimension 0."
                    )
