"""Several ranks in one log: copies that say what the main rank says go, others stay as rows of their rank."""

import math

from gradsight_server.importers.placing import NORM, Row, same_values

MAX_STEPS = 64
"""So many of the main rank's newest steps are remembered: ranks print a little before or after one another."""
MAX_WAITING = 1_024

Key = tuple[int, int, str]
"""(run, attempt, stream)"""


class Ranks:
    """Tells the main rank's rows, which become rank 0's, from the others'."""

    def __init__(self) -> None:
        self._main: dict[str, int] = {}
        self._recent: dict[Key, dict[int, dict[str, float]]] = {}
        self._waiting: dict[Key, list[Row]] = {}
        self._have_several: set[str] = set()
        self.num_copies = 0
        self.ranks: set[int] = set()
        """Ranks other than the main one that told something else."""
        self.nonfinite: dict[int, tuple[int, int]] = {}
        """How often, and at which step first, a rank's norm was not finite while the main one's was."""

    def look(self, rows: list[Row]) -> None:
        """Learns which is each stream's main rank, the lowest, and which streams have several."""
        for row in rows:
            if row.point.values:
                self._main[row.stream] = min(row.rank, self._main.get(row.stream, row.rank))
        for row in rows:
            if row.rank != self._main.get(row.stream):
                self._have_several.add(row.stream)

    def is_alone(self, stream: str) -> bool:
        """Whether the stream has been told by rank 0 only."""
        return self._main.get(stream) == 0 and stream not in self._have_several

    def sorted_out(self, row: Row) -> list[Row]:
        """The rows to be kept by now, this one or such as waited."""
        main = self._main.setdefault(row.stream, row.rank)
        if row.rank == main:
            row.rank = 0
        elif row.rank == 0:
            row.rank = main  # the lowest was not among the first rows
        if row.rank == 0 and row.stream not in self._have_several:
            return [row]
        self._have_several.add(row.stream)
        key = (row.run, row.attempt, row.stream)
        return self._of_main(key, row) if row.rank == 0 else self._of_other(key, row)

    def close(self) -> list[Row]:
        rows = [row for waiting in self._waiting.values() for row in waiting]
        self._waiting.clear()
        return [self._kept(row) for row in rows]

    def _of_main(self, key: Key, row: Row) -> list[Row]:
        recent = self._recent.setdefault(key, {})
        recent[row.step] = dict(row.point.values)
        if len(recent) > MAX_STEPS:
            del recent[next(iter(recent))]
        waiting = self._waiting.get(key)
        if not waiting:
            return [row]
        here = [other for other in waiting if other.step <= row.step]
        self._waiting[key] = [other for other in waiting if other.step > row.step]
        return [row, *(other for other in here if self._differs(recent, other))]

    def _of_other(self, key: Key, row: Row) -> list[Row]:
        recent = self._recent.setdefault(key, {})
        if row.step in recent:
            return [row] if self._differs(recent, row) else []
        waiting = self._waiting.setdefault(key, [])
        waiting.append(row)
        return [] if len(waiting) <= MAX_WAITING else [self._kept(waiting.pop(0))]

    def _differs(self, recent: dict[int, dict[str, float]], row: Row) -> bool:
        main, values = recent.get(row.step), row.point.values
        if main is not None and same_values({name: main[name] for name in values.keys() & main.keys()}, values):
            self.num_copies += 1
            return False
        self._kept(row)
        norm = values.get(NORM, 0.0)
        if main is not None and not math.isfinite(norm) and math.isfinite(main.get(NORM, 0.0)):
            num, first = self.nonfinite.get(row.rank, (0, row.step))
            self.nonfinite[row.rank] = num + 1, first
        return True

    def _kept(self, row: Row) -> Row:
        self.ranks.add(row.rank)
        return row
