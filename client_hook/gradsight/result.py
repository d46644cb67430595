"""StepResult: what `Monitor.step` gives back."""

from typing import Literal

from gradsight.reading import Reading

SkipReason = Literal["overflow", "nonfinite", "no_gradient", "user"]


class StepResult:
    """What one step did. On a GPU the values are read from the device when they are looked at, not before."""

    __slots__ = ("_reading", "step")

    def __init__(self, step: int, reading: Reading) -> None:
        self.step = step
        self._reading = reading

    @property
    def grad_norm_before_clip(self) -> float | None:
        """Norm of the unscaled gradients before clipping; None where there was no gradient."""
        norm: float | None = self._reading.values()["grad_norm_before_clip"]
        return norm

    @property
    def max_norm(self) -> float | None:
        """The threshold in force; None without clipping."""
        max_norm: float | None = self._reading.values()["max_norm"]
        return max_norm

    @property
    def clip_coef(self) -> float | None:
        """What the gradients were multiplied by, 1.0 where nothing was clipped; None without a finite gradient."""
        clip_coef: float | None = self._reading.values()["clip_coef"]
        return clip_coef

    @property
    def loss_scale(self) -> float | None:
        """The scale this step's backward used; None without scaling."""
        loss_scale: float | None = self._reading.values()["loss_scale"]
        return loss_scale

    @property
    def skipped(self) -> bool:
        """Whether the optimizer left the parameters as they were."""
        return bool(self._reading.values()["skipped"])

    @property
    def skip_reason(self) -> SkipReason | None:
        """Why it was skipped; None where it was not."""
        reason: SkipReason | None = self._reading.values()["skip_reason"]
        return reason

    def __repr__(self) -> str:
        names = ("grad_norm_before_clip", "max_norm", "clip_coef", "loss_scale", "skipped", "skip_reason")
        return f"StepResult(step={self.step}, {', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
