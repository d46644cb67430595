"""A log's items become runs: rows of steps for whoever gathers or sends them, and notes for whoever reads."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.cleaning import Cleaning
from gradsight_server.importers.items import (
    OF_GRADIENTS,
    Happened,
    Item,
    Meaning,
    Point,
    Points,
    Restart,
    Setting,
    Unread,
)
from gradsight_server.importers.placing import Placing, Row, Rows
from gradsight_server.importers.ranks import Ranks
from gradsight_server.importers.settings import RunSettings

NUM_HELD = 2_000
"""So many rows are looked at before the first is given on."""
MAX_HELD = 100_000
"""So many without a gradient norm or loss scale, and it is taken for a log that has none."""
MAX_RUNS = 1_000
MAX_STREAMS = 64
MAX_HAPPENED = 10_000
MAX_UNREAD = 100
"""So many lines are kept that could not be read; the others are counted."""


class Sink(Protocol):
    """Where the rows of a log go, in the order of the log."""

    def row(self, row: Row) -> None: ...

    def rows(self, rows: Rows) -> None:
        """Rows of rank 0."""

    def happened(self, run: int, attempt: int, event: Happened) -> None: ...


@dataclass
class Told:
    """What was learnt of a log beside its rows."""

    settings: list[RunSettings] = field(default_factory=list)
    """By run."""
    meanings: list[Meaning] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    num_unread: int = 0
    num_rows: int = 0
    num_left_out: int = 0
    """Rows of more runs or streams than are taken from one log."""
    names: dict[str, None] = field(default_factory=dict)
    """All that has a number in the log, by our names and the log's own."""


class Assembly:
    """Takes items in, gives rows out.

    Args:
        max_norm: The threshold a person says was in force.
        name: What the log is called in messages.
    """

    def __init__(self, sink: Sink, *, name: str, max_norm: float | None = None) -> None:
        self._sink = sink
        self._name = name
        self._max_norm = max_norm
        self._held: list[Row] | None = []
        self._has_gradients = False
        self._pending: list[Setting] = []
        self._is_restarted = False
        self._thresholds: dict[str, float | None] = {}
        self._settings_of = 0
        self._num_happened: Counter[int] = Counter()
        self._streams: set[str] = set()
        self.first_points: list[Point] = []
        """Of each run, as the log has it: what a run is known by when its log has grown."""
        self.told = Told(settings=[RunSettings(max_norm)])
        self.cleaning = Cleaning(max_norm)
        self.ranks = Ranks()
        self.placing = Placing(self._take_row, self._take_rows, self._threshold_of)

    def take(self, item: Item) -> None:
        """
        Raises:
            NothingToReadError: it has gone on for long without a word about gradients.
        """
        match item:
            case Point():
                self.placing.point(item)
                if self.placing.run >= len(self.first_points):
                    self._note_first(item)
            case Points():
                if self._held is not None:
                    self.take_all(item[:NUM_HELD].each())
                    if len(item) > NUM_HELD:
                        self.take(item[NUM_HELD:])
                elif not self.placing.points(item):
                    self.take_all(item.each())
            case Setting():
                self._set(item)
            case Meaning():
                self._mean(item)
            case Restart():
                self._is_restarted = True
                self.placing.restart()
                if item.is_other_run:
                    self.placing.other_run()
            case Unread():
                self.told.num_unread += 1
                if len(self.told.unread) < MAX_UNREAD:
                    self.told.unread.append(item)
            case Happened():
                self._tell(item)

    def _note_first(self, point: Point) -> None:
        missing = self.placing.run + 1 - len(self.first_points)
        self.first_points += [replace(point, values=dict(point.values), metrics=dict(point.metrics))] * missing

    def take_all(self, items: Iterable[Item]) -> None:
        place, first_points = self.placing.point, self.first_points
        for item in items:
            if type(item) is Point and first_points:
                place(item)
                if self.placing.run >= len(first_points):
                    self._note_first(item)
            else:
                self.take(item)

    def flush(self) -> None:
        """Gives all that is known by now, for a log that is still written."""
        if self._held is None or self._has_gradients:
            self.placing.flush()
            self._release()

    def close(self) -> None:
        """
        Raises:
            NothingToReadError: there was nothing about gradients in it.
        """
        self.placing.close()
        self._release()
        for row in self.ranks.close():
            self._give(row)
        if not self._has_gradients:
            raise self._refusal()
        if not self.told.num_rows:
            problem = "no gradient norm or loss scale found; all that stands there are placeholders, 0 or negative."
            raise NothingToReadError(f"{self._name!r}: {problem}")

    def _refusal(self) -> NothingToReadError:
        names = [" ".join(name.split())[:60] for name in self.told.names]
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        found = f"found: {shown}" if shown else "and no other numbers"
        return NothingToReadError(f"{self._name!r}: no gradient norm or loss scale found; {found}.")

    # Settings

    def _set(self, setting: Setting) -> None:
        known = self.told.settings[-1].find(setting.name, setting.stream)
        if setting.name == "run_name" and known is not None and known.value != setting.value:
            self.placing.other_run()
        self._pending.append(setting)

    def _threshold_of(self, run: int, stream: str) -> float | None:
        """Called for each point before its row is made: by now it is known which run the settings before it are of."""
        if run == self._settings_of and not self._pending and not self._is_restarted and stream in self._thresholds:
            return self._thresholds[stream]  # nearly always
        if run != self._settings_of:
            self._settings_of = run
            inherits = not (self._pending or self._is_restarted)
            self.told.settings.append(self.told.settings[-1].copy() if inherits else RunSettings(self._max_norm))
            self._thresholds = {}
        if self._pending:
            for setting in self._pending:
                self.told.settings[-1].add(setting)
            self._pending.clear()
            self._thresholds = {}
        self._is_restarted = False
        if stream not in self._thresholds:
            self._thresholds[stream] = self.told.settings[-1].threshold(stream)
        return self._thresholds[stream]

    def _mean(self, meaning: Meaning) -> None:
        if meaning.column == "step" and meaning.significant_digits is not None:
            self.placing.round_to(meaning.significant_digits)
        if meaning not in self.told.meanings and len(self.told.meanings) < 100:
            self.told.meanings.append(meaning)
            self.cleaning.meanings[meaning.column] = meaning

    # Rows

    def _take_row(self, row: Row) -> None:
        point = row.point
        if not self._has_gradients:
            self.told.names.update(dict.fromkeys((*point.values, *point.metrics)))
            self._has_gradients = not OF_GRADIENTS.isdisjoint(point.values)
        if self._held is None:
            self._put(row)
            return
        self._held.append(row)
        if len(self._held) >= NUM_HELD and self._has_gradients:
            self._release()
        elif len(self._held) >= MAX_HELD:
            raise self._refusal()

    def _take_rows(self, rows: Rows) -> None:
        if rows.rank == 0 and self.ranks.is_alone(rows.stream) and self.cleaning.is_clean(rows):
            self._give(rows)
            return
        for row in rows.each():
            self._take_row(row)

    def _release(self) -> None:
        if self._held is None:
            return
        rows, self._held = self._held, None
        self.cleaning.look(rows)
        self.ranks.look(rows)
        for row in rows:
            self._put(row)

    def _put(self, row: Row) -> None:
        self.cleaning.clean(row)
        if row.rank == 0 and self.ranks.is_alone(row.stream):
            self._give(row)
            return
        for kept in self.ranks.sorted_out(row):
            self._give(kept)

    def _give(self, row: Row | Rows) -> None:
        num = len(row) if isinstance(row, Rows) else 1
        if row.stream not in self._streams and len(self._streams) < MAX_STREAMS:
            self._streams.add(row.stream)
        if row.run >= MAX_RUNS or row.stream not in self._streams:
            self.told.num_left_out += num
        elif isinstance(row, Rows):
            self.told.num_rows += num
            self._sink.rows(row)
        else:
            if row.point.values:
                self.told.num_rows += 1
            self._sink.row(row)

    def _tell(self, event: Happened) -> None:
        run = self.placing.run
        if self._num_happened[run] < MAX_HAPPENED and run < MAX_RUNS:
            self._num_happened[run] += 1
            self._sink.happened(run, self.placing.attempt, event)
