"""What tables have in common, be their rows CSV or JSON: which column is which, and a row as a point."""

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from gradsight import wire
from gradsight_server.importers.format import Options
from gradsight_server.importers.items import Item, Point, Points, Unread
from gradsight_server.importers.names import chosen, column_of, layer_of, stream_of, words_of
from gradsight_server.importers.numbers import is_recorded, number

NORM = "grad_norm_before_clip"
MAX_NAMES = 10_000
MAX_LAYOUTS = 1_000
"""Rows that tell different things have different names; so many combinations are remembered."""
TEXTS = frozenset(wire.TEXT_COLUMNS)
KEYS = frozenset({"step", "epoch", "rank", "wall_time_s", "stream"})

LAYER = "layer_norms"
Layout = list[tuple[str, str | None]]
"""(the log's name, our column or None for a metric) of each cell; of a norm of a layer (the layer, LAYER)."""
Layouts = list[tuple[str, Layout]]
"""By stream: one, unless a row has the norms of several optimizers."""
OF_ANOTHER = ""
"""In place of a column: the cell is of another stream."""


class Columns:
    """Tells our columns among a table's names, which may become more from row to row."""

    def __init__(self, options: Options) -> None:
        self.num_choices = 0
        """How often the columns were chosen anew."""
        self._own = {theirs: ours for ours, theirs in options.columns}
        self._names: dict[str, None] = {}
        self._layouts: dict[tuple[str, ...], Layouts] = {}

    def layouts(self, names: tuple[str, ...]) -> Layouts:
        """What each of these names is."""
        found = self._layouts.get(names)
        if found is None:
            found = self._layouts[names] = self._made(names)
        return found

    def _made(self, names: tuple[str, ...]) -> Layouts:
        known = len(self._names)
        if known < MAX_NAMES:
            self._names.update(dict.fromkeys(names))
        if len(self._names) != known or len(self._layouts) >= MAX_LAYOUTS:
            self._layouts.clear()  # a new name may be the better one for a column
            self.num_choices += 1
        streams = [] if NORM in self._own.values() or "stream" in self._names else _streams(self._names)
        if not streams:
            return [("main", self._layout(names, self._names))]
        first, *_ = streams
        found = []
        for stream in streams:
            among = [name for name in self._names if stream_of(name) in (stream, None)]
            layout = self._layout(names, among)
            is_aside = [column in (None, LAYER) and stream_of(name) is None for name, column in layout]
            found.append(
                (
                    stream,
                    [
                        (name, OF_ANOTHER)
                        if stream_of(theirs) not in (stream, None) or (aside and stream != first)
                        else (name, column)
                        for theirs, (name, column), aside in zip(names, layout, is_aside, strict=True)
                    ],
                )
            )
        return found

    def _layout(self, names: Collection[str], among: Collection[str]) -> Layout:
        taken = set(self._own.values())
        best = chosen(among)
        here = {column: theirs for column, theirs in best.items() if theirs in names}
        for column, theirs in chosen((name for name in names if name in among), only_sure=True).items():
            if column not in here and (column not in best or _stands_in(theirs, best[column])):
                here[column] = theirs
        ours = {theirs: column for column, theirs in here.items() if column not in taken} | self._own
        if "stream" in self._names:
            ours.setdefault("stream", "stream")
        return [(name, ours[name]) if name in ours else _aside(name) for name in names]


class Told:
    """By which name a column of the newest step was told. The same step under another name, in a summary say, does not
    take its place: it is a metric."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[float | None, dict[str, str]]] = {}
        """By stream: (the step, {column: name})"""

    def put_aside(self, point: Point, layouts: Layouts) -> bool:
        """Whether there was something of the kind, which is among the point's metrics now."""
        layout = next((layout for stream, layout in layouts if stream == point.stream), layouts[0][1])
        names = {column: name for name, column in layout if column in point.values}
        step, told = self._newest.get(point.stream, (None, {}))
        if step is None or point.step not in (None, step):
            self._newest[point.stream] = point.step, names
            return False
        others = [column for column, name in names.items() if told.setdefault(column, name) != name]
        for column in others:
            point.metrics[names[column]] = point.values.pop(column)
        return bool(others)

    def go_on(self, points: Points, layouts: Layouts) -> None:
        if points.step is not None:
            layout = next((layout for stream, layout in layouts if stream == points.stream), layouts[0][1])
            names = {column: name for name, column in layout if column in points.values}
            self._newest[points.stream] = float(points.step[-1]), names


def _stands_in(name: str, best: str) -> bool:
    """Whether a name tells a row's column where the better one is not in the row: no mean of an epoch does in place of
    a step's value, no optimizer's own number in place of that of all."""
    is_epoch_mean = "epoch" in words_of(name) and "epoch" not in words_of(best)
    return not is_epoch_mean and (stream_of(name) is None or stream_of(best) is not None)


def _streams(names: Iterable[str]) -> list[str]:
    """The optimizers whose norms stand side by side; none where there is a norm of all."""
    norms = [stream_of(name) for name in names if column_of(name) == NORM]
    streams = list(dict.fromkeys(stream for stream in norms if stream is not None))
    return streams if len(streams) > 1 and None not in norms else []


def _aside(name: str) -> tuple[str, str | None]:
    """A layer by its own name, which has a dot in it, so that `grad_norm_percentile` is none; else a metric."""
    layer = layer_of(name)
    return (name, None) if layer is None or "." not in layer else (layer, LAYER)


def whole_objects(text: str, at: int) -> tuple[list[dict[str, Any]], int]:
    """The JSON objects one behind the other from a place on, and where the first one begins that is cut or none."""
    decoder = json.JSONDecoder()
    found = []
    while text[at : at + 1] == "{":
        try:
            row, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(row)
        at = end
        while text[at : at + 1] in (",", " ", "\n", "\r", "\t") and at < len(text):
            at += 1
    return found, at


def items_of(line: int, layouts: Layouts, cells: Collection[object]) -> Iterator[Item]:
    """A row as a point of each stream, and what of it is no number. A row that says nothing of a step is none."""
    for stream, layout in layouts:
        yield from _of_stream(Point(line, None, stream=stream), layout, cells)


def _of_stream(point: Point, layout: Layout, cells: Iterable[object]) -> Iterator[Item]:
    for (name, column), cell in zip(layout, cells, strict=False):
        if cell is None or cell == "" or column == OF_ANOTHER:
            continue
        if type(cell) is float or type(cell) is int:
            value: float | None = float(cell) if abs(cell) < 1e300 else number(cell)
        elif column in TEXTS or column == "stream":
            _put_text(point, str(column), cell)
            continue
        else:
            value = number(cell)
            if value is None and column == "step" and isinstance(cell, str):
                value = number(cell.partition("/")[0])  # `10/100`
        if value is None:
            if column is not None and is_recorded(cell):
                shown = repr(cell)
                yield Unread(
                    point.line, f"{name} must be a number, got {shown if len(shown) <= 60 else shown[:57] + '…'}"
                )
        elif column is None:
            point.metrics[name] = value
        elif column == LAYER:
            point.layer_norms[name] = value
        elif column in KEYS:
            _put_key(point, column, value)
        else:
            point.values[column] = value
    if point.values or point.metrics or point.layer_norms:
        yield point


def point_of(items: Iterable[Item]) -> Point | None:
    """The point of a row of which there is nothing else to say."""
    found = list(items)
    return found[0] if len(found) == 1 and isinstance(found[0], Point) else None


def _put_text(point: Point, column: str, cell: object) -> None:
    text = cell.strip() if isinstance(cell, str) and is_recorded(cell) else ""
    if not text:
        return
    if column == "stream":
        point.stream = text[:256]
    elif column == "skip_reason" and text in wire.SKIP_REASONS:
        point.skip_reason = text
    elif column == "first_nonfinite_layer":
        point.first_nonfinite_layer = text[:1024]


def _put_key(point: Point, column: str, value: float) -> None:
    if column == "step":
        point.step = value
    elif column == "epoch":
        point.epoch = value
    elif column == "wall_time_s":
        point.wall_time_s = value
    elif column == "rank" and 0 <= value < 2**31:
        point.rank = int(value)
