"""Device meshes: what the ranks of each tell one another in a step, in one all-reduce.

One float64 vector carries, of every layer that is spread over the mesh, the sum of |g|^p (where p is inf the largest
|g|), and beside them whether any rank has a non-finite gradient and whether any has a fresh one: all ranks clip by one
coefficient, skip alike and move their loss scales alike. Every rank sends every spread layer, with or without a
gradient, so that none waits for a rank that has nothing to say. L: layers of a layer set.
"""

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import torch
from torch import Tensor

from gradsight.errors import GradsightError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


def is_spread(tensor: object) -> "TypeGuard[DTensor]":
    """Whether this is a DTensor. Where nobody has imported them there are none; torch may be built without them."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


class Completed(NamedTuple):
    """powers: [L]. bad: 0-dim, inf where any rank has something non-finite, else 0. fresh: 0-dim, above 0 where any
    rank has a fresh gradient."""

    powers: Tensor
    bad: Tensor
    fresh: Tensor


def complete(
    meshes: Sequence["Mesh"], powers: Tensor, p: float, *, is_fresh: bool = False, unsettled: Sequence[int] = ()
) -> Completed:
    """What ranks know of their own parts, completed to what they know together; one all-reduce a mesh.

    Nothing waits for a device, save where layers are unsettled.

    Args:
        meshes: As `meshes_of` gives them.
        powers: ‖·‖^p of this rank's part of each layer (where p is inf the norm), [L] float64; 0 without a gradient.
        is_fresh: Whether this rank had a backward since the last step.
        unsettled: Layers of which this rank has a gradient still to be summed over ranks: all must have the same.

    Raises:
        GradsightError: a rank has other unsettled layers.
    """
    is_max = math.isinf(p)
    bad = torch.where(powers.isfinite().all(), 0.0, math.inf).to(powers.dtype)
    fresh = torch.full_like(bad, float(is_fresh))
    for mesh in meshes:
        index, weights = mesh.on(powers.device)
        own = powers.index_select(0, index)
        if not is_max:
            own = own * weights
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
    return Completed(powers, bad, fresh)


def _agree(total: float, other: float, *, num_ranks: int) -> bool:
    """Whether all ranks said the same number: from sum and sum of squares, or from largest and minus the smallest."""
    return total == -other if num_ranks == 1 else math.isclose(total * total, num_ranks * other, rel_tol=1e-9)


class Mesh:
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


def meshes_of(parameters: Sequence[Tensor]) -> list[Mesh]:
    """The meshes of more than one rank that this rank is part of, in an order that is the same on all ranks: the widest
    last, so that it hears of what is not finite in any other."""
    found: dict[DeviceMesh, dict[int, Any]] = {}
    for layer, parameter in enumerate(parameters):
        if is_spread(parameter):
            mesh = parameter.device_mesh
            if mesh.size() > 1 and mesh.get_coordinate() is not None:
                found.setdefault(mesh, {})[layer] = parameter.placements
    return sorted((Mesh(mesh, layers) for mesh, layers in found.items()), key=lambda mesh: mesh.num_ranks)
