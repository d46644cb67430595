"""What is too dear for every step, taken now and then from samples: fp16 head-room, underflow, update-to-weight ratio.

Every 50 steps, or more rarely where that would take more than 1 % of the time of a step. Nothing here waits for a
device. Shapes: L layers with a gradient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

FP16_MAX = 65504.0
FP16_MIN_NORMAL = 2.0**-14
EVERY = 50
MAX_SHARE_OF_TIME = 0.01
GRADS_PER_LAYER = 8192
WEIGHTS_PER_LAYER = 16_384
GOLDEN_RATIO = 0.6180339887498949


@dataclass(slots=True)
class Sample:
    """The sampled values of one step, as tensors nobody has waited for.

    headroom_log2: log2(65504 / max|g|) of the scaled gradients, exact; below 0 fp16 overflows.
    underflow: [L], the share of each layer's scaled gradients that would be zero or subnormal in fp16.
    Both None unless fp16.
    update_ratio: ‖Δw‖ / ‖w‖ of this step over all layers, from samples of each.
    """

    headroom_log2: Tensor | None = None
    underflow: Tensor | None = None
    update_ratio: Tensor | None = None


class Sampler:
    """Decides which steps are sampled, and samples them.

    Args:
        is_fp16: Whether head-room and underflow of fp16 mean anything.
    """

    def __init__(self, *, is_fp16: bool) -> None:
        self._is_fp16 = is_fp16
        self._next = 0
        self._before: tuple[Tensor, Tensor] | None = None
        self._sample = Sample()
        self._cost_s = 0.0
        self._places: dict[tuple[int, torch.device], Tensor] = {}

    def is_due(self, step: int) -> bool:
        return step >= self._next

    @torch.no_grad()
    def before(self, parameters: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Look at the scaled gradients and the weights the step will change."""
        begin = perf_counter()
        self._sample, self._before = Sample(), None
        if self._is_fp16:
            device = grads[0].device
            plain = [as_matrix(grad) for grad in grads]
            self._sample.headroom_log2 = headroom_log2(plain)
            self._sample.underflow = torch.stack([underflow_fraction(grad).to(device) for grad in plain])
        self._before = self._weights(parameters)
        self._cost_s = perf_counter() - begin

    @torch.no_grad()
    def after(self, parameters: Sequence[Tensor], step: int, step_time_s: float) -> Sample:
        """Look at the weights again.

        Args:
            step: Number of the sampled step.
            step_time_s: How long a step takes at present, 0 where that is not known: sets when to sample next.
        """
        begin = perf_counter()
        if self._before is not None:
            values, shares = self._before
            now, _ = self._weights(parameters)
            norm = torch.linalg.vector_norm(values * shares)
            self._sample.update_ratio = torch.linalg.vector_norm((now - values) * shares) / norm
            self._before = None
        cost_s = self._cost_s + perf_counter() - begin
        self._next = step + max(EVERY, math.ceil(cost_s / (MAX_SHARE_OF_TIME * step_time_s)) if step_time_s else EVERY)
        return self._sample

    def _weights(self, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """(values, √share) [S] float32: some elements of each tensor, and what each has to be multiplied by so that
        the norm of the sample estimates the norm of all."""
        device = weights[0].device
        values, roots = [], []
        for weight in weights:
            flat = (torch.view_as_real(weight) if weight.is_complex() else weight).detach().reshape(-1)
            some = flat[self._places_in(flat)].float()
            values.append(some.to(device))
            root = (flat.numel() / max(1, some.numel())) ** 0.5
            roots.append(torch.full((some.numel(),), root, device=device))
        return torch.cat(values), torch.cat(roots)

    def _places_in(self, flat: Tensor) -> Tensor:
        """Where to look: one place in each stretch of the tensor, at distances that never repeat (multiples of the
        golden ratio), since regular ones would meet the same few columns in every row."""
        key = (flat.numel(), flat.device)
        if key not in self._places:
            stretch = max(1, flat.numel() // WEIGHTS_PER_LAYER)
            index = torch.arange(min(flat.numel(), WEIGHTS_PER_LAYER), device=flat.device)
            self._places[key] = index * stretch + (index.double() * GOLDEN_RATIO % 1.0 * stretch).long()
        return self._places[key]


def as_matrix(grad: Tensor) -> Tensor:
    """The gradient as rows of real numbers: a sparse one's coalesced values, a vector as one row."""
    grad = grad.detach()
    values = grad if grad.layout == torch.strided else grad.coalesce().values()
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    return values.reshape(1, -1) if grad.ndim < 2 else values.reshape(len(values), math.prod(values.shape[1:]))


def headroom_log2(grads: Sequence[Tensor]) -> Tensor:
    """log2(65504 / largest |g|), 0-dim float64: doublings of the scale until fp16 overflows."""
    device = grads[0].device
    largest = [torch.stack(torch.aminmax(grad)).abs().amax().double().to(device) for grad in grads if grad.numel()]
    return torch.log2(FP16_MAX / torch.stack(largest).amax()) if largest else torch.full((), torch.inf, device=device)


def underflow_fraction(rows: Tensor) -> Tensor:
    """The share of elements that would be zero or subnormal in fp16, from a sample of the rows; 0-dim float32.

    Rows that are zero throughout (an embedding's unused words) do not count.
    """
    stride = max(1, rows.numel() // GRADS_PER_LAYER)
    some = rows[::stride] if len(rows) > 1 else rows[:, ::stride]
    if some.numel() > 4 * GRADS_PER_LAYER:  # few rows, each of them long
        some = some[:, :: some.numel() // GRADS_PER_LAYER]
    is_live = (some != 0).any(dim=1, keepdim=True)
    is_lost = (some.abs() < FP16_MIN_NORMAL) & is_live
    return is_lost.sum() / (is_live.sum() * some.shape[1]).clamp(min=1)
