"""Rows gathered as the diagnosis takes them: a stream's steps in the order of the log, and what goes with them."""

from array import array
from collections import deque
from typing import Any

import numpy as np

from gradsight import wire
from gradsight_server.diagnosis import Column, Context, LayerNorms, MetricSeries, StreamSteps
from gradsight_server.diagnosis.inputs import Floats
from gradsight_server.importers.placing import Row
from gradsight_server.importers.settings import RunSettings

MAX_METRICS = 64
MAX_LAYER_ROWS = 256
MAX_RANKS = 1_024
NAN = float("nan")
KNOWN = frozenset((*wire.FLOAT_COLUMNS, "skipped", *wire.INTEGER_COLUMNS))


class _Numbers:
    """One column; rows that say nothing of it are filled in late."""

    def __init__(self) -> None:
        self.values = array("d")
        self.recorded = bytearray()

    def pad(self, num_rows: int) -> None:
        self.values.extend([NAN] * num_rows)
        self.recorded.extend(bytes(num_rows))

    def column(self, num_rows: int) -> Column:
        self.pad(num_rows - len(self.values))
        return Column(np.array(self.values), np.frombuffer(bytes(self.recorded), dtype=np.bool_))


class StreamColumns:
    """The steps of one stream of one run."""

    def __init__(self) -> None:
        self.steps = array("q")
        self._numbers: dict[str, _Numbers] = {}
        self._texts: dict[str, dict[int, str]] = {"skip_reason": {}, "first_nonfinite_layer": {}}
        self._metrics: dict[str, tuple[array[int], array[float]]] = {}
        self._layers: deque[tuple[int, dict[str, float]]] = deque(maxlen=MAX_LAYER_ROWS)
        self._of_ranks: dict[int, tuple[array[int], array[float]]] = {}

    def add(self, row: Row) -> None:
        point = row.point
        if point.metrics:
            self._add_metrics(row.step, point.metrics)
        if row.rank:
            self._add_rank(row)
            return
        if point.layer_norms:
            self._layers.append((row.step, point.layer_norms))
        if not point.values:
            return
        place = len(self.steps)
        self.steps.append(row.step)
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

    def _add_metrics(self, step: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            series = self._metrics.get(name)
            if series is None:
                if len(self._metrics) >= MAX_METRICS:
                    continue
                series = self._metrics[name] = array("q"), array("d")
            series[0].append(step)
            series[1].append(value)

    def _add_rank(self, row: Row) -> None:
        norm = row.point.values.get("grad_norm_before_clip")
        if norm is None or (row.rank not in self._of_ranks and len(self._of_ranks) >= MAX_RANKS):
            return
        series = self._of_ranks.setdefault(row.rank, (array("q"), array("d")))
        series[0].append(row.step)
        series[1].append(norm)

    def as_steps(self) -> StreamSteps:
        num_rows = len(self.steps)
        columns: dict[str, Any] = {name: numbers.column(num_rows) for name, numbers in self._numbers.items()}
        _begin_threshold(columns)
        for name, texts in self._texts.items():
            if texts:
                columns[name] = tuple(texts.get(i) for i in range(num_rows))
        return StreamSteps.of(np.array(self.steps, dtype=np.int64), layers=self._layer_norms(), **columns)

    def _layer_norms(self) -> LayerNorms | None:
        if not self._layers:
            return None
        names = tuple(dict.fromkeys(name for _, norms in self._layers for name in norms))[: wire.MAX_LAYERS]
        rows = [[norms.get(name, wire.NO_GRADIENT) for name in names] for _, norms in self._layers]
        steps = np.array([step for step, _ in self._layers], dtype=np.int64)
        return LayerNorms(steps, names, np.array(rows, dtype=np.float64))

    def context(self, settings: RunSettings, stream: str) -> Context:
        return Context(
            record=settings.record(stream),
            growth_interval=settings.growth_interval,
            metrics={name: _by_rising_step(*series) for name, series in self._metrics.items()},
            rank_norms=self._rank_norms(),
        )

    def _rank_norms(self) -> dict[int, Floats]:
        place = {step: i for i, step in enumerate(self.steps)}
        found = {}
        for rank, (steps, norms) in self._of_ranks.items():
            aligned = np.full(len(self.steps), np.nan)
            for step, norm in zip(steps, norms, strict=True):
                if step in place:
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


def _by_rising_step(steps: "array[int]", values: "array[float]") -> MetricSeries:
    step, value = np.array(steps, dtype=np.int64), np.array(values)
    order = np.argsort(step, kind="stable")
    return MetricSeries(step[order], value[order])
