"""How the norms of a range are distributed, along the axis of the norm chart, with the threshold through them."""

import math
from typing import Any

import numpy as np

from gradsight_server.diagnosis.inputs import Histogram
from gradsight_server.figures.traces import Figure, Floats, Trace, framed, typed

MAX_BINS = 60


def histogram_figure(
    histogram: Histogram,
    *,
    max_norm: float | None,
    recommended: tuple[float, float] | None,
    stream: str,
    attempt: int | None,
    position: int,
    first_step: int | None,
    last_step: int | None,
) -> Figure:
    """Norms up on a log axis, the share of each bin to the right: what the threshold leaves, and what it clips.

    Args:
        max_norm: The threshold in force, where there is one.
        recommended: The range to choose a fixed threshold from.
    """
    edges, shares = _bins(histogram)
    widest = float(shares.max(initial=0.0))
    num_norms = int(histogram.counts.sum())
    above = _share_above(histogram, max_norm) if max_norm is not None and num_norms else None
    data = []
    if recommended is not None:
        data.append(_box(*recommended, widest))
    if max_norm is None:
        data.append(_stairs(edges, shares, "norms") | {"share": 1.0 if num_norms else None})
    else:
        low, high = _split(edges, shares, max_norm)
        data.append(_stairs(*low, "below") | {"share": None if above is None else 1 - above})
        data.append(_stairs(*high, "above") | {"share": above})
        data.append(_line([0.0, widest], [max_norm, max_norm], "threshold", "threshold"))
    layout = {"xaxis": {"range": [0, 1.05 * widest or 1.0]}, "yaxis": {"type": "log"}}
    figure = framed(
        "histogram",
        data,
        layout,
        stream=stream,
        attempt=attempt,
        position=position,
        first_step=first_step,
        last_step=last_step,
    )
    return figure | {"num_norms": num_norms}


def _bins(histogram: Histogram) -> tuple[Floats, Floats]:
    """Edges and shares of the bins above zero, as few as one can look at. Zeros have no place on a log axis."""
    edges, counts = histogram.edges, histogram.counts
    if edges[0] == 0:
        edges, counts = edges[1:], counts[1:]
    filled = np.flatnonzero(counts)
    if len(filled) == 0:
        return np.empty(0), np.empty(0)
    counts, edges = counts[filled[0] : filled[-1] + 1], edges[filled[0] : filled[-1] + 2]
    size = -(-len(counts) // MAX_BINS)
    starts = np.arange(0, len(counts), size)
    merged = np.add.reduceat(counts, starts)
    return np.append(edges[starts], edges[-1]), merged / histogram.counts.sum()


def _share_above(histogram: Histogram, max_norm: float) -> float:
    """The share of norms above the threshold; its own bin is split by the log of its place in it."""
    low, high = histogram.edges[:-1], histogram.edges[1:]
    above = float(histogram.counts[low >= max_norm].sum())
    inside = np.flatnonzero((low < max_norm) & (max_norm < high))
    if len(inside):
        a, b = float(low[inside[0]]), float(high[inside[0]])
        above += float(histogram.counts[inside[0]]) * (math.log(b / max_norm) / math.log(b / a) if a > 0 else 0.0)
    return above / float(histogram.counts.sum())


def _split(edges: Floats, shares: Floats, at: float) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """The bins below and those above; the one in between is in both, cut."""
    if len(shares) == 0 or at >= edges[-1]:
        return (edges, shares), (np.empty(0), np.empty(0))
    if at <= edges[0]:
        return (np.empty(0), np.empty(0)), (edges, shares)
    i = int(np.searchsorted(edges, at, side="right")) - 1
    is_cut = edges[i] < at
    low = (np.append(edges[: i + 1], at), shares[: i + 1]) if is_cut else (edges[: i + 1], shares[:i])
    return low, (np.concatenate([[at], edges[i + 1 :]]), shares[i:])


def _stairs(edges: Floats, shares: Floats, role: str) -> Trace:
    """The outline of the bins, closed along the axis."""
    y = np.repeat(edges, 2)
    x = np.concatenate([[0.0], np.repeat(shares, 2), [0.0]]) if len(shares) else np.empty(0)
    return _line(x, y, role, role) | {"fill": "toself"}


def _box(low: float, high: float, width: float) -> Trace:
    return _line([0.0, width, width, 0.0, 0.0], [low, low, high, high, low], "recommended", "recommended") | {
        "fill": "toself"
    }


def _line(x: Any, y: Any, role: str, key: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": typed(np.asarray(x)),
        "y": typed(np.asarray(y)),
        "line": {"shape": "linear"},
        "role": role,
        "key": f"histogram.{key}",
        "live": None,
    }
