"""Mixed precision: the only place with the order — measure, unscale and clip, step, update.

PyTorch's recipe reads and writes every gradient three times before the optimizer reads it: unscale, norm, clip. Here
the norm is taken of the gradients as they are (scaled), and one factor, clip_coef / scale, unscales and clips at once;
an optimizer with a fused kernel takes the factor itself and the gradients are not written at all. With a power-of-two
scale and nothing clipped the parameters are bit-equal to the plain recipe.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

from gradsight.clipping import clip_coef_on_device, multiply_
from gradsight.norms import layer_norms, layer_norms_on_host, total_norm, total_norm_on_device
from gradsight.policies import GlobalNorm, clip_coef


@dataclass(slots=True)
class Outcome:
    """What one optimizer step did. Host steps hold floats, device steps 0-dim tensors nobody has waited for."""

    layer_norms: list[float] | Tensor  # [L], of the gradients as they stood: times `unscale` they are unscaled
    unscale: float | Tensor  # 1 / scale, or 1 where the gradients were not scaled (any more)
    norm: float | Tensor  # unscaled, before clipping
    max_norm: float | None
    clip_coef: float | Tensor
    loss_scale: float | Tensor | None
    loss_scale_after: float | Tensor | None
    found_inf: bool | Tensor
    skipped: bool | Tensor
    optimizer_time_s: float


class LossScale:
    """The loss scale of one optimizer: none, a constant, or torch's GradScaler (its own, or the user's)."""

    def __init__(self, source: float | GradScaler | None, *, update: bool = True) -> None:
        self.scaler = source if isinstance(source, GradScaler) and source.is_enabled() else None
        self.static = float(source) if isinstance(source, int | float) else None
        self._update = update

    @property
    def is_used(self) -> bool:
        return self.scaler is not None or self.static is not None

    def __str__(self) -> str:
        if self.scaler is not None:
            interval = self.scaler.get_growth_interval()
            return f"dynamic(init_scale={self.scaler._init_scale!r}, growth_interval={interval})"
        return "none" if self.static is None else f"static({self.static!r})"

    def scaled(self, loss: Tensor) -> Tensor:
        if self.scaler is not None:
            return self.scaler.scale(loss)
        return loss if self.static is None else loss * self.static

    def on_host(self) -> float | None:
        return self.scaler.get_scale() if self.scaler is not None else self.static

    def on_device(self, device: torch.device) -> Tensor | None:
        """0-dim float64, a copy: GradScaler changes its own in place. No host sync."""
        if self.scaler is not None and self.scaler._scale is not None:
            return self.scaler._scale.to(device, torch.float64, copy=True, non_blocking=True)
        scale = self.on_host()
        return None if scale is None else torch.full((), scale, dtype=torch.float64, device=device)

    def is_unscaled(self, optimizer: Optimizer) -> bool:
        """Whether the user has called `scaler.unscale_(optimizer)` since the last update."""
        if self.scaler is None:
            return False
        return self.scaler._per_optimizer_states[id(optimizer)]["stage"] is OptState.UNSCALED

    def update(self, optimizer: Optimizer, found_inf: Tensor) -> None:
        """Hand the overflow flag (0-dim float32, exactly 0 or 1) to the scaler, which moves the scale by it."""
        if self.scaler is None:
            return
        state = self.scaler._per_optimizer_states[id(optimizer)]
        state["found_inf_per_device"] = {found_inf.device: found_inf}
        state["stage"] = OptState.STEPPED
        if self._update:
            self.scaler.update()


class AmpStep:
    """Takes one optimizer through its steps.

    Args:
        optimizer: The optimizer whose `step` applies the gradients.
        loss_scale: How its losses were scaled.
        fused: Hand the factor to the optimizer's fused kernel where it has one.
        skip_nonfinite: Skip a step with non-finite gradients where there is no loss scale too.
    """

    def __init__(self, optimizer: Optimizer, loss_scale: LossScale, *, fused: bool, skip_nonfinite: bool) -> None:
        self._optimizer = optimizer
        self._loss_scale = loss_scale
        self._fused = fused and bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        self._skips = skip_nonfinite or loss_scale.is_used

    def step(self, grads: Sequence[Tensor], policy: GlobalNorm | None) -> Outcome:
        """Measure, unscale and clip, step, update. `grads`: L gradients, at least one."""
        device = grads[0].device
        if device.type == "cuda" and all(grad.device == device for grad in grads):
            return self._step_on_device(grads, policy, device)
        return self._step_on_host(grads, policy)

    def clip(self, grads: Sequence[Tensor], policy: GlobalNorm | None) -> Outcome:
        """Measure and clip in place, for an optimizer that calls back for gradients (no loss scale then)."""
        norm_type = policy.norm_type if policy else 2.0
        max_norm = policy.max_norm if policy else None
        norms = layer_norms_on_host(grads, norm_type)
        norm = total_norm(norms, norm_type)
        coef = 1.0 if max_norm is None else clip_coef(norm, max_norm)
        if coef != 1.0:
            multiply_(grads, coef)
        return Outcome(norms, 1.0, norm, max_norm, coef, None, None, not math.isfinite(norm), False, 0.0)

    def _step_on_host(self, grads: Sequence[Tensor], policy: GlobalNorm | None) -> Outcome:
        norm_type = policy.norm_type if policy else 2.0
        max_norm = policy.max_norm if policy else None
        scale = self._loss_scale.on_host()
        divisor = 1.0 if scale is None or self._loss_scale.is_unscaled(self._optimizer) else scale
        unscale = 1.0 / divisor if divisor else math.inf
        scaled_norms = layer_norms_on_host(grads, norm_type)
        norm = total_norm(scaled_norms, norm_type) * unscale
        found_inf = not math.isfinite(norm)
        coef = 1.0 if max_norm is None else clip_coef(norm, max_norm)
        skipped = found_inf and self._skips
        optimizer_time_s = 0.0
        if not skipped:
            if self._fused:
                optimizer_time_s = self._step_fused(divisor / coef if coef else math.inf)
            else:
                if coef * unscale != 1.0:
                    multiply_(grads, coef * unscale)
                optimizer_time_s = self._timed_step()
        if self._loss_scale.scaler is not None:
            self._loss_scale.update(self._optimizer, torch.full((), float(found_inf), device=grads[0].device))
        scale_after = self._loss_scale.on_host()
        return Outcome(
            scaled_norms, unscale, norm, max_norm, coef, scale, scale_after, found_inf, skipped, optimizer_time_s
        )

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

    def _step_on_device(self, grads: Sequence[Tensor], policy: GlobalNorm | None, device: torch.device) -> Outcome:
        """The same without waiting for the device; a not fused step that may be skipped reads one pair
        of scalars, as GradScaler reads one."""
        norm_type = policy.norm_type if policy else 2.0
        max_norm = policy.max_norm if policy else None
        scale = self._loss_scale.on_device(device)
        divisor = torch.ones((), dtype=torch.float64, device=device) if scale is None else scale
        if self._loss_scale.is_unscaled(self._optimizer):
            divisor = torch.ones_like(divisor)
        scaled_norms = layer_norms(grads, norm_type)
        norm = total_norm_on_device(scaled_norms, norm_type) / divisor
        found_inf = (~norm.isfinite()).float()
        coef = torch.ones_like(norm) if max_norm is None else clip_coef_on_device(norm, max_norm)
        skipped: bool | Tensor = found_inf if self._skips else False
        if self._fused and self._has_safe_state():
            optimizer_time_s = self._step_fused_on_device(divisor / coef, found_inf if self._skips else None)
        else:
            factor = coef / divisor
            must_skip, factor_on_host = (
                torch.stack((found_inf.double(), factor)).tolist() if self._skips else (0.0, 0.0)
            )
            skipped, optimizer_time_s = bool(must_skip), 0.0
            if not skipped:
                if factor_on_host != 1.0 and (max_norm is not None or scale is not None):
                    multiply_(grads, factor.float())
                optimizer_time_s = self._timed_step()
        self._loss_scale.update(self._optimizer, found_inf)
        return Outcome(
            layer_norms=scaled_norms,
            unscale=1.0 / divisor,
            norm=norm,
            max_norm=max_norm,
            clip_coef=coef,
            loss_scale=scale,
            loss_scale_after=self._loss_scale.on_device(device),
            found_inf=found_inf,
            skipped=skipped,
            optimizer_time_s=optimizer_time_s,
        )

    def _step_fused_on_device(self, divisor: Tensor, found_inf: Tensor | None) -> float:
        optimizer: Any = self._optimizer
        optimizer.grad_scale = divisor.float()
        if found_inf is not None:
            optimizer.found_inf = found_inf
        try:
            return self._timed_step()
        finally:
            del optimizer.grad_scale
            if found_inf is not None:
                del optimizer.found_inf

    def _has_safe_state(self) -> bool:
        """Whether an overflow may reach the fused kernel. Fused SGD allocates its momentum uninitialised, returns
        early on an overflow and keeps the garbage: until its state is there, a step is only taken when known good."""
        return all(
            not group.get("momentum") or "momentum_buffer" in self._optimizer.state.get(group["params"][0], {})
            for group in self._optimizer.param_groups
            if group["params"]
        )

    def _timed_step(self) -> float:
        begin = perf_counter()
        self._optimizer.step()
        return perf_counter() - begin
