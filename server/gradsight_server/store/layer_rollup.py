"""What a bucket knows of each layer: largest, smallest and mean norm, and how many were not there. Pure: no database.

A blob holds them layer after layer, one kind after another: the largest norm as float32, exactly; the smallest and the
mean as how far they lie below it, in 256ths of an octave (within 0.14 % at each level); how many norms were not finite
and how many steps had no gradient, only where there were any.
"""

from collections.abc import Sequence
from dataclasses import dataclass
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
class LayerBuckets:
    """Buckets by rising number; matrices have a row for each bucket, a column for each layer."""

    bucket: Integers
    first_step: Integers
    last_step: Integers
    num_rows: Integers
    max: NDArray[np.float32]  # over finite norms, NaN where there are none
    min: Floats
    mean: Floats
    num_nonfinite: Integers
    num_without_grad: Integers

    @property
    def count(self) -> Integers:
        """How many norms min, max and mean are of."""
        return self.num_rows[:, None] - self.num_nonfinite - self.num_without_grad

    def blobs(self, level: int) -> list[bytes]:
        """A blob for each bucket, but for its number."""
        flags: Integers = np.where(self.num_nonfinite.any(axis=1), _HAS_NONFINITE, 0)
        flags = flags + np.where(self.num_without_grad.any(axis=1), _HAS_NO_GRADIENT, 0)
        columns: dict[str, NDArray[Any]] = {
            "flags": flags,
            "num_rows": self.num_rows,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "max": self.max,
            "min": _codes(self.max, self.min),
            "mean": _codes(self.max, self.mean),
            "num_nonfinite": self.num_nonfinite,
            "num_without_grad": self.num_without_grad,
        }
        found = [b""] * len(flags)
        for flag in np.unique(flags).tolist():
            places = np.flatnonzero(flags == flag)
            rows = np.empty(len(places), dtype=_layout(level, flag, self.max.shape[1]))
            for name in rows.dtype.names or ():
                rows[name] = columns[name][places]
            for place, row in zip(places.tolist(), rows, strict=True):
                found[place] = row.tobytes()
        return found

    @classmethod
    def of_blobs(cls, level: int, buckets: Sequence[int], blobs: Sequence[bytes], num_layers: int) -> "LayerBuckets":
        """What `blobs` gave, of one set of layers."""
        found = _empty(len(blobs), num_layers)
        found.bucket[:] = buckets
        flags = np.array([blob[0] for blob in blobs], dtype=np.int64)
        for flag in np.unique(flags).tolist():
            places = np.flatnonzero(flags == flag)
            layout = _layout(level, flag, num_layers)
            rows = np.frombuffer(b"".join([blobs[i] for i in places.tolist()]), dtype=layout)
            found.max[places] = rows["max"]
            found.min[places] = _values(rows["max"], rows["min"])
            found.mean[places] = _values(rows["max"], rows["mean"])
            for name in set(layout.names or ()) - {"flags", "max", "min", "mean"}:
                getattr(found, name)[places] = rows[name]
        return found


def of_rows(step: Integers, norms: NDArray[np.float32]) -> LayerBuckets:
    """Buckets of level 1, from all their rows of one set of layers; a negative norm is no gradient."""
    bucket = step // FANOUT
    starts = starts_of(bucket)
    is_finite = np.isfinite(norms)
    is_norm = is_finite & (norms >= 0)
    values, zero_for_none = norms, norms
    if not is_norm.all():
        values, zero_for_none = (np.where(is_norm, norms, np.float32(instead)) for instead in (np.nan, 0.0))
    num_rows = np.diff(starts, append=len(step))
    num_nonfinite = _sums(~is_finite, starts)
    count = _sums(is_norm, starts)
    return LayerBuckets(
        bucket=bucket[starts],
        first_step=step[starts],
        last_step=step[np.append(starts[1:], len(step)) - 1],
        num_rows=num_rows,
        max=np.fmax.reduceat(values, starts, axis=0),
        min=np.fmin.reduceat(values, starts, axis=0).astype(np.float64),
        mean=_means(np.add.reduceat(zero_for_none, starts, axis=0, dtype=np.float64), count),
        num_nonfinite=num_nonfinite,
        num_without_grad=num_rows[:, None] - count - num_nonfinite,
    )


def of_buckets(children: LayerBuckets, *, size: int = FANOUT) -> LayerBuckets:
    """Buckets of so many children each, from all their children of one set of layers."""
    bucket = children.bucket // size
    starts = starts_of(bucket)
    count = _sums(children.count, starts)
    parts = np.where(children.count > 0, children.mean, 0.0) * children.count
    return LayerBuckets(
        bucket=bucket[starts],
        first_step=children.first_step[starts],
        last_step=children.last_step[np.append(starts[1:], len(bucket)) - 1],
        num_rows=_sums(children.num_rows, starts),
        max=np.fmax.reduceat(children.max, starts, axis=0),
        min=np.fmin.reduceat(children.min, starts, axis=0),
        mean=_means(np.add.reduceat(parts, starts, axis=0), count),
        num_nonfinite=_sums(children.num_nonfinite, starts),
        num_without_grad=_sums(children.num_without_grad, starts),
    )


def _empty(num_buckets: int, num_layers: int) -> LayerBuckets:
    shape = (num_buckets, num_layers)
    bucket, first_step, last_step, num_rows = np.zeros((4, num_buckets), np.int64)
    return LayerBuckets(
        bucket=bucket,
        first_step=first_step,
        last_step=last_step,
        num_rows=num_rows,
        max=np.zeros(shape, np.float32),
        min=np.zeros(shape),
        mean=np.zeros(shape),
        num_nonfinite=np.zeros(shape, np.int64),
        num_without_grad=np.zeros(shape, np.int64),
    )


def _layout(level: int, flags: int, num_layers: int) -> np.dtype[np.void]:
    """How a bucket's blob is laid out; counts are as wide as the bucket's size needs."""
    width = next(width for width in (1, 2, 4, 8) if bucket_size(level) < 256**width)
    fields = [("flags", "u1"), ("num_rows", "<u8"), ("first_step", "<u8"), ("last_step", "<u8")]
    planes = [("max", "<f4"), ("min", "<u2"), ("mean", "<u2")]
    for flag, name in ((_HAS_NONFINITE, "num_nonfinite"), (_HAS_NO_GRADIENT, "num_without_grad")):
        if flags & flag:
            planes.append((name, f"<u{width}"))
    return np.dtype([*fields, *((name, kind, (num_layers,)) for name, kind in planes)])


def _sums(values: NDArray[np.bool_] | Integers, starts: NDArray[np.intp]) -> Integers:
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
