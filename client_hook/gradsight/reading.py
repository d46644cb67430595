"""What a step's outcome says, read when somebody asks: at once on the CPU, from one asynchronous copy on a GPU."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradsight.amp import Outcome
from gradsight.sampling import Sample

Values = dict[str, Any]


class Reading:
    """A step's scalar columns, its layers' unscaled norms, its groups and samples.

    Args:
        outcome: None for a step without a gradient.
        loss: The sum of what `backward` was given (0-dim), None where that is not known.
        lr: A float, or a 0-dim tensor.
        sample: Where this step was sampled.
    """

    def __init__(
        self, outcome: Outcome | None, *, loss: Tensor | None, lr: float | Tensor | None, sample: Sample | None = None
    ) -> None:
        self._outcome = outcome
        self._sample = sample
        self._scalars: dict[str, Any] = {"loss": loss, "lr": lr}
        if outcome is not None:
            clip = outcome.clip
            self._scalars |= {
                "grad_norm_before_clip": outcome.norm,
                "max_norm": clip.max_norm,
                "clip_coef": clip.clip_coef,
                "clipped_layer_fraction": clip.clipped_layer_fraction,
                "loss_scale": outcome.loss_scale,
                "loss_scale_after": outcome.loss_scale_after,
                "skipped": outcome.skipped,
            }
            for pattern, group in clip.groups.items():
                self._scalars[f"norm of {pattern}"] = group.norm
                self._scalars[f"coef of {pattern}"] = group.clip_coef
                self._scalars[f"max of {pattern}"] = group.max_norm
        if sample is not None:
            self._scalars |= {"headroom_log2": sample.headroom_log2, "update_ratio": sample.update_ratio}
        self._copy: tuple[list[str], Tensor, Any] | None = None
        self._numbers: Values | None = None
        self._layer_norms: list[float] | None = None
        self._underflow: list[float] = []

    def start_copy(self) -> None:
        """Begin to bring everything to the host in one copy, without waiting for the device."""
        outcome = self._outcome
        if outcome is None or not isinstance(outcome.layer_norms, Tensor) or not outcome.layer_norms.is_cuda:
            return
        device = outcome.layer_norms.device
        scalars = {name: value for name, value in self._scalars.items() if isinstance(value, Tensor) and value.is_cuda}
        parts = [
            torch.stack([value.detach().to(device, torch.float64).reshape(()) for value in scalars.values()]),
            outcome.layer_norms.double() * outcome.unscale,
        ]
        if self._sample is not None and self._sample.underflow is not None:
            parts.append(self._sample.underflow.double())
        packed = torch.cat(parts)
        on_host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
        on_host.copy_(packed, non_blocking=True)
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record(torch.cuda.current_stream(device))
        self._copy = (list(scalars), on_host, arrived)

    def _read(self) -> Values:
        """All scalars as numbers; waits for the device where it must."""
        if self._numbers is not None:
            return self._numbers
        numbers = dict(self._scalars)
        if self._copy is not None:
            names, on_host, arrived = self._copy
            arrived.synchronize()
            arrived_numbers = on_host.tolist()
            numbers |= zip(names, arrived_numbers, strict=False)
            num_layers = len(self._outcome.layer_norms) if self._outcome is not None else 0
            self._layer_norms = arrived_numbers[len(names) : len(names) + num_layers]
            self._underflow = arrived_numbers[len(names) + num_layers :]
        elif self._sample is not None and self._sample.underflow is not None:
            self._underflow = self._sample.underflow.tolist()
        self._numbers = {name: float(value) if isinstance(value, Tensor) else value for name, value in numbers.items()}
        return self._numbers

    def values(self) -> Values:
        """The step's columns by name."""
        numbers = self._read()
        outcome = self._outcome
        if outcome is None:
            return {
                "loss": numbers["loss"],
                "lr": numbers["lr"],
                "grad_norm_before_clip": None,
                "max_norm": None,
                "clip_coef": None,
                "loss_scale": None,
                "skipped": True,
                "skip_reason": "no_gradient",
            }
        values = {name: value for name, value in numbers.items() if " of " not in name}
        values["max_norm"] = _threshold(values["max_norm"])
        values["skipped"] = bool(values["skipped"])
        values["skip_reason"] = outcome.skip_reason if values["skipped"] else None
        if values["skipped"]:  # nothing was multiplied or moved: a 1 would pass for a step left unclipped
            values |= dict.fromkeys({"clip_coef", "clipped_layer_fraction", "update_ratio"} & values.keys())
        return values

    def group_values(self) -> dict[str, Values]:
        """The same of each group, for streams of their own."""
        if self._outcome is None:
            return {}
        numbers, whole = self._read(), self.values()
        return {
            pattern: {
                "grad_norm_before_clip": numbers[f"norm of {pattern}"],
                "max_norm": _threshold(numbers[f"max of {pattern}"]),
                "clip_coef": None if whole["clip_coef"] is None else numbers[f"coef of {pattern}"],
                **{name: whole[name] for name in ("lr", "loss_scale", "skipped", "skip_reason")},
            }
            for pattern in self._outcome.clip.groups
        }

    def layer_norms(self) -> Sequence[float]:
        """Unscaled norms [L] of the layers that have a gradient."""
        if self._outcome is None:
            return []
        self._read()
        if self._layer_norms is None:
            norms, unscale = self._outcome.layer_norms, float(self._outcome.unscale)
            floats = norms.tolist() if isinstance(norms, Tensor) else norms
            self._layer_norms = floats if unscale == 1.0 else [norm * unscale for norm in floats]
        return self._layer_norms

    def underflow(self) -> Sequence[float]:
        """The share [L] of each layer's scaled gradients lost to fp16; empty where this step was not sampled."""
        self._read()
        return self._underflow


def _threshold(value: float | None) -> float | None:
    """A threshold as it is recorded: `inf` clips nothing and is none."""
    return None if value is None or math.isinf(value) else value
