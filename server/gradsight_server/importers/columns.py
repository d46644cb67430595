"""Rows gathered as the diagnosis takes them: a stream's steps in the order of the log, and what goes with them.

Of a run that was rolled back only those steps count that no newer attempt has taken the place of.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradsight import wire
from gradsight_server.diagnosis import Column, Context, LayerNorms, MetricSeries, StreamSteps
from gradsight_server.diagnosis.inputs import Floats
from gradsight_server.importers.placing import Row, Rows
from gradsight_server.importers.settings import RunSettings

MAX_METRICS = 64
MAX_LAYER_ROWS = 256
MAX_RANKS = 1_024
NAN = float("nan")
Mask = np.ndarray[Any, np.dtype[np.bool_]]
KNOWN = frozenset((*wire.FLOAT_COLUMNS, "skipped", *wire.INTEGER_COLUMNS))


class _Numbers:
    """One column; rows that say nothing of it are filled in late."""

    def __init__(self) -> None:
        self.values = array("d")
        self.recorded = bytearray()

    def pad(self, num_rows: int) -> None:
        self.values.extend([NAN] * num_rows)
        self.recorded.extend(bytes(num_rows))

    def extend(self, place: int, values: Floats) -> None:
        self.pad(place - len(self.values))
        self.values.frombytes(values.tobytes())
        self.recorded.extend(b"\1" * len(values))

    def column(self, is_kept: Mask) -> Column:
        self.pad(len(is_kept) - len(self.values))
        return Column(np.array(self.values)[is_kept], np.frombuffer(bytes(self.recorded), dtype=np.bool_)[is_kept])


class _Series:
    """A value here and there, with the attempt and step it is of."""

    def __init__(self) -> None:
        self.attempts = array("i")
        self.steps = array("q")
        self.values = array("d")

    def add(self, row: Row, value: float) -> None:
        self.attempts.append(row.attempt)
        self.steps.append(row.step)
        self.values.append(value)

    def extend(self, rows: Rows, values: Floats) -> None:
        self.attempts.extend([rows.attempt] * len(rows))
        self.steps.frombytes(rows.step.tobytes())
        self.values.frombytes(values.tobytes())


class StreamColumns:
    """The steps of one stream of one run."""

    def __init__(self) -> None:
        self.steps = array("q")
        self._attempts = array("i")
        self._begins: dict[int, int] = {}
        """The first step of each attempt."""
        self._numbers: dict[str, _Numbers] = {}
        self._texts: dict[str, dict[int, str]] = {"skip_reason": {}, "first_nonfinite_layer": {}}
        self._metrics: dict[str, _Series] = {}
        self._layers: deque[tuple[int, int, dict[str, float]]] = deque(maxlen=MAX_LAYER_ROWS)
        self._of_ranks: dict[int, _Series] = {}

    def add(self, row: Row) -> None:
        point = row.point
        if point.metrics:
            self._add_metrics(row, point.metrics)
        if row.rank:
            self._add_rank(row)
            return
        if point.layer_norms:
            self._layers.append((row.attempt, row.step, point.layer_norms))
        if not point.values:
            return
        place = len(self.steps)
        self.steps.append(row.step)
        self._attempts.append(row.attempt)
        if row.step < self._begins.get(row.attempt, wire.MAX_STEP + 1):
            self._begins[row.attempt] = row.step
        known = self._numbers
        for name, value in point.values.items():
            numbers = known.get(name)
            if numbers is None:
                if name not in KNOWN:
                    continue
                numbers = known[name] = _Numbers()
            values = numbers.values
            if len(values) < place:
                numbers.pad(place - len(values))
            values.append(value)
            numbers.recorded.append(1)
        if point.skip_reason is not None:
            self._texts["skip_reason"][place] = point.skip_reason
        if point.first_nonfinite_layer is not None:
            self._texts["first_nonfinite_layer"][place] = point.first_nonfinite_layer

    def add_many(self, rows: Rows) -> None:
        """Rows of rank 0."""
        place = len(self.steps)
        self.steps.frombytes(rows.step.tobytes())
        self._attempts.extend([rows.attempt] * len(rows))
        self._begins[rows.attempt] = min(self._begins.get(rows.attempt, wire.MAX_STEP + 1), int(rows.step.min()))
        for name, values in rows.points.values.items():
            if name in KNOWN:
                self._numbers.setdefault(name, _Numbers()).extend(place, values)
        for name, values in rows.points.metrics.items():
            if (series := self._series(name)) is not None:
                series.extend(rows, values)

    def _add_metrics(self, row: Row, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            if (series := self._series(name)) is not None:
                series.add(row, value)

    def _series(self, name: str) -> _Series | None:
        """None for one more metric than are kept."""
        if name not in self._metrics and len(self._metrics) < MAX_METRICS:
            self._metrics[name] = _Series()
        return self._metrics.get(name)

    def _add_rank(self, row: Row) -> None:
        norm = row.point.values.get("grad_norm_before_clip")
        if norm is None or (row.rank not in self._of_ranks and len(self._of_ranks) >= MAX_RANKS):
            return
        self._of_ranks.setdefault(row.rank, _Series()).add(row, norm)

    def _is_kept(self, attempts: Sequence[int], steps: Sequence[int]) -> Mask:
        """Which of these no newer attempt has taken the place of: one does so from its first step on."""
        of, step = np.array(attempts, dtype=np.int64), np.array(steps, dtype=np.int64)
        begun = sorted(self._begins)
        # For each attempt, where the earliest-beginning one after it begins; the newest is whole.
        firsts = np.array([self._begins[attempt] for attempt in begun] + [wire.MAX_STEP + 1], dtype=np.int64)
        ends = np.minimum.accumulate(firsts[::-1])[::-1]
        found: Mask = step < ends[np.searchsorted(np.array(begun, dtype=np.int64), of, side="right")]
        return found

    def as_steps(self) -> StreamSteps:
        is_kept = self._is_kept(self._attempts, self.steps)
        columns: dict[str, Any] = {name: numbers.column(is_kept) for name, numbers in self._numbers.items()}
        _begin_threshold(columns)
        for name, texts in self._texts.items():
            if texts:
                columns[name] = tuple(texts.get(int(i)) for i in np.flatnonzero(is_kept))
        return StreamSteps.of(np.array(self.steps, dtype=np.int64)[is_kept], layers=self._layer_norms(), **columns)

    def _layer_norms(self) -> LayerNorms | None:
        is_kept = self._is_kept([attempt for attempt, _, _ in self._layers], [step for _, step, _ in self._layers])
        kept = [(step, norms) for (_, step, norms), keep in zip(self._layers, is_kept, strict=True) if keep]
        if not kept:
            return None
        names = tuple(dict.fromkeys(name for _, norms in kept for name in norms))[: wire.MAX_LAYERS]
        rows = [[norms.get(name, wire.NO_GRADIENT) for name in names] for _, norms in kept]
        return LayerNorms(np.array([step for step, _ in kept], dtype=np.int64), names, np.array(rows, dtype=np.float64))

    def context(self, settings: RunSettings, stream: str) -> Context:
        return Context(
            record=settings.record(stream),
            growth_interval=settings.growth_interval,
            metrics={name: self._by_rising_step(series) for name, series in self._metrics.items()},
            rank_norms=self._rank_norms(),
        )

    def _by_rising_step(self, series: _Series) -> MetricSeries:
        is_kept = self._is_kept(series.attempts, series.steps)
        step, value = np.array(series.steps, dtype=np.int64)[is_kept], np.array(series.values)[is_kept]
        order = np.argsort(step, kind="stable")
        return MetricSeries(step[order], value[order])

    def _rank_norms(self) -> dict[int, Floats]:
        kept = np.array(self.steps, dtype=np.int64)[self._is_kept(self._attempts, self.steps)]
        place = {step: i for i, step in enumerate(kept.tolist())}
        found = {}
        for rank, series in self._of_ranks.items():
            aligned = np.full(len(kept), np.nan)
            of_rank = zip(series.steps, series.values, self._is_kept(series.attempts, series.steps), strict=True)
            for step, norm, keep in of_rank:
                if keep and step in place:
                    aligned[place[step]] = norm
            found[rank] = aligned
        return found


def _begin_threshold(columns: dict[str, Any]) -> None:
    """A threshold that is known only from some step on was in force before, too."""
    column: Column | None = columns.get("max_norm")
    if column is None or column.recorded.all() or not column.recorded.any():
        return
    first = int(np.argmax(column.recorded))
    if np.unique(column.values[column.recorded]).size == 1:
        column.values[:first] = column.values[first]
        recorded = column.recorded.copy()
        recorded[:first] = True
        columns["max_norm"] = Column(column.values, recorded)
