"""How the norms of a range are spread: quantiles, and what any threshold would have clipped, without reading its steps.

The range is covered by the fewest buckets there are; only at its ends, up to fifteen steps on each side, and behind the
newest closed bucket are the steps themselves asked.
"""

from dataclasses import dataclass
from typing import Unpack

import numpy as np
from sqlalchemy import Connection

from gradsight_server.store import histogram, pyramid, rollup, views
from gradsight_server.store.extents import AttemptKey
from gradsight_server.store.histogram import Histogram
from gradsight_server.store.rollup import NORM, Buckets, Piece

MAX_LEVEL = 13
"""Buckets of 2^52 steps: no run has more than two."""


@dataclass(frozen=True, slots=True)
class NormDistribution:
    """`grad_norm_before_clip` over a range of steps."""

    num_steps: int
    num_skipped: int
    num_clipped: int
    """By the thresholds that were in force."""
    num_nonfinite: int
    min: float | None
    max: float | None
    histogram: Histogram
    """Of the finite norms."""

    @property
    def num_finite(self) -> int:
        return self.histogram.total

    def quantile(self, q: float) -> float | None:
        """The norm below which a part `q` of the finite ones lies, within 2 %; None where there are none."""
        found = self.histogram.quantile(q)
        if found is None or self.min is None or self.max is None:
            return None
        return min(max(found, self.min), self.max)

    def clip_fraction(self, max_norm: float) -> tuple[float, float] | None:
        """The part of the finite norms above a threshold: at least, and at most. None where there are no norms."""
        if not self.num_finite:
            return None
        at_least, at_most = self.histogram.num_above(max_norm)
        return at_least / self.num_finite, at_most / self.num_finite


def norm_distribution(
    conn: Connection, run_id: str, *, stream: str = "main", **asked: Unpack[views.Asked]
) -> NormDistribution:
    """The norms of what is asked for.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    shown = views.show(conn, run_id, stream, **asked)
    found = [
        part
        for segment in shown
        for piece in segment.pieces(MAX_LEVEL)
        if (part := _read(conn, segment.key, piece)) is not None
    ]
    buckets = [part for part, _ in found]
    low = np.concatenate([np.empty(0), *(part.min[:, NORM] for part in buckets)])
    high = np.concatenate([np.empty(0), *(part.max[:, NORM] for part in buckets)])
    return NormDistribution(
        num_steps=sum(int(part.num_steps.sum()) for part in buckets),
        num_skipped=sum(int(part.num_skipped.sum()) for part in buckets),
        num_clipped=sum(int(part.num_clipped.sum()) for part in buckets),
        num_nonfinite=sum(int(part.num_nonfinite[:, NORM].sum()) for part in buckets),
        min=None if np.isnan(low).all() else float(np.nanmin(low)),
        max=None if np.isnan(high).all() else float(np.nanmax(high)),
        histogram=histogram.merged(part for _, parts in found for part in parts),
    )


def _read(conn: Connection, key: AttemptKey, piece: Piece) -> tuple[Buckets, list[Histogram]] | None:
    if piece.level == 0:
        steps = pyramid.read_steps(conn, key, piece.first, piece.last)
        return None if steps is None else (rollup.of_steps(steps), [histogram.of_values(steps.values[:, NORM])])
    buckets = pyramid.read_buckets(conn, key, *piece)
    if buckets is None:
        return None
    return buckets, [part for _, part in pyramid.read_histograms(conn, key, *piece)]
