"""What a bucket knows of each layer: largest, smallest and mean norm, and how many were not there. Pure: no database.

A blob holds them layer after layer, one kind after another: the largest norm as float32, exactly; the smallest and the
mean as how far they lie below it, in 256ths of an octave (within 0.14 % at each level); how many norms were not finite
and how many steps had no gradient, only where there were any.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradsight_server.store.rollup import FANOUT, bucket_size, starts_of

CODES_PER_OCTAVE = 256
ZERO = 2**16 - 1
"""The code of a norm of 0 below a larger one."""
_HAS_NONFINITE, _HAS_NO_GRADIENT = 1, 2

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Peaks:
    """Buckets by rising number with the largest norm of each layer, and how many were not there.

    Matrices have a row for each bucket, a column for each layer.
    """

    bucket: Integers
    first_step: Integers
    last_step: Integers
    num_rows: Integers
    max: NDArray[np.float32]  # over finite norms, NaN where there are none
    num_nonfinite: NDArray[Any]  # integers as small as will do
    num_without_grad: NDArray[Any]

    def merged(self, size: int) -> "Peaks":
        """Buckets of so many of these each."""
        starts = starts_of(self.bucket // size)
        if len(starts) == len(self.bucket):
            return replace(self, bucket=self.bucket // size)
        return Peaks(
            bucket=self.bucket[starts] // size,
            first_step=self.first_step[starts],
            last_step=self.last_step[np.append(starts[1:], len(self.bucket)) - 1],
            num_rows=_sums(self.num_rows, starts),
            max=_reduced(np.fmax, self.max, starts),
            num_nonfinite=_sums(self.num_nonfinite, starts),
            num_without_grad=_sums(self.num_without_grad, starts),
        )


@dataclass(frozen=True, slots=True)
class LayerBuckets:
    """The same with the smallest and the mean norm."""

    peaks: Peaks
    min: Floats
    mean: Floats

    @property
    def count(self) -> Integers:
        """How many norms min, max and mean are of."""
        found: Integers = self.peaks.num_rows[:, None] - self.peaks.num_nonfinite - self.peaks.num_without_grad
        return found

    def merged(self, size: int = FANOUT) -> "LayerBuckets":
        """Buckets of so many of these each."""
        starts = starts_of(self.peaks.bucket // size)
        parts = np.where(self.count > 0, self.mean, 0.0) * self.count
        return LayerBuckets(
            self.peaks.merged(size),
            min=_reduced(np.fmin, self.min, starts),
            mean=_means(_reduced(np.add, parts, starts), _sums(self.count, starts)),
        )

    def blobs(self, level: int) -> list[bytes]:
        """A blob for each bucket, but for its number."""
        peaks = self.peaks
        flags: Integers = np.where(peaks.num_nonfinite.any(axis=1), _HAS_NONFINITE, 0)
        flags = flags + np.where(peaks.num_without_grad.any(axis=1), _HAS_NO_GRADIENT, 0)
        columns: dict[str, NDArray[Any]] = {
            "flags": flags,
            "num_rows": peaks.num_rows,
            "first_step": peaks.first_step,
            "last_step": peaks.last_step,
            "max": peaks.max,
            "min": _codes(peaks.max, self.min),
            "mean": _codes(peaks.max, self.mean),
            "num_nonfinite": peaks.num_nonfinite,
            "num_without_grad": peaks.num_without_grad,
        }
        found = [b""] * len(flags)
        for flag in np.unique(flags).tolist():
            places = np.flatnonzero(flags == flag)
            rows = np.empty(len(places), dtype=_layout(level, flag, peaks.max.shape[1]))
            for name in rows.dtype.names or ():
                rows[name] = columns[name][places]
            for place, row in zip(places.tolist(), rows, strict=True):
                found[place] = row.tobytes()
        return found


def peaks_of_rows(step: Integers, norms: NDArray[np.float32], *, size: int = FANOUT) -> Peaks:
    """Buckets of so many steps, from all their rows of one set of layers; a negative norm is no gradient."""
    bucket = step // size
    starts = starts_of(bucket)
    is_finite, is_norm = _are_norms(norms)
    num_rows = np.diff(starts, append=len(step))
    num_nonfinite = _sums(~is_finite, starts)
    return Peaks(
        bucket=bucket[starts],
        first_step=step[starts],
        last_step=step[np.append(starts[1:], len(step)) - 1],
        num_rows=num_rows,
        max=_reduced(np.fmax, _with(norms, is_norm, np.nan), starts),
        num_nonfinite=num_nonfinite,
        num_without_grad=num_rows[:, None] - num_nonfinite - _sums(is_norm, starts),
    )


def of_rows(step: Integers, norms: NDArray[np.float32]) -> LayerBuckets:
    """Buckets of level 1, from all their rows of one set of layers; a negative norm is no gradient."""
    starts = starts_of(step // FANOUT)
    _, is_norm = _are_norms(norms)
    totals = np.add.reduceat(_with(norms, is_norm, 0.0), starts, axis=0, dtype=np.float64)
    return LayerBuckets(
        peaks_of_rows(step, norms),
        min=_reduced(np.fmin, _with(norms, is_norm, np.nan), starts).astype(np.float64),
        mean=_means(totals, _sums(is_norm, starts)),
    )


def peaks_of_blobs(level: int, buckets: Sequence[int], blobs: Sequence[bytes]) -> Peaks:
    """What `LayerBuckets.blobs` gave, of one set of layers, but for min and mean."""
    return _of_blobs(level, buckets, blobs, peaks_only=True).peaks


def of_blobs(level: int, buckets: Sequence[int], blobs: Sequence[bytes]) -> LayerBuckets:
    """What `LayerBuckets.blobs` gave, of one set of layers."""
    return _of_blobs(level, buckets, blobs, peaks_only=False)


def _of_blobs(level: int, buckets: Sequence[int], blobs: Sequence[bytes], *, peaks_only: bool) -> LayerBuckets:
    num_layers = _num_layers(level, blobs[0])
    found = _empty(level, len(blobs), num_layers, peaks_only=peaks_only)
    found.peaks.bucket[:] = buckets
    flags = np.array([blob[0] for blob in blobs], dtype=np.int64)
    for flag in np.unique(flags).tolist():
        places = np.flatnonzero(flags == flag)
        layout = _layout(level, flag, num_layers)
        rows = np.frombuffer(b"".join([blobs[i] for i in places.tolist()]), dtype=layout)
        for name in set(layout.names or ()) - {"flags", "min", "mean"}:
            getattr(found.peaks, name)[places] = rows[name]
        if not peaks_only:
            found.min[places] = _values(rows["max"], rows["min"])
            found.mean[places] = _values(rows["max"], rows["mean"])
    return found


def _are_norms(norms: NDArray[np.float32]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which are finite, and which of those are norms at all."""
    is_finite = np.isfinite(norms)
    return is_finite, is_finite & (norms >= 0)


def _with(norms: NDArray[np.float32], is_norm: NDArray[np.bool_], instead: float) -> NDArray[np.float32]:
    """The norms, with this instead of what is none."""
    return norms if is_norm.all() else np.where(is_norm, norms, np.float32(instead))


def _empty(level: int, num_buckets: int, num_layers: int, *, peaks_only: bool) -> LayerBuckets:
    shape = (num_buckets, num_layers)
    bucket, first_step, last_step, num_rows = np.zeros((4, num_buckets), np.int64)
    peaks = Peaks(
        bucket=bucket,
        first_step=first_step,
        last_step=last_step,
        num_rows=num_rows,
        max=np.zeros(shape, np.float32),
        num_nonfinite=np.zeros(shape, _count_kind(level)),
        num_without_grad=np.zeros(shape, _count_kind(level)),
    )
    means = (0, 0) if peaks_only else shape
    return LayerBuckets(peaks, min=np.zeros(means), mean=np.zeros(means))


def _count_kind(level: int) -> str:
    """The smallest integers that can count a bucket's steps; those of eight bytes signed, as they mix with others."""
    return next((kind for kind in ("u1", "<u2", "<u4") if bucket_size(level) < 256 ** int(kind[-1])), "<i8")


@lru_cache(maxsize=256)
def _layout(level: int, flags: int, num_layers: int) -> np.dtype[np.void]:
    """How a bucket's blob is laid out; counts are as wide as the bucket's size needs."""
    fields = [("flags", "u1"), ("num_rows", "<u8"), ("first_step", "<u8"), ("last_step", "<u8")]
    planes = [("max", "<f4"), ("min", "<u2"), ("mean", "<u2")]
    for flag, name in ((_HAS_NONFINITE, "num_nonfinite"), (_HAS_NO_GRADIENT, "num_without_grad")):
        if flags & flag:
            planes.append((name, _count_kind(level)))
    return np.dtype([*fields, *((name, kind, (num_layers,)) for name, kind in planes)])


def _num_layers(level: int, blob: bytes) -> int:
    empty, one = (_layout(level, blob[0], num_layers).itemsize for num_layers in (0, 1))
    return (len(blob) - empty) // (one - empty)


def _reduced(ufunc: np.ufunc, values: NDArray[Any], starts: NDArray[np.intp]) -> NDArray[Any]:
    """Each group of neighbouring rows as one: `reduceat`, which is several times slower for rows than row upon row."""
    sizes = np.diff(starts, append=len(values))
    found: NDArray[Any] = values[starts]
    for i in range(1, int(sizes.max())):
        if (sizes > i).all():
            ufunc(found, values[starts + i], out=found)
        else:
            longer = np.flatnonzero(sizes > i)
            found[longer] = ufunc(found[longer], values[starts[longer] + i])
    return found


def _sums(values: NDArray[Any], starts: NDArray[np.intp]) -> Integers:
    if not values.any():
        return np.zeros((len(starts), *values.shape[1:]), np.int64)
    return np.add.reduceat(values, starts, axis=0, dtype=np.int64)


def _means(totals: Floats, count: Integers) -> Floats:
    return np.where(count > 0, totals / np.maximum(count, 1), np.nan)


def _codes(high: NDArray[np.float32], values: Floats) -> NDArray[np.uint16]:
    """How far the values lie below the largest ones; 0 where there are none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.rint(CODES_PER_OCTAVE * (np.log2(high.astype(np.float64)) - np.log2(values)))
    below[~(below > 0)] = 0  # rounding strays; and NaN, which is neither
    codes: NDArray[np.uint16] = np.minimum(below, np.where(values == 0, ZERO, ZERO - 1)).astype(np.uint16)
    return codes


def _values(high: NDArray[np.float32], codes: NDArray[np.uint16]) -> Floats:
    return np.where(codes == ZERO, 0.0, high * np.exp2(codes / -CODES_PER_OCTAVE))
