"""The diagnosis as it is answered, stored and shown: the object of design section 8, plain JSON all through."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

Severity = Literal["ok", "info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("ok", "info", "warning", "critical")
"""From nothing to say to must be looked at; `runs.severity` in the database is the place in this list."""

ClippingVerdict = Literal["off", "unknown", "inactive", "healthy", "firm", "too_tight", "too_loose"]
ScalingVerdict = Literal[
    "not_used", "unknown", "static", "warming_up", "healthy", "thrashing", "collapsing", "collapsed", "model_nan"
]


class StepRange(Struct, frozen=True, kw_only=True):
    first_step: int | None
    last_step: int | None
    num_steps: int
    num_finite: int
    """Steps whose norm before clipping is a finite number."""


class NormFigures(Struct, frozen=True, kw_only=True):
    """Percentiles over the judged norms; the largest and the last finite one of the whole range."""

    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    max: float | None = None
    last: float | None = None


class RecommendedMaxNorm(Struct, frozen=True, kw_only=True):
    low: float
    high: float
    basis: str


class Clipping(Struct, frozen=True, kw_only=True):
    verdict: ClippingVerdict
    severity: Severity
    clip_fraction: float | None
    """Over the judged steps; None where no threshold is known."""
    median_clip_coef: float | None
    norm: NormFigures
    recommended_max_norm: RecommendedMaxNorm | None
    advice: str


class LossScaling(Struct, frozen=True, kw_only=True):
    verdict: ScalingVerdict
    severity: Severity
    num_skipped: int
    """Steps skipped for a gradient that was not finite, with a scale or without, over the whole range."""
    skip_rate: float | None
    last_scale: float | None
    min_scale: float | None
    advice: str


class Burst(Struct, frozen=True, kw_only=True):
    first_step: int
    last_step: int
    num_steps: int
    first_layer: str | None


class NonFinite(Struct, frozen=True, kw_only=True):
    num_steps: int
    bursts: list[Burst]
    """The newest ones, in order."""


class LayerLists(Struct, frozen=True, kw_only=True):
    dominant: list[str] = []
    vanishing: list[str] = []
    exploding: list[str] = []
    dead: list[str] = []


class Finding(Struct, frozen=True, kw_only=True):
    code: str
    severity: Severity
    title: str
    evidence: dict[str, float]
    advice: str
    first_step: int | None
    last_step: int | None


class Diagnosis(Struct, frozen=True, kw_only=True):
    range: StepRange
    clipping: Clipping
    loss_scaling: LossScaling
    nonfinite: NonFinite
    layers: LayerLists
    findings: list[Finding]
    """The worst first."""

    @property
    def severity(self) -> Severity:
        """Of the worst that was found."""
        found = [finding.severity for finding in self.findings]
        return max((self.clipping.severity, self.loss_scaling.severity, *found), key=SEVERITIES.index)

    def to_json(self) -> dict[str, Any]:
        """As plain dicts and lists; no number in it is NaN or infinite."""
        return msgspec.to_builtins(self)  # type: ignore[no-any-return]
