"""Statistics that bear any numbers: local levels, streaks, spreads. Arrays of finite values in, arrays out."""

import numpy as np

from gradsight_server.diagnosis.inputs import Bools, Floats, Integers


def local_level(values: Floats, *, block: int, q: float = 50.0) -> Floats:
    """The level around each value [N]: percentiles of blocks, each the median of itself and its two neighbours.

    Blocks rather than a rolling window, so that a million values cost a tenth of a second.
    """
    num_blocks = len(values) // block
    if num_blocks < 2:
        return np.full(len(values), np.percentile(values, q)) if len(values) else values
    levels = np.percentile(values[: num_blocks * block].reshape(num_blocks, block), q, axis=1)
    if num_blocks >= 3:
        levels[1:-1] = np.median([levels[:-2], levels[1:-1], levels[2:]], axis=0)
    level = np.repeat(levels, block)
    return np.pad(level, (0, len(values) - len(level)), mode="edge")


def spikes(values: Floats, level: Floats, *, ratio: float, sigmas: float) -> Bools:
    """Which values stand out of their local level: by `ratio`, and by so many robust deviations of the log."""
    if len(values) == 0:
        return np.zeros(0, dtype=np.bool_)
    tiny = np.finfo(np.float64).tiny
    distance = np.log(np.maximum(values, tiny)) - np.log(np.maximum(level, tiny))
    deviation = 1.4826 * float(np.median(np.abs(distance - np.median(distance))))
    stands_out: Bools = (distance > np.log(ratio)) & (distance > sigmas * deviation) & (level > 0)
    return stands_out


def streaks(flags: Bools) -> list[tuple[int, int]]:
    """Runs of True as (first, one past the last), in order."""
    padded = np.concatenate([[False], flags, [False]])
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def longest_streak(flags: Bools) -> int:
    return max((last - first for first, last in streaks(flags)), default=0)


def trailing_streak(flags: Bools) -> int:
    """How many of the last are True without a break."""
    breaks = np.flatnonzero(~flags)
    return len(flags) - (int(breaks[-1]) + 1 if len(breaks) else 0)


def in_long_streaks(flags: Bools, least: int) -> Bools:
    """`flags`, where at least so many are True in a row."""
    kept = np.zeros_like(flags)
    for first, last in streaks(flags):
        if last - first >= least:
            kept[first:last] = True
    return kept


def relative_spread(values: Floats) -> float:
    """Standard deviation ÷ mean; 0 where there is nothing to divide by."""
    mean = float(np.mean(values)) if len(values) else 0.0
    return float(np.std(values)) / mean if mean > 0 else 0.0


def moves(values: Floats) -> bool:
    """Whether finite values differ at all."""
    return len(values) > 1 and bool(np.any(values != values[0]))


def usual_spacing(step: Integers) -> float:
    """The median distance of two recorded steps; 1 where that is unknown."""
    distances = np.diff(step)
    rising = distances[distances > 0]
    return float(np.median(rising)) if len(rising) else 1.0
