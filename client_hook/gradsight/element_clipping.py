"""Policies that treat elements of one tensor differently: `Value`, and `UnitNorm` (AGC). In place, on unscaled
gradients."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gradsight.clipping import Clip, Seen, effective
from gradsight.norms import layer_norms
from gradsight.policies import UnitNorm, Value


class ElementClipper:
    """Changes the gradients, and says by the norms before and after what it did."""

    norm_type = 2.0

    def __init__(self, policy: Value | UnitNorm) -> None:
        self._policy = policy

    def decide(self, seen: Seen) -> Clip:
        return Clip(factors=None)

    @torch.no_grad()
    def clip_(self, seen: Seen) -> Clip:
        for name, parameter, grad in zip(seen.names, seen.parameters, seen.grads, strict=True):
            if isinstance(self._policy, Value):
                clamp_(grad, self._policy.clip_value)
            elif not self._policy.excludes(name) and grad.numel():
                limit_units_(grad, parameter.detach(), self._policy)
        after = layer_norms(seen.grads).double()
        return Clip(None, effective(seen, after), clipped=after < seen.vector * (1 - 1e-5))

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
        values.mul_(unit_factors(values, weight[grad._indices()[0]], policy))
    else:
        grad.mul_(unit_factors(grad, weight, policy))


def unit_factors(grad: Tensor, weight: Tensor, policy: UnitNorm) -> Tensor:
    """What to multiply each row of `grad` by; the shape broadcasts against it."""
    grad_norm, weight_norm = _unit_norms(grad), _unit_norms(weight)
    limit = policy.clipping * weight_norm.clamp(min=policy.eps)
    factors = torch.where(grad_norm >= limit, limit / grad_norm.clamp(min=1e-6), torch.ones_like(limit))
    dtype: torch.dtype = grad.real.dtype if grad.is_complex() else grad.dtype
    return factors.to(dtype)


def _unit_norms(tensor: Tensor) -> Tensor:
    real = tensor.abs() if tensor.is_complex() else tensor
    wide = torch.float64 if real.dtype == torch.float64 else torch.float32
    dims = tuple(range(1, real.ndim)) if real.ndim > 1 else None
    norms: Tensor = torch.linalg.vector_norm(real, dim=dims, keepdim=real.ndim > 1, dtype=wide)
    return norms


def _coalesced_values_(grad: Tensor) -> Tensor:
    """The values of a sparse gradient, after merging its duplicates in place: what clipping by element is about."""
    if not grad.is_coalesced():
        merged = grad.coalesce()
        grad.set_(merged.indices(), merged.values(), merged.shape)  # type: ignore[call-overload]
    return grad._values()
