"""Norms that are still multiplied by the loss scale: logged, or worse clipped, before unscaling."""

from collections.abc import Iterator

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.inputs import Floats
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.rule import Found, spanning

NEIGHBOURS = 10
"""Norms on each side of a change of the scale that are compared."""
MIN_SCALE = 256.0


def times_scale(observed: Observed) -> Iterator[Found]:
    """The norm follows the loss scale, or is so large that it must still hold it."""
    norm, scale = _pairs(observed)
    if len(norm) < 3:
        return
    evidence = {
        "median_norm": float(np.median(norm)),
        "last_scale": float(scale[-1]),
        "median_norm_unscaled": float(np.median(norm / scale)),
    }
    steps = spanning(observed, observed.rows[0], observed.rows[-1])
    slope = _slope(np.log2(norm), np.log2(scale))
    variant = "clipped" if _clips(observed) else ""
    if slope is not None and borders.SCALED_SLOPE[0] <= slope <= borders.SCALED_SLOPE[1]:
        found = evidence | {"slope": slope}
        yield Found(code="norm_times_scale", severity="warning", variant=variant, evidence=found, steps=steps)
    elif slope is None and _is_suspect(observed, norm, scale):
        yield Found(code="norm_maybe_times_scale", severity="info", variant=variant, evidence=evidence, steps=steps)


def _pairs(observed: Observed) -> tuple[Floats, Floats]:
    """Norm and scale of the rows that have both, both positive."""
    there = observed.finite & (observed.norm > 0) & (observed.scale > 0) & np.isfinite(observed.scale)
    return observed.norm[there], observed.scale[there]


def _clips(observed: Observed) -> bool:
    clipped = observed.clipped
    return clipped is not None and len(observed.rows) > 0 and float(np.mean(clipped[observed.rows])) > 0.5


def _slope(norm: Floats, scale: Floats) -> float | None:
    """Of log norm over log scale, from the jumps of both where the scale changes; None where that is not certain.

    Only jumps count: over a whole run both may fall for reasons of their own.
    """
    changes = np.flatnonzero(np.diff(scale)) + 1
    changes = changes[-200:]
    scale_jumps, norm_jumps = [], []
    for place, at in enumerate(changes.tolist()):
        first = max(changes[place - 1] if place else 0, at - NEIGHBOURS)
        last = min(changes[place + 1] if place + 1 < len(changes) else len(norm), at + NEIGHBOURS)
        scale_jumps.append(scale[at] - scale[at - 1])
        norm_jumps.append(np.median(norm[at:last]) - np.median(norm[first:at]))
    x, y = np.array(scale_jumps), np.array(norm_jumps)
    if len(x) == 0 or np.abs(x).sum() < borders.SCALED_MIN_OCTAVES:
        return None
    slope = float(x @ y / (x @ x))
    # With few jumps the fit may be chance: the jumps must explain nearly all that the norm does there.
    error = float(np.sqrt(np.mean((y - slope * x) ** 2) / (x @ x)))
    return slope if error < 0.15 else None


def _is_suspect(observed: Observed, norm: Floats, scale: Floats) -> bool:
    thresholds = observed.max_norm
    usual = 1.0 if thresholds is None else max(1.0, float(np.median(thresholds)))
    unscaled = float(np.median(norm / scale))
    large = float(np.median(norm)) > borders.SCALED_SUSPECT_RATIO * usual
    return large and float(np.median(scale)) >= MIN_SCALE and 1e-3 <= unscaled <= 1e3
