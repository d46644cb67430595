"""What is too dear for every step, taken now and then from samples: fp16 head-room, underflow, update-to-weight ratio.

Every 50 steps, or more rarely where that would take more than 1 % of the time of a step. Nothing here waits for a
device. Shapes: L layers with a gradient.
"""

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
WEIGHTS_PER_LAYER = 1024


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

    def is_due(self, step: int) -> bool:
        return step >= self._next

    @torch.no_grad()
    def before(self, parameters: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
        """Look at the scaled gradients and the weights the step will change."""
        begin = perf_counter()
        self._sample = Sample()
        dense = [grad for grad in grads if grad.layout == torch.strided and grad.numel() and not grad.is_complex()]
        if self._is_fp16 and len(dense) == len(grads):
            self._sample.headroom_log2 = headroom_log2(dense)
            self._sample.underflow = torch.stack([underflow_fraction(grad) for grad in dense])
        weights = [parameter for parameter in parameters if not parameter.is_complex()]
        if weights and all(weight.device == weights[0].device for weight in weights):
            self._before = sampled(weights)
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
            now, _ = sampled([parameter for parameter in parameters if not parameter.is_complex()])
            norm = torch.linalg.vector_norm(values * shares)
            self._sample.update_ratio = torch.linalg.vector_norm((now - values) * shares) / norm
            self._before = None
        cost_s = self._cost_s + perf_counter() - begin
        self._next = step + max(EVERY, int(cost_s / (MAX_SHARE_OF_TIME * step_time_s)) if step_time_s else EVERY)
        return self._sample


def headroom_log2(grads: Sequence[Tensor]) -> Tensor:
    """log2(65504 / largest |g|), 0-dim float64: doublings of the scale until fp16 overflows."""
    extremes = torch.stack([torch.stack(torch.aminmax(grad)).abs().amax().double() for grad in grads])
    return torch.log2(FP16_MAX / extremes.amax())


def underflow_fraction(grad: Tensor) -> Tensor:
    """The share of elements that would be zero or subnormal in fp16, from a sample of rows; 0-dim float32.

    Rows that are zero throughout (an embedding's unused words) do not count.
    """
    rows = grad.detach().reshape(1, -1) if grad.ndim < 2 else grad.detach().reshape(grad.shape[0], -1)
    stride = max(1, rows.numel() // GRADS_PER_LAYER)
    some = rows[::stride] if grad.ndim >= 2 else rows[:, ::stride]
    if some.numel() > 4 * GRADS_PER_LAYER:  # few rows, each of them long
        some = some[:, :: some.numel() // GRADS_PER_LAYER]
    is_live = (some != 0).any(dim=1, keepdim=True)
    is_lost = (some.abs() < FP16_MIN_NORMAL) & is_live
    return is_lost.sum() / (is_live.sum() * some.shape[1]).clamp(min=1)


def sampled(weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(values, √share) [S] float32: some elements of each tensor, and what each has to be multiplied by so that the
    norm of the sample estimates the norm of all."""
    values, roots = [], []
    for weight in weights:
        flat = weight.detach().reshape(-1)
        some = flat[:: max(1, flat.numel() // WEIGHTS_PER_LAYER)].float()
        values.append(some)
        root = (flat.numel() / max(1, some.numel())) ** 0.5
        roots.append(torch.full((some.numel(),), root, device=some.device))
    return torch.cat(values).clone(), torch.cat(roots)
