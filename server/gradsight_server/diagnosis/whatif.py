"""What another clipping policy would have done to the norms that were recorded.

Only policies of one global norm can be replayed: all others need the gradients themselves.
"""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from gradsight.errors import ConfigurationError
from gradsight.policies import GlobalNorm, parse_policy
from gradsight.thresholds import Threshold
from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.inputs import Bools, Floats, Histogram, Integers
from gradsight_server.diagnosis.levels import local_level, relative_spread, spikes
from gradsight_server.errors import InvalidRequestError

MAX_REPLAYED = 200_000
"""A moving threshold is replayed over so many of the newest norms: it goes from one to the next."""
MAX_SPIKES_LISTED = 100
LATER_NORMS = "Had this policy been in force, the later norms would have been others."


class WhatIf(Struct, frozen=True, kw_only=True):
    """What a policy would have done. Fractions and coefficients are over finite norms; None where there are none."""

    policy: str
    num_steps: int
    """Norms that were replayed, non-finite ones included; of a histogram, which has none of these, the finite ones."""
    num_finite: int
    num_clipped: int
    clip_fraction: float | None
    clip_fraction_low: float | None
    clip_fraction_high: float | None
    """The fraction's bounds: they differ where only a histogram of the norms is left."""
    mean_clip_coef: float | None
    median_clip_coef: float | None
    clip_coef_spread: float | None
    """Standard deviation ÷ mean: what Adam feels of the clipping."""
    last_max_norm: float | None
    num_spikes: int
    num_spikes_clipped: int
    spikes_clipped: list[int]
    spikes_passed: list[int]
    """Steps of the newest spikes."""
    notes: list[str]


def what_if(norms: Floats, policy: str, *, step: Integers | None = None) -> WhatIf:
    """Replay a policy, or a bare threshold, over recorded norms before clipping.

    Args:
        norms: In order; NaN and infinities are passed over, as the hook does.
        policy: Its text form, `global_norm(max_norm=zscore(z=2.5))`, `1.0`.
        step: The norms' steps; None counts from 0 on.

    Raises:
        InvalidRequestError: the text describes no policy, or one that norms alone cannot replay.
    """
    chosen = _global_norm(policy)
    step = np.arange(len(norms)) if step is None else step
    notes = [LATER_NORMS]
    if isinstance(chosen.max_norm, Threshold) and len(norms) > MAX_REPLAYED:
        notes.append(f"A moving threshold is replayed over the newest {MAX_REPLAYED:,} of {len(norms):,} norms.")
        norms, step = norms[-MAX_REPLAYED:], step[-MAX_REPLAYED:]
    if chosen.norm_type != 2.0:
        notes.append(f"The recorded norms are taken as they are; norm_type {chosen.norm_type:g} would give others.")
    with np.errstate(all="ignore"):
        finite = np.isfinite(norms) & (norms >= 0)
        return _figures(str(chosen), norms, finite, _thresholds(chosen, norms, finite), step, notes)


def what_if_from_histogram(histogram: Histogram, policy: str) -> WhatIf:
    """The same for a fixed threshold where only a histogram of the norms is at hand: fractions with their bounds.

    Raises:
        InvalidRequestError: as `what_if`; moving thresholds need the norms in order.
    """
    chosen = _global_norm(policy)
    if isinstance(chosen.max_norm, Threshold):
        raise InvalidRequestError(
            f"clip must be a fixed threshold here, since a histogram has no order, got {policy!r}."
        )
    counts, edges = histogram.counts, histogram.edges
    total = int(counts.sum())
    is_norm = edges[:-1] > 0  # the zeros are never clipped
    surely = int(counts[is_norm & (edges[:-1] >= chosen.max_norm)].sum())
    maybe = int(counts[is_norm & (edges[1:] > chosen.max_norm)].sum())
    centres = np.sqrt(edges[:-1] * edges[1:])
    coefs = (
        np.minimum(1.0, chosen.max_norm / (centres + 1e-6)) if np.isfinite(chosen.max_norm) else np.ones(len(counts))
    )
    mean = float(counts @ coefs) / total if total else None
    deviation = float(counts @ (coefs - mean) ** 2) / total if mean is not None else 0.0
    inside = _share_above(histogram, chosen.max_norm, surely)
    return WhatIf(
        policy=str(chosen),
        num_steps=total,
        num_finite=total,
        num_clipped=round(inside),
        clip_fraction=inside / total if total else None,
        clip_fraction_low=surely / total if total else None,
        clip_fraction_high=maybe / total if total else None,
        mean_clip_coef=mean,
        median_clip_coef=_median(coefs, counts) if total else None,
        clip_coef_spread=deviation**0.5 / mean if mean else None,
        last_max_norm=_finite(chosen.max_norm),
        num_spikes=0,
        num_spikes_clipped=0,
        spikes_clipped=[],
        spikes_passed=[],
        notes=[LATER_NORMS, "From a histogram: the fraction lies between its bounds, and spikes are not told apart."],
    )


def _global_norm(text: str) -> GlobalNorm:
    try:
        policy = parse_policy(text)
    except ConfigurationError as error:
        raise InvalidRequestError(f"clip cannot be read: {error}") from error
    if not isinstance(policy, GlobalNorm):
        raise InvalidRequestError(
            f"clip must be a policy of one global norm: {policy.text_name} needs the gradients themselves, "
            f"which are not recorded, got {text!r}."
        )
    return policy


def _thresholds(policy: GlobalNorm, norms: Floats, finite: Bools) -> Floats:
    if not isinstance(policy.max_norm, Threshold):
        return np.full(len(norms), policy.max_norm)
    threshold = policy.max_norm.fresh()
    return np.fromiter((threshold(norm) for norm in _as_seen(norms, finite)), dtype=np.float64, count=len(norms))


def _as_seen(norms: Floats, finite: Bools) -> Iterator[float]:
    """Norms as the hook would have met them: whatever is not a norm is not finite."""
    yield from np.where(finite, norms, np.nan).tolist()


def _figures(policy: str, norms: Floats, finite: Bools, thresholds: Floats, step: Integers, notes: list[str]) -> WhatIf:
    seen, limits = norms[finite], thresholds[finite]
    clipped = seen > limits
    coefs = np.where(np.isfinite(limits), np.minimum(1.0, limits / (seen + 1e-6)), 1.0)
    level = local_level(seen, block=borders.LEVEL_BLOCK)
    is_spike = spikes(seen, level, ratio=borders.SPIKE_RATIO, sigmas=borders.SPIKE_SIGMAS)
    fraction = float(np.mean(clipped)) if len(seen) else None
    return WhatIf(
        policy=policy,
        num_steps=len(norms),
        num_finite=len(seen),
        num_clipped=int(np.count_nonzero(clipped)),
        clip_fraction=fraction,
        clip_fraction_low=fraction,
        clip_fraction_high=fraction,
        mean_clip_coef=float(np.mean(coefs)) if len(seen) else None,
        median_clip_coef=float(np.median(coefs)) if len(seen) else None,
        clip_coef_spread=relative_spread(coefs) if len(seen) else None,
        last_max_norm=_finite(float(limits[-1])) if len(seen) else None,
        num_spikes=int(np.count_nonzero(is_spike)),
        num_spikes_clipped=int(np.count_nonzero(is_spike & clipped)),
        spikes_clipped=step[finite][is_spike & clipped][-MAX_SPIKES_LISTED:].tolist(),
        spikes_passed=step[finite][is_spike & ~clipped][-MAX_SPIKES_LISTED:].tolist(),
        notes=notes,
    )


def _share_above(histogram: Histogram, max_norm: float, surely: int) -> float:
    """Counts above the threshold, where that of its own bin is split by the log of its place in it."""
    low, high = histogram.edges[:-1], histogram.edges[1:]
    inside = np.flatnonzero((low > 0) & (low < max_norm) & (max_norm < high))
    if len(inside) == 0:
        return float(surely)
    a, b = float(low[inside[0]]), float(high[inside[0]])
    share = np.log(b / max_norm) / np.log(b / a) if b < np.inf else 0.5
    return surely + float(share) * int(histogram.counts[inside[0]])


def _median(coefs: Floats, counts: Integers) -> float:
    """Of the binned coefficients, which fall with the norm."""
    reached = np.cumsum(counts) >= counts.sum() / 2
    return float(coefs[int(np.argmax(reached))])


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None
