"""Policies that treat elements of one tensor differently: `Value`, and `UnitNorm` (AGC). In place, on unscaled
gradients."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradsight.clipping import Clip, Seen, effective, measured
from gradsight.policies import UnitNorm, Value


class ElementClipper:
    """Changes the gradients, and says by the norms before and after what it did.

    Args:
        policy: What to do.
        all_names: All names of each layer, by the one it goes by.
    """

    norm_type = 2.0

    def __init__(self, policy: Value | UnitNorm, all_names: Mapping[str, Sequence[str]]) -> None:
        self._policy = policy
        self._all_names = all_names

    def decide(self, seen: Seen) -> Clip:
        return Clip(factors=None)

    def clip_(self, seen: Seen) -> Clip:
        self.change_(seen, self.whole_weight_norms(seen))
        return self.told(seen, measured(seen, seen.grads))

    def whole_weight_norms(self, seen: Seen) -> Tensor | None:
        """Norms [L] of weights of one dimension, a unit each, where no rank holds them whole. All ranks have to ask."""
        if seen.shards is None or not isinstance(self._policy, UnitNorm):
            return None
        return seen.shards.norms_of([weight if weight.ndim < 2 else weight.new_zeros(0) for weight in seen.parameters])

    @torch.no_grad()
    def change_(self, seen: Seen, whole_weight_norms: Tensor | None) -> None:
        """Clip in place."""
        for index, (name, parameter, grad) in enumerate(zip(seen.names, seen.parameters, seen.grads, strict=True)):
            if isinstance(self._policy, Value):
                clamp_(grad, self._policy.clip_value)
            elif self._policy.excludes(*self._all_names[name]) or not grad.numel():
                continue
            elif whole_weight_norms is not None and grad.ndim < 2:
                factor = unit_factors(seen.vector[index], whole_weight_norms[index], self._policy)
                grad.mul_(factor.to(grad.real.dtype))
            else:
                limit_units_(grad, parameter.detach(), self._policy)

    def told(self, seen: Seen, after: Tensor) -> Clip:
        """What it did, by the norms [L] after."""
        finite = torch.as_tensor(seen.is_finite, device=after.device)
        return Clip(None, effective(seen, after), clipped=(after < seen.vector * (1 - 1e-5)) & finite)

    def learners(self) -> Iterator[tuple[str, Any]]:
        yield from ()


def clamp_(grad: Tensor, clip_value: float) -> None:
    """Each element to ±clip_value, of a complex one both parts; the values of a sparse gradient are coalesced ones.

    Source: `torch.nn.utils.clip_grad_value_`.
    """
    values = grad if grad.layout == torch.strided else _coalesced_values_(grad)
    (torch.view_as_real(values) if values.is_complex() else values).clamp_(-clip_value, clip_value)


def limit_units_(grad: Tensor, weight: Tensor, policy: UnitNorm) -> None:
    """Scale each unit (row of dim 0; all of a tensor of at most one dim) by max / max(‖G‖, 1e-6) where ‖G‖ ≥ max,
    max = clipping · max(‖W‖, eps). See `UnitNorm` for the source."""
    if grad.layout != torch.strided:
        values = _coalesced_values_(grad)
        rows = weight if grad.ndim < 2 else weight[grad._indices()[0]]
    else:
        values, rows = grad, weight
    values.mul_(unit_factors(_unit_norms(values), _unit_norms(rows), policy).to(values.real.dtype))


def unit_factors(grad_norm: Tensor, weight_norm: Tensor, policy: UnitNorm) -> Tensor:
    """What to multiply each unit by: its gradient's and its weight's norms, in any shape."""
    limit = policy.clipping * weight_norm.clamp(min=policy.eps)
    return torch.where(grad_norm >= limit, limit / grad_norm.clamp(min=1e-6), torch.ones_like(limit))


def _unit_norms(tensor: Tensor) -> Tensor:
    real = tensor.abs() if tensor.is_complex() else tensor
    wide = torch.float64 if real.dtype == torch.float64 else torch.float32
    dims = tuple(range(1, real.ndim)) if real.ndim > 1 else None
    norms: Tensor = torch.linalg.vector_norm(real, dim=dims, keepdim=real.ndim > 1, dtype=wide)
    return norms


def _coalesced_values_(grad: Tensor) -> Tensor:
    """The values of a sparse gradient, after merging its duplicates in place: what clipping by element is about."""
    if not grad.is_coalesced():
        grad.copy_(grad.coalesce())
    return grad._values()
