"""What kind of clipping a run does: from its policy's text where there is one, else from the recorded thresholds."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gradsight import wire
from gradsight.errors import ConfigurationError
from gradsight.policies import GlobalNorm, Policy, TensorAdaptive, UnitNorm, parse_policy
from gradsight.thresholds import Cosine, Threshold
from gradsight_server.diagnosis.inputs import Column, StreamSteps

Kind = Literal["unknown", "off", "fixed", "scheduled", "adaptive", "per_layer", "per_layer_adaptive"]
"""Fixed and scheduled thresholds do not follow the norms; adaptive ones do, and clip much by design."""


@dataclass(frozen=True, slots=True)
class ClipSetting:
    """How the run clips; `max_norm` is the fixed threshold the policy names, where it names one."""

    kind: Kind
    max_norm: float | None = None

    @property
    def has_global_coef(self) -> bool:
        return self.kind in ("fixed", "scheduled", "adaptive")

    @property
    def is_adaptive(self) -> bool:
        return self.kind in ("adaptive", "per_layer_adaptive")


def clip_setting(steps: StreamSteps, record: wire.StreamRecord) -> ClipSetting:
    """What the record says; where it says nothing, what the thresholds and coefficients look like."""
    if record.policy is None:
        return ClipSetting("off")
    if record.policy is not wire.UNSET:
        try:
            return _of_policy(parse_policy(record.policy))
        except ConfigurationError:
            pass  # written by a version that knew more policies than we do
    return _of_columns(steps)


def _of_policy(policy: Policy) -> ClipSetting:
    if isinstance(policy, UnitNorm | TensorAdaptive):
        return ClipSetting("per_layer_adaptive")
    if not isinstance(policy, GlobalNorm):
        return ClipSetting("per_layer")
    if isinstance(policy.max_norm, Threshold):
        return ClipSetting("scheduled" if isinstance(policy.max_norm, Cosine) else "adaptive")
    if np.isinf(policy.max_norm):
        return ClipSetting("off")  # a usual way to measure without clipping
    return ClipSetting("fixed", policy.max_norm)


def _of_columns(steps: StreamSteps) -> ClipSetting:
    if _has(steps.clipped_layer_fraction):
        return ClipSetting("per_layer")
    column = steps.max_norm
    if column is None or not column.recorded.any():
        return ClipSetting("fixed" if _clips(steps.clip_coef) else "unknown")
    given = column.values[column.recorded & ~np.isnan(column.values)]
    if len(given) == 0:
        return ClipSetting("unknown")
    if not np.any((given > 0) & np.isfinite(given)):
        return ClipSetting("off")
    changes = np.diff(given)
    is_moving = len(changes) >= 4 and np.count_nonzero(changes) > len(changes) / 2
    comes_and_goes = np.count_nonzero(~column.recorded) > len(given)
    if not changes.any() or not (is_moving or comes_and_goes):
        return ClipSetting("fixed")
    rises_or_falls = bool(np.all(changes >= 0) or np.all(changes <= 0))
    return ClipSetting("scheduled" if rises_or_falls and is_moving else "adaptive")


def _has(column: Column | None) -> bool:
    return column is not None and bool(column.recorded.any())


def _clips(clip_coef: Column | None) -> bool:
    return clip_coef is not None and bool(np.any(clip_coef.values[clip_coef.finite] < 1))
