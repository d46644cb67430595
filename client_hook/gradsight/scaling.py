"""The loss scale of one optimizer: none, a constant, or dynamic (torch's GradScaler, with hysteresis where asked)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

from gradsight import arguments
from gradsight.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class DynamicScale:
    """Settings of dynamic loss scaling.

    Args:
        init_scale: The first scale; a power of two keeps scaling exact.
        growth_interval: Steps in a row without overflow after which the scale doubles.
        hysteresis: Overflows it takes before the scale is halved (each is skipped all the same); counted anew when
            the scale has grown. 1 halves at once, as torch does.

    Raises:
        ConfigurationError: an argument that is no positive number.

    Source: hysteresis as in NVIDIA's Megatron-LM and Microsoft's DeepSpeed.
    """

    init_scale: float = 65536.0
    growth_interval: int = 2000
    hysteresis: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "init_scale", arguments.finite_from("init_scale", self.init_scale, least=0))
        arguments.whole("growth_interval", self.growth_interval, least=1)
        arguments.whole("hysteresis", self.hysteresis, least=1)

    def scaler(self, device_type: str) -> GradScaler:
        """A GradScaler with these settings."""
        if self.hysteresis == 1:
            return GradScaler(device_type, init_scale=self.init_scale, growth_interval=self.growth_interval)
        return HysteresisScaler(device_type, self)


class HysteresisScaler(GradScaler):
    """GradScaler that halves only after `hysteresis` overflows. No host sync."""

    def __init__(self, device_type: str, settings: DynamicScale) -> None:
        super().__init__(device_type, init_scale=settings.init_scale, growth_interval=settings.growth_interval)
        self.hysteresis = settings.hysteresis
        self._left: Tensor | None = None  # overflows left until the scale is halved, on the scale's device
        self._left_at_start = float(settings.hysteresis)

    def update(self, new_scale: float | Tensor | None = None) -> None:
        scale, tracker = self._check_scale_growth_tracker("update")
        found = [
            value for state in self._per_optimizer_states.values() for value in state["found_inf_per_device"].values()
        ]
        if new_scale is not None or not found:
            super().update(new_scale)
            return
        overflow = torch.stack([value.to(scale.device, non_blocking=True) for value in found]).amax() > 0
        if self._left is None:
            self._left = torch.full_like(scale, self._left_at_start)
        left = torch.where(overflow, self._left - 1, self._left)
        forgiven = overflow & (left > 0)
        before = scale.clone()
        super().update()
        scale.copy_(torch.where(forgiven, before, scale))
        tracker.masked_fill_(overflow, 0)
        grew = scale > before
        self._left = torch.where(grew, torch.full_like(left, float(self.hysteresis)), left)

    def state_dict(self) -> dict[str, Any]:
        left = self._left_at_start if self._left is None else float(self._left)
        return {**super().state_dict(), "hysteresis_left": left}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from the state of this scaler or, with all of the hysteresis left, of one without."""
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "hysteresis_left"})
        self._left_at_start, self._left = float(state_dict.get("hysteresis_left", self.hysteresis)), None


class LossScale:
    """The loss scale of one optimizer. `scaler` is torch's GradScaler where the scale is dynamic, else None."""

    def __init__(self, source: float | GradScaler | None, *, update: bool = True) -> None:
        self.scaler = source if isinstance(source, GradScaler) and source.is_enabled() else None
        self.static = float(source) if isinstance(source, int | float) else None
        self._update = update

    @property
    def is_used(self) -> bool:
        return self.scaler is not None or self.static is not None

    def __str__(self) -> str:
        scaler = self.scaler
        if scaler is None:
            return "none" if self.static is None else f"static({self.static!r})"
        hysteresis = f", hysteresis={scaler.hysteresis}" if isinstance(scaler, HysteresisScaler) else ""
        return f"dynamic(init_scale={scaler._init_scale!r}, growth_interval={scaler.get_growth_interval()}{hysteresis})"

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

    def require_scaled(self) -> None:
        """Raises ConfigurationError where no loss was ever scaled: unscaling its gradients would shrink them."""
        if self.scaler is not None and self.scaler._scale is None:
            raise ConfigurationError(
                "gradients must come from a scaled loss with precision 'fp16', got a backward of the loss itself: "
                "use step(loss), backward(loss) or scaler.scale(loss)."
            )

    def is_unscaled(self, optimizer: Optimizer) -> bool:
        """Whether the user has called `scaler.unscale_(optimizer)` since the last update."""
        if self.scaler is None:
            return False
        return self.scaler._per_optimizer_states[id(optimizer)]["stage"] is OptState.UNSCALED

    def update(self, optimizer: Optimizer, found_inf: Tensor) -> None:
        """Hand the overflow flag (0-dim float32, exactly 0 or 1) to the scaler, which moves the scale by it.

        Where the optimizer has stepped since the last update (a critic's five steps to one of the generator), one
        overflow among them counts."""
        if self.scaler is None:
            return
        state = self.scaler._per_optimizer_states[id(optimizer)]
        earlier = state["found_inf_per_device"].get(found_inf.device)
        # A tensor of the scaler's own: it adds up the flags of several optimizers in place.
        flag = found_inf.clone() if earlier is None else torch.maximum(earlier, found_inf)
        state["found_inf_per_device"] = {found_inf.device: flag}
        state["stage"] = OptState.STEPPED
        if self._update:
            self.scaler.update()

    def update_without_step(self) -> None:
        """The optimizer had no gradient: the others that share the scaler may still have had theirs."""
        scaler = self.scaler
        if scaler is None or not self._update:
            return
        if any(state["found_inf_per_device"] for state in scaler._per_optimizer_states.values()):
            scaler.update()


def check_state(scaler: GradScaler, state: Any) -> None:
    """Refuse what `scaler.load_state_dict` would choke on half-way.

    Raises:
        ConfigurationError: `state` is none of a GradScaler; nothing is changed then.
    """
    names = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")
    if not isinstance(state, Mapping) or not {*names} <= state.keys():
        raise ConfigurationError(f"scaler must be the state of a GradScaler, with {', '.join(names)}, got {state!r}.")
    for name in names[:3]:
        arguments.state_number(name, state[name])
    arguments.whole("growth_interval", state["growth_interval"], least=1)
    arguments.whole("_growth_tracker", state["_growth_tracker"], least=0)
    left = state.get("hysteresis_left", 0.0)
    if isinstance(left, bool) or not isinstance(left, int | float) or not math.isfinite(left):
        raise ConfigurationError(f"hysteresis_left must be a finite number, got {left!r}.")


def scaling(precision: str, loss_scale: Any, device_type: str) -> float | GradScaler | None:
    """Where the loss scale comes from: a constant, a GradScaler, or None.

    Raises:
        ConfigurationError: a scale with a precision that takes none, or one that is no positive number.
    """
    if precision != "fp16":
        if loss_scale != "dynamic":
            raise ConfigurationError(f"loss_scale must be left out with precision {precision!r}, got {loss_scale!r}.")
        return None
    if loss_scale == "dynamic":
        return DynamicScale().scaler(device_type)
    if isinstance(loss_scale, DynamicScale):
        return loss_scale.scaler(device_type)
    if isinstance(loss_scale, GradScaler):
        return loss_scale
    return arguments.finite_from("loss_scale", loss_scale, least=0)
