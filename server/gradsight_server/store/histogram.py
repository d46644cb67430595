"""A mergeable log-histogram: quantiles to 2 %, and how many values lie above any threshold. Pure: no database.

Bins grow by a constant ratio, as in C. Masson, J. E. Rim, H. K. Lee, "DDSketch: a fast and fully-mergeable quantile
sketch with relative-error guarantees" (VLDB 2019): with ratio g, the middle of a bin is within (g − 1)/(g + 1) of
every value in it. Here g = 2^(1/20), which makes powers of two edges of bins: a threshold of 1.0 is counted exactly.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

BINS_PER_OCTAVE = 20
RATIO = 2.0 ** (1 / BINS_PER_OCTAVE)
RELATIVE_ERROR = (RATIO - 1) / (RATIO + 1)
NOT_POSITIVE = -(2**15)
"""The bin of zero, and of what is below it: a norm never is, a placeholder may be."""

_EDGES = 2.0 ** (np.arange(BINS_PER_OCTAVE + 1) / BINS_PER_OCTAVE - 1)
_COUNT_TYPES = tuple(np.dtype(name) for name in ("u1", "<u2", "<u4", "<u8"))

Integers = NDArray[np.int64]


def bin_of(values: ArrayLike) -> Integers:
    """The bin of each finite value: bin i holds what is above 2^((i − 1)/20) and not above 2^(i/20).

    Found by comparing with the edges, not by a logarithm, so that it rises with the value to the last bit.
    """
    numbers = np.asarray(values, dtype=np.float64)
    fraction, exponent = np.frexp(numbers)
    bins = BINS_PER_OCTAVE * exponent.astype(np.int64) + np.searchsorted(_EDGES, fraction)
    return np.where(numbers > 0, bins, NOT_POSITIVE)


def upper_edge(index: int) -> float:
    """The greatest value of a bin."""
    exponent, place = divmod(index, BINS_PER_OCTAVE)
    return 0.0 if index == NOT_POSITIVE else float(np.ldexp(_EDGES[place], exponent))


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many values each bin holds; bins by rising value, empty ones left out."""

    bins: Integers
    counts: Integers

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    def to_bytes(self) -> bytes:
        """The bins as int16, then the counts, as wide as the greatest of them needs; the first byte is that width."""
        greatest = int(self.counts.max(initial=0))
        kind = next(kind for kind in _COUNT_TYPES if greatest < 256**kind.itemsize)
        return bytes([kind.itemsize]) + self.bins.astype("<i2").tobytes() + self.counts.astype(kind).tobytes()

    @classmethod
    def from_bytes(cls, blob: bytes) -> "Histogram":
        width = blob[0]
        num_bins = (len(blob) - 1) // (2 + width)
        bins = np.frombuffer(blob, "<i2", num_bins, offset=1)
        counts = np.frombuffer(blob, f"<u{width}", num_bins, offset=1 + 2 * num_bins)
        return cls(bins.astype(np.int64), counts.astype(np.int64))

    def num_above(self, threshold: float) -> tuple[int, int]:
        """How many values exceed the threshold: at least, and at most. One number where it is the edge of a bin."""
        edge = int(bin_of(threshold)) if np.isfinite(threshold) else (np.inf if threshold > 0 else -np.inf)
        at_least = int(self.counts[self.bins > edge].sum())
        if np.isinf(edge) or threshold == upper_edge(int(edge)):
            return at_least, at_least
        return at_least, at_least + int(self.counts[self.bins == edge].sum())

    def quantile(self, q: float) -> float | None:
        """The value below which a part `q` of the values lies, to RELATIVE_ERROR; None where there are none."""
        if not self.total:
            return None
        rank = q * (self.total - 1)
        index = int(self.bins[np.searchsorted(self.counts.cumsum(), np.floor(rank), side="right")])
        return self._middle(index)

    @staticmethod
    def _middle(index: int) -> float:
        exponent, place = divmod(index, BINS_PER_OCTAVE)
        return 0.0 if index == NOT_POSITIVE else float(np.ldexp(_EDGES[place] * 2 / (1 + RATIO), exponent))


def of_values(values: NDArray[np.float64]) -> Histogram:
    """The histogram of what is finite among these."""
    return Histogram(*np.unique(bin_of(values[np.isfinite(values)]), return_counts=True))


def merged(parts: Iterable[Histogram]) -> Histogram:
    """All of these as one."""
    found = list(parts)
    if len(found) == 1:
        return found[0]
    bins, places = np.unique(
        np.concatenate([np.empty(0, np.int64), *(part.bins for part in found)]), return_inverse=True
    )
    counts = np.zeros(len(bins), dtype=np.int64)
    np.add.at(counts, places, np.concatenate([np.empty(0, np.int64), *(part.counts for part in found)]))
    return Histogram(bins, counts)
