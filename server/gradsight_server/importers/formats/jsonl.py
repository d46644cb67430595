"""JSON lines, a JSON array of objects, or a JSON object of lists: a table whose names tell what they are.

Objects in objects are one name: `{"train": {"grad_norm": 1}}` is `train/grad_norm`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import FileFormat, Options
from gradsight_server.importers.formats._order import oldest_first
from gradsight_server.importers.formats._tables import Columns, Told, items_of, point_of, whole_objects
from gradsight_server.importers.items import Item, Point, Unread
from gradsight_server.importers.lines import LineSource
from gradsight_server.importers.opening import decoded, open_log, read_head, read_whole

MAX_DEPTH = 3
_BEGIN = re.compile(r"\s*(?:\{\s*[\"}]|\[\s*(?:\[\s*)?[{\]\"])")
"""Not `{'loss': …}`, which is Python, nor `[2024-01-01 …]`."""

_decode = msgspec.json.Decoder().decode


def recognise(path: Path, head: bytes) -> bool:
    return not path.is_dir() and _BEGIN.match(decoded(head[:4096])) is not None


def read(path: Path, options: Options) -> Iterator[Item]:
    first = decoded(read_head(path, 4096)).lstrip()
    if first[:1] == "[" or first.partition("\n")[0].rstrip() == "{":
        yield from _of_document(path, options)
    else:
        yield from oldest_first(_of_lines(path, options))


def _of_lines(path: Path, options: Options) -> Iterator[Item]:
    with open_log(path) as file:
        source = LineSource(file)
        yield from source.all_of(_of_source(path, source, options))


def _of_source(path: Path, source: LineSource, options: Options) -> Iterator[Item]:
    columns, told = Columns(options), Told()
    num_rows = 0
    alike = Alike(source, lambda line, text: _only_point(line, text, columns), is_json=True)
    for line, text in source:
        if not text or text.isspace():
            continue
        row = _object(text)
        if row is None:
            yield Unread(line, "no JSON object")
            continue
        num_rows += 1
        num_choices = columns.num_choices
        is_told_again = False
        for part in map(_flattened, _parts(row)):
            for item in _items(line, part, columns):
                if isinstance(item, Point) and told.put_aside(item, columns.layouts(tuple(part))):
                    is_told_again = True
                yield item
        if columns.num_choices != num_choices:
            alike.forget()
        if is_told_again:
            continue
        for points in alike.after(text):
            num_rows += len(points)
            told.go_on(points, columns.layouts(tuple(part)))
            yield points
    if not num_rows:
        raise NothingToReadError(f"{str(path)!r} has no line that is a JSON object.")


def _only_point(line: int, text: str, columns: Columns) -> Point | None:
    """Where there is nothing else in a line."""
    row = _object(text)
    parts = [] if row is None else _parts(row)
    return point_of(_items(line, _flattened(parts[0]), columns)) if len(parts) == 1 else None


def _object(text: str) -> dict[str, Any] | None:
    try:
        row = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            row = json.loads(text)  # which knows a literal NaN
        except (ValueError, RecursionError):
            return None
    if isinstance(row, list) and len(row) == 1:
        row = row[0]
    return row if isinstance(row, dict) else None


def _parts(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The row itself; of a document on one line, the rows in it."""
    lists = [value for value in row.values() if type(value) is list and len(value) > 1]
    is_document = any(type(values[0]) is dict for values in lists) or (len(lists) > 1 and len(lists) == len(row))
    return _rows(row) if is_document else [row]


def _flattened(row: dict[str, Any]) -> dict[str, Any]:
    return dict(_flat(row, "", 0)) if any(type(value) is dict for value in row.values()) else row


def _items(line: int, row: dict[str, Any], columns: Columns) -> Iterator[Item]:
    yield from items_of(line, columns.layouts(tuple(row)), row.values())


def _flat(row: dict[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if type(value) is dict:
            if depth < MAX_DEPTH:
                yield from _flat(value, f"{prefix}{name}/", depth + 1)
        else:
            yield f"{prefix}{name}", value


def _of_document(path: Path, options: Options) -> Iterator[Item]:
    """One JSON value: rows, an object with rows in it, or lists by name."""
    text = decoded(read_whole(path))
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield from _of_cut_document(path, text, options, error)
        return
    rows = _rows(document)
    if not rows:
        raise NothingToReadError(f"{str(path)!r} has no objects in its JSON.")
    yield from _of_rows(rows, options)


def _of_rows(rows: list[dict[str, Any]], options: Options) -> Iterator[Item]:
    columns, told = Columns(options), Told()
    for number, row in enumerate(map(_flattened, rows), 1):
        for item in _items(number, row, columns):
            if isinstance(item, Point):
                told.put_aside(item, columns.layouts(tuple(row)))
            yield item


def _rows(document: Any) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [row for row in document if isinstance(row, dict)]
    if not isinstance(document, dict):
        return []
    lists = {name: values for name, values in document.items() if isinstance(values, list) and values}
    of_rows = [values for values in lists.values() if isinstance(values[0], dict)]
    if of_rows:
        return [row for row in max(of_rows, key=len) if isinstance(row, dict)]
    if not lists:
        return [document]
    longest = max(map(len, lists.values()))
    return [{name: values[i] for name, values in lists.items() if i < len(values)} for i in range(longest)]


def _of_cut_document(path: Path, text: str, options: Options, error: Exception) -> Iterator[Item]:
    """The whole objects of an array that breaks off, or of objects one behind the other."""
    rows, at = whole_objects(text, max(text.find("{"), 0))
    if not rows:
        raise NothingToReadError(f"{str(path)!r} is no whole JSON: {error}.")
    yield from _of_rows(rows, options)
    if text[at:].strip(" \r\n\t]"):
        yield Unread(text.count("\n", 0, at) + 1, f"the JSON breaks off: {error}")


FORMAT = FileFormat(
    name="jsonl",
    title="JSON lines, or JSON with a table in it",
    source="any program; names are told by importers/names.py, or --map",
    recognise=recognise,
    read=read,
)
