"""Mixed precision: the only place with the order — measure, unscale and clip, step, update.

PyTorch's recipe reads and writes every gradient three times before the optimizer reads it: unscale, norm, clip. Here
the norm is taken of the gradients as they are (scaled), and one factor, clip_coef / scale, unscales and clips at once;
an optimizer with a fused kernel takes the factor itself and the gradients are not written at all. With a power-of-two
scale and nothing clipped the parameters are bit-equal to the plain recipe.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradsight.clipping import Clip, Clipper, Seen, as_multiplier, multiply_
from gradsight.norms import HostMeter, Scalar, layer_norms, total_norm, total_norm_on_device
from gradsight.scaling import LossScale
from gradsight.sharding import Shards

FLOAT32_MAX = torch.finfo(torch.float32).max
FLOAT64_MAX = torch.finfo(torch.float64).max


@dataclass(slots=True)
class Outcome:
    """What one optimizer step did. Host steps hold floats, device steps 0-dim tensors nobody has waited for."""

    layer_norms: list[float] | Tensor  # [L], of the gradients as they stood: times `unscale` they are unscaled
    unscale: Scalar  # 1 / scale, or 1 where the gradients were not scaled (any more)
    norm: Scalar  # unscaled, before clipping
    clip: Clip
    loss_scale: Scalar | None
    loss_scale_after: Scalar | None
    skipped: bool | Tensor
    optimizer_time_s: float
    skip_reason: Literal["overflow", "nonfinite", "user"] = "nonfinite"  # where skipped
    was_unscaled: bool = False  # the user had called scaler.unscale_


class AmpStep:
    """Takes one optimizer through its steps.

    Args:
        optimizer: The optimizer whose `step` applies the gradients.
        loss_scale: How its losses were scaled.
        clipper: The clipping policy at work.
        fused: Hand the factor to the optimizer's fused kernel where it has one.
        skip_nonfinite: Skip a step with non-finite gradients where there is no loss scale too.
    """

    def __init__(
        self, optimizer: Optimizer, loss_scale: LossScale, clipper: Clipper, *, fused: bool, skip_nonfinite: bool
    ) -> None:
        self._optimizer = optimizer
        self._loss_scale = loss_scale
        self.clipper = clipper
        self._meter = HostMeter()
        self._fused = fused and bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        self._skips = skip_nonfinite or loss_scale.is_used
        self._reason: Literal["overflow", "nonfinite"] = "overflow" if loss_scale.is_used else "nonfinite"

    def step(
        self,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        grads: Sequence[Tensor],
        shards: Shards | None = None,
    ) -> Outcome:
        """Measure, unscale and clip, step, update: L layer names, parameters and gradients, at least one; of layers
        that are spread over ranks the local parts, and `shards`, which has measured them (there may be none then)."""
        device = _device(grads, shards)
        if device.type == "cuda" and all(grad.device == device for grad in grads):
            return self._step_on_device(names, parameters, grads, shards)
        return self._step_on_host(names, parameters, grads, shards)

    def skip(self, names: Sequence[str], grads: Sequence[Tensor], shards: Shards | None = None) -> Outcome:
        """Measure and update without a step: the user's choice. No threshold learns from this step."""
        outcome = self._measured_on_host(names, grads, shards)
        self._update_scale(_device(grads, shards), not math.isfinite(float(outcome.norm)))
        outcome.loss_scale_after = self._loss_scale.on_host()
        outcome.skipped, outcome.skip_reason = True, "user"
        return outcome

    def clip(
        self,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        grads: Sequence[Tensor],
        shards: Shards | None = None,
        *,
        is_first: bool,
    ) -> Outcome:
        """Measure and clip in place, for an optimizer that calls back for gradients (no loss scale then). Of its calls
        in one step only the first teaches the thresholds; where gradients are not finite they are left alone."""
        outcome = self._measured_on_host(names, grads, shards)
        seen = self._seen(outcome, names, parameters, grads, shards)
        clipper = self.clipper if is_first else deepcopy(self.clipper)
        outcome.clip = clipper.decide(seen)
        outcome.skipped = self._skips and not seen.is_finite
        if not outcome.skipped:
            self._apply(outcome, seen, clipper)
        return outcome

    def _step_on_host(
        self, names: Sequence[str], parameters: Sequence[Tensor], grads: Sequence[Tensor], shards: Shards | None
    ) -> Outcome:
        outcome = self._measured_on_host(names, grads, shards)
        seen = self._seen(outcome, names, parameters, grads, shards)
        outcome.clip = self.clipper.decide(seen)
        factors = outcome.clip.factors
        if not seen.is_finite and self._skips:
            outcome.skipped = True
        elif self._fused and isinstance(factors, float):
            factor = factors * float(outcome.unscale)
            outcome.optimizer_time_s = self._step_fused(1.0 / factor if factor else math.inf)
        else:
            self._apply(outcome, seen, self.clipper)
            outcome.optimizer_time_s = self._timed_step()
        self._update_scale(_device(grads, shards), not seen.is_finite)
        outcome.loss_scale_after = self._loss_scale.on_host()
        return outcome

    def _measured_on_host(self, names: Sequence[str], grads: Sequence[Tensor], shards: Shards | None) -> Outcome:
        self._loss_scale.require_scaled()
        scale = self._loss_scale.on_host()
        was_unscaled = self._loss_scale.is_unscaled(self._optimizer)
        divisor = 1.0 if scale is None or was_unscaled else scale
        unscale = 1.0 / divisor if divisor else math.inf
        if shards is None:
            scaled_norms = self._meter(names, grads, self.clipper.norm_type)
            norm = total_norm(scaled_norms, self.clipper.norm_type) * unscale
        else:
            scaled_norms, norm = shards.norms.tolist(), float(shards.total) * unscale
        return Outcome(scaled_norms, unscale, norm, Clip(1.0), scale, scale, False, 0.0, self._reason, was_unscaled)

    def _seen(
        self,
        outcome: Outcome,
        names: Sequence[str],
        parameters: Sequence[Tensor],
        grads: Sequence[Tensor],
        shards: Shards | None,
    ) -> Seen:
        is_finite = fits_float32(outcome.norm, outcome.unscale)
        return Seen(names, parameters, grads, outcome.layer_norms, outcome.norm, is_finite, outcome.unscale, shards)

    def _apply(self, outcome: Outcome, seen: Seen, clipper: Clipper) -> None:
        """Unscale and clip the gradients in place."""
        factors = outcome.clip.factors
        factor = as_multiplier(1.0 if factors is None else factors, outcome.unscale)
        if isinstance(factor, Tensor) or factor != 1.0:
            multiply_(seen.grads, factor)
        if factors is None:
            norms = seen.vector
            unscaled = replace(seen, scaled_norms=norms if norms.is_cuda else norms.tolist(), unscale=1.0)
            outcome.clip = clipper.clip_(unscaled)

    def _step_fused(self, divisor: float) -> float:
        """The kernel divides the gradients as it reads them: by the scale, over the clip ratio."""
        optimizer: Any = self._optimizer
        if divisor == 1.0:
            return self._timed_step()
        optimizer.grad_scale = torch.full((), divisor, dtype=torch.float32)
        try:
            return self._timed_step()
        finally:
            del optimizer.grad_scale

    def _step_on_device(
        self, names: Sequence[str], parameters: Sequence[Tensor], grads: Sequence[Tensor], shards: Shards | None
    ) -> Outcome:
        """The same without waiting for the device; a step that is not fused and may be skipped reads one pair of
        scalars, as GradScaler reads one."""
        outcome = self._measured_on_device(grads, shards)
        seen = self._seen(outcome, names, parameters, grads, shards)
        outcome.clip = self.clipper.decide(seen)
        found_inf = (~torch.as_tensor(seen.is_finite)).float()
        if self._fused and self._has_safe_state():
            outcome.skipped = found_inf if self._skips else False
            factors = outcome.clip.factors
            divisor = None
            if factors is None or (isinstance(factors, Tensor) and factors.ndim):
                self._apply(outcome, seen, self.clipper)
            else:
                divisor = (1.0 / (factors * outcome.unscale)).float()  # type: ignore[union-attr]
            outcome.optimizer_time_s = self._step_fused_on_device(divisor, found_inf if self._skips else None)
        else:
            outcome.skipped = self._skips and bool(found_inf.item())
            if not outcome.skipped:
                self._apply(outcome, seen, self.clipper)
                outcome.optimizer_time_s = self._timed_step()
        self._loss_scale.update(self._optimizer, found_inf)
        outcome.loss_scale_after = self._loss_scale.on_device(_device(grads, shards))
        return outcome

    def _measured_on_device(self, grads: Sequence[Tensor], shards: Shards | None) -> Outcome:
        device = _device(grads, shards)
        self._loss_scale.require_scaled()
        scale = self._loss_scale.on_device(device)
        was_unscaled = self._loss_scale.is_unscaled(self._optimizer)
        one = torch.ones((), dtype=torch.float64, device=device)
        unscale = one if scale is None or was_unscaled else 1.0 / scale
        if shards is None:
            scaled_norms = layer_norms(grads, self.clipper.norm_type)
            norm = total_norm_on_device(scaled_norms, self.clipper.norm_type) * unscale
        else:
            scaled_norms, norm = shards.norms, shards.total * unscale
        return Outcome(scaled_norms, unscale, norm, Clip(1.0), scale, scale, False, 0.0, self._reason, was_unscaled)

    def _step_fused_on_device(self, divisor: Tensor | None, found_inf: Tensor | None) -> float:
        optimizer: Any = self._optimizer
        given = {"grad_scale": divisor, "found_inf": found_inf}
        for name, value in given.items():
            if value is not None:
                setattr(optimizer, name, value)
        try:
            return self._timed_step()
        finally:
            for name, value in given.items():
                if value is not None:
                    delattr(optimizer, name)

    def _has_safe_state(self) -> bool:
        """Whether an overflow may reach the fused kernel. Fused SGD allocates its momentum uninitialised, returns
        early on an overflow and keeps the garbage: until its state is there, a step is only taken when known good."""
        state = self._optimizer.state
        for group in self._optimizer.param_groups:
            first = next((parameter for parameter in group["params"] if parameter.grad is not None), None)
            if group.get("momentum") and first is not None and state.get(first, {}).get("momentum_buffer") is None:
                return False
        return True

    def _update_scale(self, device: torch.device, found_inf: bool) -> None:
        if self._loss_scale.scaler is not None:
            self._loss_scale.update(self._optimizer, torch.full((), float(found_inf), device=device))

    def _timed_step(self) -> float:
        begin = perf_counter()
        self._optimizer.step()
        return perf_counter() - begin


def fits_float32(norm: Scalar, unscale: Scalar) -> bool | Tensor:
    """Whether all gradients are finite and stay so when unscaled: with a scale below one, which dynamic scaling comes
    to when every step overflows, multiplying finite gradients by its inverse can take them past float32. No host sync.
    """
    if isinstance(norm, Tensor):
        unscale = torch.as_tensor(unscale, dtype=norm.dtype, device=norm.device)
        return torch.maximum(norm, unscale) <= torch.where(unscale > 1.0, FLOAT32_MAX, norm.new_full((), FLOAT64_MAX))
    unscale = float(unscale)
    return math.isfinite(norm) and (unscale <= 1.0 or max(norm, unscale) <= FLOAT32_MAX)


def _device(grads: Sequence[Tensor], shards: Shards | None) -> torch.device:
    device: torch.device = grads[0].device if shards is None else shards.total.device
    return device
