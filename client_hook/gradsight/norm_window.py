"""The last norms, in order of arrival and sorted, for percentiles: on the host as floats, on a device as tensors.

Both have `add(norm, counts)`, which takes the norm in where it counts and gives the number of norms held, and
`at(rank)`, the norm of that rank from 0 on (`inf` while there is none). No torch but the one handed in.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from typing import Any


class HostWindow:
    """The last `history` norms, in order of arrival and sorted."""

    def __init__(self, norms: Iterable[float], history: int) -> None:
        self.arrivals = deque(norms)
        self._sorted = sorted(self.arrivals)
        self._history = history

    def add(self, norm: float, counts: bool) -> int:
        if counts:
            if len(self.arrivals) == self._history:
                del self._sorted[bisect_left(self._sorted, self.arrivals.popleft())]
            self.arrivals.append(norm)
            insort(self._sorted, norm)
        return len(self.arrivals)

    def at(self, rank: int) -> float:
        return self._sorted[rank] if self._sorted else math.inf


class DeviceWindow:
    """The same on a device: a ring [history] of float64, `inf` where nothing has come yet, sorted anew each step."""

    def __init__(self, norms: Iterable[float], history: int, device: Any, torch: Any) -> None:
        self._history = history
        values = torch.tensor(list(norms), dtype=torch.float64)
        self._num_seen = torch.full((), len(values), dtype=torch.float64, device=device)
        self._ring = torch.full((history,), math.inf, dtype=torch.float64, device=device)
        if len(values):
            # Only a copy from pinned memory does not wait for the device.
            source = values.pin_memory() if device.type == "cuda" else values
            self._ring[: len(values)].copy_(source, non_blocking=True)
        self._sorted = self._ring

    def add(self, norm: Any, counts: Any) -> Any:
        slot = (self._num_seen % self._history).long().reshape(1)
        leaving = self._ring.take(slot)
        self._ring.index_copy_(0, slot, norm.where(counts, leaving))
        self._num_seen = self._num_seen + counts
        self._sorted = self._ring.sort().values
        return self._num_seen.clamp(max=self._history)

    def at(self, rank: Any) -> Any:
        return self._sorted.take(rank.long())  # indexing with a tensor would wait for the device

    def in_order(self) -> list[float]:
        num_seen, norms = int(self._num_seen), self._ring.tolist()
        oldest = num_seen % self._history if num_seen > self._history else 0
        return [*norms[oldest:], *norms[:oldest]][: min(num_seen, self._history)]
