"""A norm that falls by a thousand and stays there: seen as it happens, and told for as long as it lasts."""

from collections.abc import Iterator

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.inputs import Floats, Integers
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.rule import Found, spanning


def collapsed(observed: Observed) -> Iterator[Found]:
    """The norm falls by a thousand and stays there: after a spike, the spike has killed the model."""
    if observed.norm_placeholder is None and len(observed.norms):
        first = _begin_of_low(observed.norms)
        yield from _collapsed_here(observed, first) if first is not None else _collapsed_before(observed)


def _collapsed_here(observed: Observed, first: int) -> Iterator[Found]:
    rows, norms = observed.rows, observed.norms
    if len(norms) - first < borders.COLLAPSE_STEPS:
        return
    before, after = norms[max(0, first - borders.LEVEL_BLOCK) : first], norms[first:]
    usual, now = float(np.median(before)), float(np.median(after))
    # One in ten may still twitch: a dying model does.
    if not usual > 0 or usual < borders.COLLAPSE_RATIO * now or np.percentile(after, 90) > usual / 10:
        return
    if _has_learnt_all(observed, rows[:first], rows[first:]):
        return
    has_spike = float(before.max()) > borders.SPIKE_RATIO * usual
    if not has_spike and len(after) < borders.COLLAPSE_STEPS_WITHOUT_SPIKE:
        return
    yield Found(
        code="norm_collapsed",
        severity="critical" if has_spike else "warning",
        variant="after_spike" if has_spike else "",
        evidence={"norm_before": usual, "norm_after": now, "largest_norm": float(before.max())},
        steps=spanning(observed, rows[first], rows[-1]),
    )


def _has_learnt_all(observed: Observed, before: Integers, after: Integers) -> bool:
    """Whether the loss has fallen as well: with a margin loss, a model without any error has no gradient left."""
    earlier, now = observed.loss[before[-borders.LEVEL_BLOCK :]], observed.loss[after]
    earlier, now = earlier[np.isfinite(earlier)], now[np.isfinite(now)]
    if min(len(earlier), len(now)) == 0:
        return False
    return bool(0 <= np.median(now) <= borders.LEARNT_ALL_RATIO * np.mean(earlier))


def _begin_of_low(norms: Floats) -> int | None:
    """Where the norms came down to about what they are at the end; None where they always were there."""
    size = borders.COLLAPSE_STEPS // 2
    num_blocks = len(norms) // size
    if num_blocks < 4:
        return None
    offset = len(norms) - num_blocks * size
    levels = np.median(norms[offset:].reshape(num_blocks, size), axis=1)
    high = np.flatnonzero(levels > 10 * levels[-2:].max())
    if len(high) == 0:
        return None
    begin = offset + int(high[-1]) * size
    last_high = np.flatnonzero(norms[begin : begin + 2 * size] > 10 * levels[-2:].max())
    return begin + int(last_high[-1]) + 1


def _collapsed_before(observed: Observed) -> Iterator[Found]:
    """The same, where it happened before the rows at hand: by the histogram of all norms before them.

    Norms that fell at once left none between; those of a model that converges passed through all that lies between.
    """
    older, now = observed.older_norms, float(np.median(observed.norms))
    if older is None or len(observed.norms) < borders.COLLAPSE_STEPS_WITHOUT_SPIKE:
        return
    low, high = 10 * now, borders.COLLAPSE_RATIO * now
    edges, counts = older.edges[:-1], older.counts
    num_high = int(counts[(edges >= high) & (edges > 0)].sum())
    num_between = int(counts[(edges >= low) & (edges < high) & (edges > 0)].sum())
    usual = older.median(above=max(high, np.finfo(np.float64).tiny))
    if (
        usual is None
        or num_high < borders.COLLAPSE_STEPS_WITHOUT_SPIKE
        or np.percentile(observed.norms, 90) > usual / 10
    ):
        return
    if num_between > borders.COLLAPSE_BETWEEN * num_high:
        return
    largest = observed.facts.largest_norm if observed.facts is not None else None
    has_spike = largest is not None and largest > borders.SPIKE_RATIO * usual
    yield Found(
        code="norm_collapsed",
        severity="critical" if has_spike else "warning",
        variant="long_ago_after_spike" if has_spike else "long_ago",
        evidence={
            "norm_before": usual,
            "norm_after": now,
            "before_step": observed.step_at(0),
            **({} if largest is None else {"largest_norm": largest}),
        },
        steps=spanning(observed, 0, -1),
    )
