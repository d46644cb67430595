"""A tool's own format with the columns that a person names (`--map norm=my_gn`) in place of those it knows itself."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.formats import key_value
from gradsight_server.importers.items import Item, Point
from gradsight_server.importers.numbers import number

MAX_LATE = 64
"""A point may come so many lines after its own."""


def with_columns(found: LineFormat | None, options: Options, sample: list[str]) -> LineFormat:
    """The format where its points have the columns on their own lines in the sample; else any line that has them."""
    if found is not None and found.name != key_value.FORMAT.name:
        mapped = replace(found, read=lambda lines, options: _read(found, lines, options))
        numbered = [(at, line) for at, line in enumerate(sample, 1) if _is_given(found, line)]
        points = [item for item in mapped.read(numbered, options) if isinstance(item, Point)]
        if all(any(_has(point, ours) for point in points) for ours, _ in options.columns):
            return mapped
    return key_value.with_columns(options)


def _is_given(found: LineFormat, line: str) -> bool:
    also = found.also is not None and found.also.search(line) is not None
    return not found.only_matching or also or found.pattern.search(line) is not None


def _has(point: Point, column: str) -> bool:
    return (getattr(point, column) is not None) if column in key_value.KEYS else column in point.values


def _read(found: LineFormat, lines: Lines, options: Options) -> Iterator[Item]:
    columns = [(ours, key_value.named(theirs)) for ours, theirs in options.columns]
    newest: deque[tuple[int, str]] = deque(maxlen=MAX_LATE)

    def remembered() -> Iterator[tuple[int, str]]:
        for numbered in lines:
            newest.append(numbered)
            yield numbered

    for item in found.read(remembered(), options):
        if isinstance(item, Point):
            line = next((line for at, line in reversed(newest) if at == item.line), "")
            for ours, pattern in columns:
                _put(item, ours, pattern.search(line))
        yield item


def _put(point: Point, ours: str, match: re.Match[str] | None) -> None:
    """In place of what the tool's format took for this column, be there something or not."""
    value = None if match is None else number(match[1])
    if ours in key_value.KEYS:
        if value is not None or ours != "rank":
            setattr(point, ours, int(value) if ours == "rank" and value is not None else value)
    elif value is None:
        point.values.pop(ours, None)
    else:
        point.values[ours] = value
