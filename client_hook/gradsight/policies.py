"""The clipping policies as plain descriptions with one text form, `global_norm(1.0)`. No torch."""

import math
from dataclasses import dataclass
from typing import Any

from gradsight.errors import ConfigurationError


def positive(name: str, value: Any) -> float:
    """`value` as a float, or a ConfigurationError that names it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{name} must be a positive number, got {value!r}.")
    if not value > 0:  # also true for NaN
        raise ConfigurationError(f"{name} must be positive, got {value!r}.")
    return float(value)


@dataclass(frozen=True, slots=True)
class GlobalNorm:
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), norm over all of them together.

    Args:
        max_norm: The threshold; `inf` measures without clipping.
        norm_type: p of the p-norm, `inf` for the largest absolute value.

    Raises:
        ConfigurationError: an argument is not a positive number.

    Source: R. Pascanu, T. Mikolov, Y. Bengio, On the difficulty of training recurrent neural networks, 2013;
    the formula with its epsilon is that of `torch.nn.utils.clip_grad_norm_`.
    """

    max_norm: float
    norm_type: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_norm", positive("max_norm", self.max_norm))
        object.__setattr__(self, "norm_type", positive("norm_type", self.norm_type))

    def __str__(self) -> str:
        norm_type = "" if self.norm_type == 2.0 else f", norm_type={self.norm_type:g}"
        return f"global_norm({self.max_norm!r}{norm_type})"


def as_policy(clip: float | GlobalNorm | None) -> GlobalNorm | None:
    """The policy behind what a user passes as `clip`: a number stands for `GlobalNorm(number)`."""
    if clip is None or isinstance(clip, GlobalNorm):
        return clip
    return GlobalNorm(positive("clip", clip))


def clip_coef(norm: float, max_norm: float) -> float:
    """The clip ratio, min(1, max_norm / (norm + 1e-6)); 1 where the norm is not finite, since such steps are never
    clipped: the product would turn every gradient into NaN or zero."""
    return min(1.0, max_norm / (norm + 1e-6)) if math.isfinite(norm) else 1.0
