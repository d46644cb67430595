"""The rows of a JSON-lines or CSV file: names and cells as they stand there, with what could not be read counted."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from gradsight_server.errors import NothingToReadError

Row = dict[str, Any]
DELIMITERS = ",;\t"
MAX_CELL = 2**20


def read_rows(path: Path) -> tuple[list[Row], list[str]]:
    """Rows in the order of the file, and a sentence for what of it is broken.

    Raises:
        NothingToReadError: no such file, or nothing in it that is a row.
    """
    text = _text(path)
    first = text.lstrip()[:1]
    if first == "":
        raise NothingToReadError(f"{str(path)!r} is empty.")
    if first == "[":
        return _of_array(path, text), []
    if first == "{":
        return _of_lines(path, text)
    return _of_csv(path, text), []


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise NothingToReadError(f"there is no file {str(path)!r}.") from None
    except IsADirectoryError:
        raise NothingToReadError(f"{str(path)!r} is a folder; name a file in it.") from None
    except OSError as error:
        raise NothingToReadError(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise NothingToReadError(f"{str(path)!r} is no text; it must be JSON lines or CSV in UTF-8.")
    return text


def _of_lines(path: Path, text: str) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    broken: list[int] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        row = _object(line)
        if row is None:
            broken.append(number)
        else:
            rows.append(row)
    if not rows:
        raise NothingToReadError(f"{str(path)!r} has no line that is a JSON object; it must be JSON lines or CSV.")
    if not broken:
        return rows, []
    return rows, [
        f"{len(broken)} of {len(rows) + len(broken)} lines are no JSON objects, the first is line {broken[0]}."
    ]


def _object(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _of_array(path: Path, text: str) -> list[Row]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NothingToReadError(f"{str(path)!r} is no whole JSON: {error}.") from None
    rows = [row for row in rows if isinstance(row, dict)]
    if not rows:
        raise NothingToReadError(f"{str(path)!r} has no objects in its JSON array.")
    return rows


def _of_csv(path: Path, text: str) -> list[Row]:
    head = text.lstrip("\r\n").partition("\n")[0]
    delimiter = max(DELIMITERS, key=head.count)
    csv.field_size_limit(MAX_CELL)
    try:
        rows = list(csv.reader(io.StringIO(text.lstrip("\r\n"), newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise NothingToReadError(f"{str(path)!r} is no CSV: {error}.") from None
    names = [name.strip() for name in rows[0]]
    found = [dict(zip(names, cells, strict=False)) for cells in rows[1:] if any(cell.strip() for cell in cells)]
    if not found:
        raise NothingToReadError(f"{str(path)!r} has no rows below its first line, {head.strip()[:80]!r}.")
    return found
