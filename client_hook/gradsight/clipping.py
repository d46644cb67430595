"""A policy applied to gradients: the coefficient, and the one multiply that unscales and clips."""

from collections.abc import Sequence

import torch
from torch import Tensor


def clip_coef_on_device(norm: Tensor, max_norm: float) -> Tensor:
    """The clip ratio as a 0-dim float64 tensor, 1 where the norm is not finite. No host sync.

    Args:
        norm: 0-dim float64, unscaled, before clipping.
        max_norm: The threshold in force.
    """
    coef = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return torch.where(norm.isfinite(), coef, torch.ones_like(coef))


@torch.no_grad()
def multiply_(grads: Sequence[Tensor], factor: float | Tensor) -> None:
    """Multiply all gradients in place by one factor: a float, or a 0-dim tensor on their device."""
    dense = [grad for grad in grads if grad.layout == torch.strided]
    if dense:
        torch._foreach_mul_(dense, factor)
    for grad in grads:
        if grad.layout != torch.strided:
            grad._values().mul_(factor)
