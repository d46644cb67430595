"""What a step's outcome says, read when somebody asks: at once on the CPU, from one asynchronous copy on a GPU."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradsight.amp import Outcome

Values = dict[str, float | bool | str | None]


class Reading:
    """A step's scalar columns and its layers' unscaled norms.

    Args:
        outcome: None for a step without a gradient.
        loss: The sum of what `backward` was given (0-dim), None where that is not known.
        lr: A float, or a 0-dim tensor on the device.
        is_scaled: Whether there is a loss scale: a skip is then an overflow.
    """

    def __init__(
        self, outcome: Outcome | None, *, loss: Tensor | None, lr: float | Tensor | None, is_scaled: bool
    ) -> None:
        self._outcome = outcome
        self._is_scaled = is_scaled
        self._scalars: dict[str, Any] = {"loss": loss, "lr": lr}
        if outcome is not None:
            self._scalars |= {
                "grad_norm_before_clip": outcome.norm,
                "clip_coef": outcome.clip_coef,
                "loss_scale": outcome.loss_scale,
                "loss_scale_after": outcome.loss_scale_after,
                "skipped": outcome.skipped,
            }
        self._copy: tuple[Tensor, Any] | None = None
        self._values: Values | None = None
        self._layer_norms: list[float] = []

    def start_copy(self, *, with_layers: bool) -> None:
        """Begin to bring everything to the host in one copy, without waiting for the device."""
        tensors = {name: value for name, value in self._scalars.items() if isinstance(value, Tensor)}
        outcome = self._outcome
        device = next((tensor.device for tensor in tensors.values() if tensor.device.type == "cuda"), None)
        if device is None or outcome is None or not isinstance(outcome.layer_norms, Tensor):
            return
        parts = [torch.stack([tensor.detach().to(device, torch.float64).reshape(()) for tensor in tensors.values()])]
        if with_layers:
            parts.append(outcome.layer_norms.double() * outcome.unscale)
        packed = torch.cat(parts)
        on_host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
        on_host.copy_(packed, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record(torch.cuda.current_stream(device))
        self._copy = (on_host, arrived)
        self._tensor_names = list(tensors)

    def values(self) -> Values:
        """The columns by name; waits for the device where it must."""
        if self._values is None:
            scalars = dict(self._scalars)
            if self._copy is not None:
                on_host, arrived = self._copy
                arrived.synchronize()
                numbers = on_host.tolist()
                scalars |= zip(self._tensor_names, numbers, strict=False)
                self._layer_norms = numbers[len(self._tensor_names) :]
            values: Values = {name: float(v) if isinstance(v, Tensor) else v for name, v in scalars.items()}
            self._values = self._completed(values)
        return self._values

    def _completed(self, values: Values) -> Values:
        outcome = self._outcome
        if outcome is None:
            return values | {"grad_norm_before_clip": None, "skipped": True, "skip_reason": "no_gradient"}
        values["max_norm"] = None if outcome.max_norm is None or math.isinf(outcome.max_norm) else outcome.max_norm
        values["skipped"] = bool(values["skipped"])
        values["skip_reason"] = ("overflow" if self._is_scaled else "nonfinite") if values["skipped"] else None
        return values

    def layer_norms(self) -> Sequence[float]:
        """Unscaled norms [L] of the layers that have a gradient; waits for the device where it must."""
        outcome = self._outcome
        if outcome is None:
            return []
        if self._copy is not None:
            self.values()
            return self._layer_norms
        if isinstance(outcome.layer_norms, Tensor):
            return (outcome.layer_norms.double() * outcome.unscale).tolist()
        unscale = float(outcome.unscale)
        return outcome.layer_norms if unscale == 1.0 else [norm * unscale for norm in outcome.layer_norms]
