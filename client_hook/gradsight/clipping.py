"""The policies applied to one optimizer's gradients: what to multiply them by, and what to record of it.

A clipper is a policy's working copy, with the state of its thresholds. It decides from norms, so that one multiply can
unscale and clip; only `Value` and `UnitNorm`, which treat elements of one tensor differently, need the unscaled
gradients themselves (element_clipping.py). Shapes: L layers with a gradient; norms are unscaled, before clipping.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from gradsight.norms import Scalar, layer_norms, layer_norms_on_host
from gradsight.policies import GlobalNorm, clip_coef
from gradsight.sharding import Shards
from gradsight.thresholds import Threshold

EPS = 1e-6
HALF_PRECISION = (torch.float16, torch.bfloat16)


@dataclass(slots=True)
class Seen:
    """One step's gradients, as a clipper sees them.

    Args:
        names: L layer names; the same object as long as the same layers have a gradient.
        parameters, grads: L tensors each; the gradients as they stand in `.grad`, maybe scaled.
        scaled_norms: Their norms as they stand: L floats, or a tensor [L].
        total: The p-norm of all, unscaled.
        is_finite: Whether every gradient is; on a device a 0-dim bool tensor.
        unscale: What the gradients are to be multiplied by to unscale them.
        shards: Where layers are spread over ranks: then parameters and grads are the local parts, norms those of the
            whole.
    """

    names: Sequence[str]
    parameters: Sequence[Tensor]
    grads: Sequence[Tensor]
    scaled_norms: Sequence[float] | Tensor
    total: Scalar
    is_finite: bool | Tensor
    unscale: Scalar
    shards: Shards | None = None

    @property
    def vector(self) -> Tensor:
        """The unscaled norms as a float64 tensor [L]."""
        norms = self.scaled_norms
        return (
            norms.double() if isinstance(norms, Tensor) else torch.tensor(norms, dtype=torch.float64)
        ) * self.unscale


@dataclass(slots=True)
class GroupClip:
    """What was decided for one group of parameters."""

    norm: Scalar
    clip_coef: Scalar
    max_norm: Scalar | None = None


@dataclass(slots=True)
class Clip:
    """What was decided for one step.

    Where `factors` is None the unscaled gradients have to be given to `clip_`, which knows the rest.
    """

    factors: Scalar | Tensor | None
    """What unscaled gradients are to be multiplied by: one scalar, or a float64 tensor [L]."""
    clip_coef: Scalar = 1.0
    """The coefficient; ‖after‖/‖before‖ where it is not the same for all."""
    max_norm: Scalar | None = None
    clipped: Tensor | None = None
    """Which of the L layers were clipped, where there is no single coefficient."""
    groups: dict[str, GroupClip] = field(default_factory=dict)

    @property
    def clipped_layer_fraction(self) -> Scalar | None:
        if self.clipped is None:
            return None
        return on_host(self.clipped.double().mean()) if self.clipped.numel() else 0.0


class Clipper(Protocol):
    """A policy at work on one optimizer."""

    norm_type: float

    def decide(self, seen: Seen) -> Clip: ...

    def clip_(self, seen: Seen) -> Clip:
        """Clip the unscaled gradients in place, for a policy whose `decide` gives no factors."""
        ...

    def learners(self) -> Iterator[tuple[str, Any]]:
        """(name, object with state_dict and load_state_dict) for everything that learns."""
        ...


class FactorClipper:
    """Base of the clippers whose factors say it all."""

    norm_type = 2.0

    def clip_(self, seen: Seen) -> Clip:
        raise AssertionError("decide() has given the factors")

    def learners(self) -> Iterator[tuple[str, Any]]:
        yield from ()


class GlobalClipper(FactorClipper):
    """`GlobalNorm`: one coefficient for all gradients."""

    def __init__(self, policy: GlobalNorm) -> None:
        self.norm_type = policy.norm_type
        self._max_norm = deepcopy(policy.max_norm)

    def decide(self, seen: Seen) -> Clip:
        max_norm = self._max_norm(seen.total) if isinstance(self._max_norm, Threshold) else self._max_norm
        coef = coefficient(seen.total, max_norm)
        return Clip(coef, coef, max_norm)

    def learners(self) -> Iterator[tuple[str, Any]]:
        if isinstance(self._max_norm, Threshold):
            yield "max_norm", self._max_norm


class NoClipper(FactorClipper):
    """No policy: gradients are measured and left as they are."""

    def decide(self, seen: Seen) -> Clip:
        return Clip(factors=1.0)


def coefficient(norm: Scalar, max_norm: Scalar) -> Scalar:
    """min(1, max_norm / (norm + 1e-6)), 1 where the norm is not finite. No host sync."""
    if not isinstance(norm, Tensor):
        return clip_coef(norm, float(max_norm))
    coef = (max_norm / (norm + EPS)).clamp(max=1.0)
    return torch.where(norm.isfinite(), coef, torch.ones_like(coef))


def effective(seen: Seen, after: Tensor) -> Scalar:
    """‖after‖/‖before‖ of all layers together: after [L] are the unscaled norms; 1 where that makes no sense."""
    ratio = torch.linalg.vector_norm(after) / torch.linalg.vector_norm(seen.vector)
    makes_sense = ratio.isfinite() & torch.as_tensor(seen.is_finite, device=ratio.device)
    return on_host(torch.where(makes_sense, ratio, torch.ones_like(ratio)))


def measured(seen: Seen, grads: Sequence[Tensor], norm_type: float = 2.0) -> Tensor:
    """Norms [L] of gradients as they stand now, where and as exactly as `seen` was measured."""
    if seen.shards is not None:
        return seen.shards.norms_of(grads)
    if isinstance(seen.scaled_norms, Tensor):
        return layer_norms(grads, norm_type).double()
    return torch.tensor(layer_norms_on_host(grads, norm_type), dtype=torch.float64)


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device, which is not waited for: it would be, copying from memory that is not pinned."""
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def on_host(value: Tensor) -> Scalar:
    """A CPU scalar as a float; what is on a device stays there."""
    return value if value.is_cuda else float(value)


def as_multiplier(factors: Scalar | Tensor, unscale: Scalar = 1.0) -> float | Tensor | list[float]:
    """`factors` · `unscale` in the form `multiply_` takes: floats where nothing is on a device."""
    product = factors * unscale
    if not isinstance(product, Tensor):
        return product
    if product.is_cuda:
        return product.float()
    floats: float | list[float] = product.tolist()
    return floats


@torch.no_grad()
def multiply_(grads: Sequence[Tensor], factor: float | Tensor | Sequence[float]) -> None:
    """Multiply all gradients in place.

    Args:
        grads: L gradients, none too.
        factor: A float, a 0-dim tensor on their device, L floats, or a tensor [L] on their device.
    """
    is_one = not (factor.ndim if isinstance(factor, Tensor) else isinstance(factor, Sequence))
    each: Any = factor.unbind() if isinstance(factor, Tensor) and factor.ndim else factor
    strided, by_tensor = torch.strided, isinstance(factor, Tensor)
    alone = [
        index
        for index, grad in enumerate(grads)
        if grad.layout is not strided or (by_tensor and grad.dtype in HALF_PRECISION)
    ]
    if not alone:
        if grads:  # a rank may hold none
            torch._foreach_mul_(list(grads), each)
        return
    together = sorted({*range(len(grads))}.difference(alone))
    if together:
        torch._foreach_mul_(
            [grads[index] for index in together], each if is_one else [each[index] for index in together]
        )
    for index in alone:
        grad, by = grads[index], each if is_one else each[index]
        values = grad if grad.layout == torch.strided else grad._values()
        # With one dimension a tensor keeps its float32: as a scalar it would be rounded to half precision first.
        values.mul_(by.reshape(1).expand_as(values) if isinstance(by, Tensor) else by)
