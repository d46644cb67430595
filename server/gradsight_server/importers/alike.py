"""Lines that differ in their numbers only: once one of them is understood, those after it are read as columns.

A log of a million steps has a handful of kinds of lines. What a format makes of one is found out by giving it the same
line with other numbers: each number comes out at its place in the point. From then on a regular expression takes the
numbers of all such lines that follow out of the text at once.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from gradsight_server.importers.format import Lines
from gradsight_server.importers.items import Floats, Point, Points
from gradsight_server.importers.lines import LineSource

LEAST = 8
"""Of fewer lines columns are slower than points."""
MAX_NUMBERS = 256
MAX_LINE = 16_384
MAX_SHAPES = 8
"""The kinds of lines seen last are remembered."""
MAX_PAUSE = 1_024
"""After a line that none like it followed, so many are left alone at most before the next is looked at."""

_FLOAT = r"-?[0-9]{1,20}+(?:\.[0-9]{0,24}+(?:[eE][+-]?[0-9]{1,2}+)?+|[eE][+-]?[0-9]{1,2}+)"
_COUNT = r"[0-9]{1,15}+"
_NO_JSON = r"(?!-?0[0-9]|-?[0-9]+\.(?![0-9]))"
_NUMBER = re.compile(rf"(?<![\w.])(?:({_FLOAT})|{_COUNT})")
_decode = msgspec.json.Decoder(list[float]).decode


class Alike:
    """Reads on in columns.

    Args:
        lines: What the format is given; where that is no file, nothing is read on.
        point_of: The point of a line, from its text alone: what numbers it has may not depend on how large they are.
            None where there is more to a line than that.
        is_json: Numbers are spelled as JSON has them, so not `007`.
    """

    def __init__(self, lines: Lines, point_of: Callable[[int, str], Point | None], *, is_json: bool = False) -> None:
        self._source = lines if isinstance(lines, LineSource) else None
        self._point_of = point_of
        self._spelling = _NO_JSON if is_json else ""
        self._shapes: list[_Shape] = []
        self._pause = self._num_paused = 0
        self.last_line = ""
        """Of those that were read on."""

    def forget(self) -> None:
        """What is known of lines holds no more: the format would make other points of them now."""
        self._shapes.clear()

    def after(self, line: str) -> Iterator[Points]:
        """The points of the lines that follow the one given last, which is this one, as long as they are alike."""
        if self._source is None:
            return
        for shape in self._shapes:
            if shape.lines.fullmatch(line + "\n"):
                self._shapes.remove(shape)
                self._shapes.insert(0, shape)
                yield from self._read_on(shape, self._source)
                return
        if self._num_paused < self._pause:
            self._num_paused += 1
            return
        found = _learnt(line, self._point_of, self._spelling)
        points = None if found is None else next(self._read_on(found, self._source), None)
        self._num_paused = 0
        if found is None or points is None:
            self._pause = min(2 * self._pause + 1, MAX_PAUSE)
            return
        self._pause //= 2
        self._shapes = [found, *self._shapes[: MAX_SHAPES - 1]]
        yield points

    def _read_on(self, shape: "_Shape", source: LineSource) -> Iterator[Points]:
        first = source.num_lines + 1
        num, text = source.take(shape.lines, LEAST)
        if num:
            self.last_line = text[text.rfind("\n", 0, -1) + 1 : -1]
            yield shape.points(first, num, text)


@dataclass(frozen=True, slots=True)
class _Shape:
    """One kind of lines."""

    lines: re.Pattern[str]
    """Any number of them."""
    numbers: re.Pattern[str]
    """Of one, those that the point has."""
    places: dict[tuple[str, str], int]
    """(what of the point, its name among values or metrics): place among the numbers"""
    point: Point
    """What does not change from line to line."""

    def points(self, first: int, num: int, text: str) -> Points:
        width = self.numbers.groups
        found = self.numbers.split(text)  # what is between two lines, then the numbers of one
        columns = [_floats(found[place + 1 :: width + 1]) for place in range(width)]
        step = self._column("step", "", columns)
        return Points(
            np.arange(first, first + num),
            step if step is None or isinstance(self.point.step, float) else step.astype(np.int64),
            self._named("values", self.point.values, columns),
            self._named("metrics", self.point.metrics, columns),
            self.point.stream,
            self.point.rank,
            self._column("epoch", "", columns),
            self._column("wall_time_s", "", columns),
        )

    def _column(self, what: str, name: str, columns: list[Floats]) -> Floats | None:
        place = self.places.get((what, name))
        return None if place is None else columns[place]

    def _named(self, what: str, values: dict[str, float], columns: list[Floats]) -> dict[str, Floats]:
        found = ((name, value, self._column(what, name, columns)) for name, value in values.items())
        return {name: np.full(len(columns[0]), value) if column is None else column for name, value, column in found}


def _floats(texts: list[str]) -> Floats:
    try:
        return np.array(_decode("[" + ",".join(texts) + "]"))
    except msgspec.DecodeError:  # JSON has no `007` and no `1.`
        return np.array(list(map(float, texts)))


def _learnt(line: str, point_of: Callable[[int, str], Point | None], spelling: str) -> _Shape | None:
    """None where the line makes no point, or one with something else in it than the line's numbers."""
    if len(line) > MAX_LINE:
        return None
    matches = list(_NUMBER.finditer(line))
    point = point_of(0, line) if 0 < len(matches) <= MAX_NUMBERS else None
    if point is None:
        return None
    others = [f"{1009 + 7 * i}.25" if match[1] else f"{1009 + 7 * i}" for i, match in enumerate(matches)]
    between = _between(line, matches)
    changed = point_of(0, "".join(part for pair in zip(between, [*others, ""], strict=True) for part in pair))
    place_of = {float(other): place for place, other in enumerate(others)}
    was, now = _numbers_of(point), {} if changed is None else _numbers_of(changed)
    places = {
        field: place
        for field, value in now.items()
        if (place := place_of.get(value)) is not None and was.get(field) == float(matches[place][0])
    }
    left = (field for field in was.keys() | now.keys() if field not in places)
    if any(was.get(field) != now.get(field) or not field[1] for field in left):
        return None
    if changed is None or not places or not _is_else_alike(point, changed):
        return None
    wanted = sorted(set(places.values()))
    patterns = [spelling + (_FLOAT if match[1] else _COUNT) for match in matches]
    texts = list(map(re.escape, between))
    one = "".join(map("".join, zip(texts, [*patterns, r"\n"], strict=True)))
    captured = [f"({pattern})" if i in wanted else pattern for i, pattern in enumerate(patterns)]
    return _Shape(
        re.compile(f"(?:{one})*+"),
        re.compile("".join(map("".join, zip(texts, [*captured, r"\n"], strict=True)))),
        {field: wanted.index(place) for field, place in places.items()},
        point,
    )


def _between(line: str, matches: list[re.Match[str]]) -> list[str]:
    starts, ends = [match.start() for match in matches], [match.end() for match in matches]
    return [line[end:start] for end, start in zip([0, *ends], [*starts, len(line)], strict=True)]


def _numbers_of(point: Point) -> dict[tuple[str, str], float]:
    places = {"step": point.step, "epoch": point.epoch, "wall_time_s": point.wall_time_s}
    return (
        {(what, ""): value for what, value in places.items() if value is not None}
        | {("values", name): value for name, value in point.values.items()}
        | {("metrics", name): value for name, value in point.metrics.items()}
    )


def _is_else_alike(point: Point, changed: Point) -> bool:
    """Whether two points differ in their numbers at most."""
    bare = replace(point, step=None, values={}, metrics={}, epoch=None, wall_time_s=None)
    return bare == replace(changed, step=None, values={}, metrics={}, epoch=None, wall_time_s=None) and not (
        point.layer_norms or point.skip_reason or point.first_nonfinite_layer
    )
