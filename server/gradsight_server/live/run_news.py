"""Which runs changed, and when readers are told of them: once a second each, and few at a time."""

import math
import time
from collections.abc import Iterable

INTERVAL_S = 1.0
MAX_AT_ONCE = 20
"""With hundreds of runs training, each is told of less often instead of all at once."""
RECENT_S = 10.0


class RunNews:
    """The runs to tell of. Its methods are called by one thread at a time, but for `recent`."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._changed_s: dict[str, float] = {}
        self._told_s: dict[str, float] = {}

    def note(self, run_ids: Iterable[str]) -> None:
        """These have changed."""
        changed = dict.fromkeys(run_ids)
        self._waiting |= changed
        self._changed_s |= dict.fromkeys(changed, time.monotonic())

    def due(self) -> list[str]:
        """Those to tell of now, which are then told of."""
        now_s = time.monotonic()
        rested = (run for run in self._waiting if now_s - self._told_s.get(run, -math.inf) >= INTERVAL_S)
        due = [run_id for run_id, _ in zip(rested, range(MAX_AT_ONCE), strict=False)]
        for run_id in due:
            del self._waiting[run_id]
            self._told_s[run_id] = now_s
        return due

    def drop_waiting(self) -> None:
        """Nobody listens."""
        self._waiting.clear()

    def recent(self) -> list[str]:
        """Those that changed lately: who opens a stream may have read them just before, or lost the message."""
        since_s = time.monotonic() - RECENT_S
        return [run_id for run_id, changed_s in list(self._changed_s.items()) if changed_s > since_s]

    def forget(self, run_id: str) -> None:
        for known in (self._waiting, self._changed_s, self._told_s):
            known.pop(run_id, None)
