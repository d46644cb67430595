"""What a stream's record tells the rules: is loss scaling at work, and does its clipping clip much by design. Pure."""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec

from gradsight import wire
from gradsight.errors import ConfigurationError
from gradsight.policies import GlobalNorm, parse_policy
from gradsight.thresholds import Cosine, Threshold
from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.observed import ADAM_LIKE

_INTERVAL = re.compile(r"growth_interval=(\d+)")


@dataclass(frozen=True, slots=True)
class Setting:
    """How a stream trains, as far as its record says."""

    is_scaled: bool | None = None
    """Whether a dynamic loss scale searches its place by skipping steps; None where only the steps can tell."""
    growth_interval: int | None = None
    clips: Literal["fixed", "unknown", "by_design"] = "unknown"
    """Whether many clipped steps mean something. A threshold that follows the norms clips many, and so does 0.1, with
    which detection transformers are trained."""
    forgives: bool = False
    """The optimizer divides by the gradient's own size: a constant coefficient changes nothing."""

    def num_routine_skips(self, num_steps: int) -> int:
        """How many of so many steps a healthy dynamic scale may skip."""
        return borders.SKIPS_PER_INTERVAL * math.ceil(
            num_steps / (self.growth_interval or borders.USUAL_GROWTH_INTERVAL)
        )


@lru_cache(maxsize=4096)
def setting_of(record: str) -> Setting:
    """What follows from a stream's record, as JSON."""
    return _setting(msgspec.json.decode(record, type=wire.StreamRecord))


def _setting(record: wire.StreamRecord) -> Setting:
    interval = _INTERVAL.search(record.scaler) if isinstance(record.scaler, str) else None
    name = "" if record.optimizer is wire.UNSET else record.optimizer.class_name.lower()
    return Setting(
        is_scaled=_is_scaled(record),
        growth_interval=int(interval[1]) or None if interval else None,
        clips=_clips(record.policy),
        forgives=any(part in name for part in ADAM_LIKE),
    )


def _is_scaled(record: wire.StreamRecord) -> bool | None:
    if isinstance(record.scaler, str):
        return True if record.scaler.startswith("dynamic") else False if record.scaler.startswith("static") else None
    return False if record.scaler is None or record.precision in ("bf16", "fp32") else None


def _clips(policy: str | None | msgspec.UnsetType) -> Literal["fixed", "unknown", "by_design"]:
    if policy is None:
        return "by_design"
    if policy is wire.UNSET:
        return "unknown"
    try:
        found = parse_policy(policy)
    except ConfigurationError:
        return "unknown"  # written by a version that knew more policies than we do
    if not isinstance(found, GlobalNorm):
        return "by_design"
    if isinstance(found.max_norm, Threshold):
        return "fixed" if isinstance(found.max_norm, Cosine) else "by_design"
    return "by_design" if clips_all_by_design(found.max_norm) else "fixed"


def clips_all_by_design(max_norm: float) -> bool:
    """Whether a threshold is one that people train with although it clips every step."""
    return abs(max_norm / borders.DETECTION_MAX_NORM - 1) < 0.01
