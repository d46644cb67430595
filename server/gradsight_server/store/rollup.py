"""The bucket pyramid: buckets of 16, 256, 4096, … steps, each computed from those below it. Pure: no database.

A bucket is *closed* once its attempt has a step at or behind the bucket's end. Only closed buckets are kept, so that
one is written once and not with every batch; what is newer is read from finer levels and from the steps themselves.
What is kept therefore follows from the steps alone, in whatever order they came.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gradsight import wire

FANOUT = 16
COLUMNS = (*wire.FLOAT_COLUMNS, *wire.INTEGER_COLUMNS)
"""The columns that are rolled up; those of `num_nonfinite` are the first of them."""
NORM, MAX_NORM, CLIPPED_LAYERS = map(COLUMNS.index, ("grad_norm_before_clip", "max_norm", "clipped_layer_fraction"))

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Piece(NamedTuple):
    """Neighbouring buckets of one level, both ends included; level 0 are the steps."""

    level: int
    first: int
    last: int


def bucket_size(level: int) -> int:
    """How many steps a bucket of this level spans."""
    return int(FANOUT**level)


def num_closed(level: int, last_step: int) -> int:
    """Buckets 0 to this one, not included, are closed where `last_step` is the attempt's newest."""
    return (last_step + 1) // bucket_size(level)


def level_of(bucket_steps: int) -> int:
    """The coarsest level whose buckets make up buckets of so many steps, a power of two."""
    return (bucket_steps.bit_length() - 1) // 4


def cover(first_step: int, last_step: int, level: int) -> list[Piece]:
    """The steps from first to last, by rising step, in as few buckets as there can be, none coarser than `level`."""
    before: list[Piece] = []
    after: list[Piece] = []
    low, high = first_step, last_step + 1  # in buckets of this level, `high` not included
    for fine in range(level):
        low_up, high_down = -(-low // FANOUT), high // FANOUT
        if low_up >= high_down:
            level = fine
            break
        if low < low_up * FANOUT:
            before.append(Piece(fine, low, low_up * FANOUT - 1))
        if high_down * FANOUT < high:
            after.append(Piece(fine, high_down * FANOUT, high - 1))
        low, high = low_up, high_down
    middle = [Piece(level, low, high - 1)] if low < high else []
    return [*before, *middle, *reversed(after)]


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps by rising number; a value is NaN where it is not recorded or not finite."""

    step: Integers
    time_s: Floats
    is_skipped: Flags
    values: Floats
    """A row for each step, a column for each of COLUMNS."""
    is_nonfinite: Flags
    """A column for each of FLOAT_COLUMNS."""


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets of one level by rising number, with what is known of their steps: NaN where there are no values."""

    bucket: Integers
    first_step: Integers
    last_step: Integers
    num_steps: Integers
    num_skipped: Integers
    num_clipped: Integers
    first_time_s: Floats
    last_time_s: Floats
    count: Integers
    """Finite values: a row for each bucket, a column for each of COLUMNS, as min, max and mean have."""
    num_nonfinite: Integers
    min: Floats
    max: Floats
    mean: Floats

    def rows(self) -> list[tuple[Any, ...]]:
        """As the database takes them, in the order of BUCKET_COLUMNS; None for NaN."""
        counts = np.column_stack(
            (
                self.bucket,
                self.first_step,
                self.last_step,
                self.num_steps,
                self.num_skipped,
                self.num_clipped,
                self.count,
                self.num_nonfinite,
            )
        )
        floats = np.column_stack((self.first_time_s, self.last_time_s, self.min, self.max, self.mean))
        values = floats.astype(object)
        values[np.isnan(floats)] = None
        return [(*ints, *rest) for ints, rest in zip(counts.tolist(), values.tolist(), strict=True)]

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[Any]]) -> "Buckets":
        """What `rows` gave."""
        table = np.array(rows, dtype=np.float64).reshape(len(rows), len(BUCKET_COLUMNS))
        ints, rest = table[:, :_NUM_INTEGERS].astype(np.int64), table[:, _NUM_INTEGERS:]
        low, high, mean = np.split(rest[:, 2:], 3, axis=1)
        counts = ints[:, 6:]
        bucket, first_step, last_step, num_steps, num_skipped, num_clipped = ints[:, :6].T
        return cls(
            bucket=bucket,
            first_step=first_step,
            last_step=last_step,
            num_steps=num_steps,
            num_skipped=num_skipped,
            num_clipped=num_clipped,
            first_time_s=rest[:, 0],
            last_time_s=rest[:, 1],
            count=counts[:, : len(COLUMNS)],
            num_nonfinite=counts[:, len(COLUMNS) :],
            min=low,
            max=high,
            mean=mean,
        )


BUCKET_COLUMNS = (
    *("bucket", "first_step", "last_step", "num_steps", "num_skipped", "num_clipped"),
    *(f"{name}_count" for name in COLUMNS),
    *(f"{name}_num_nonfinite" for name in wire.FLOAT_COLUMNS),
    *("first_time_s", "last_time_s"),
    *(f"{name}_{kind}" for kind in ("min", "max", "mean") for name in COLUMNS),
)
_NUM_INTEGERS = 6 + len(COLUMNS) + len(wire.FLOAT_COLUMNS)


def starts_of(groups: NDArray[Any]) -> NDArray[np.intp]:
    """Where each group of equal neighbours begins."""
    return np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))


def of_steps(steps: Steps) -> Buckets:
    """Buckets of level 1, from all their steps."""
    bucket = steps.step // FANOUT
    starts = starts_of(bucket)
    is_finite = ~np.isnan(steps.values)
    count = np.add.reduceat(is_finite, starts, axis=0, dtype=np.int64)
    weights = _per_member(1.0 / np.maximum(count, 1), starts, len(bucket))
    norm, max_norm = steps.values[:, NORM], steps.values[:, MAX_NORM]
    is_clipped = (norm > max_norm) | (steps.values[:, CLIPPED_LAYERS] > 0)
    return Buckets(
        bucket=bucket[starts],
        first_step=steps.step[starts],
        last_step=_last_of(steps.step, starts),
        num_steps=_sums(np.ones(len(bucket)), starts),
        num_skipped=_sums(steps.is_skipped, starts),
        num_clipped=_sums(is_clipped, starts),
        first_time_s=np.fmin.reduceat(steps.time_s, starts),
        last_time_s=np.fmax.reduceat(steps.time_s, starts),
        count=count,
        num_nonfinite=_sums(steps.is_nonfinite, starts),
        **_extrema_and_mean(steps.values, steps.values, steps.values, weights, count, starts),
    )


def of_buckets(children: Buckets) -> Buckets:
    """The buckets one level up, from all their children."""
    bucket = children.bucket // FANOUT
    starts = starts_of(bucket)
    count = _sums(children.count, starts)
    weights = children.count * _per_member(1.0 / np.maximum(count, 1), starts, len(bucket))
    return Buckets(
        bucket=bucket[starts],
        first_step=children.first_step[starts],
        last_step=_last_of(children.last_step, starts),
        num_steps=_sums(children.num_steps, starts),
        num_skipped=_sums(children.num_skipped, starts),
        num_clipped=_sums(children.num_clipped, starts),
        first_time_s=np.fmin.reduceat(children.first_time_s, starts),
        last_time_s=np.fmax.reduceat(children.last_time_s, starts),
        count=count,
        num_nonfinite=_sums(children.num_nonfinite, starts),
        **_extrema_and_mean(children.min, children.max, children.mean, weights, count, starts),
    )


def _sums(values: NDArray[Any], starts: NDArray[np.intp]) -> Integers:
    return np.add.reduceat(values, starts, axis=0, dtype=np.int64)


def _last_of(values: Integers, starts: NDArray[np.intp]) -> Integers:
    last: Integers = values[np.append(starts[1:], len(values)) - 1]
    return last


def _per_member(values: Floats, starts: NDArray[np.intp], num_members: int) -> Floats:
    """Each group's row again for every member of the group."""
    return np.repeat(values, np.diff(starts, append=num_members), axis=0)


def _extrema_and_mean(
    low: Floats, high: Floats, mean: Floats, weights: Floats, count: Integers, starts: NDArray[np.intp]
) -> dict[str, Floats]:
    """Over finite values. The mean's parts are weighted before they are added up, so that no sum overflows."""
    low, high = np.fmin.reduceat(low, starts, axis=0), np.fmax.reduceat(high, starts, axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduceat(np.where(np.isnan(mean), 0.0, mean * weights), starts, axis=0)
    return {"min": low, "max": high, "mean": np.clip(total, low, high, where=count > 0, out=np.full(low.shape, np.nan))}
