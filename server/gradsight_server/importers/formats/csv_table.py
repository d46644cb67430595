"""CSV, TSV, or columns set apart by blanks: a table with names in its first line, whichever program wrote it."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import FileFormat, Options
from gradsight_server.importers.formats._order import oldest_first
from gradsight_server.importers.formats._tables import Columns, Layouts, items_of, point_of
from gradsight_server.importers.items import Item, Point, Restart, Unread
from gradsight_server.importers.lines import MAX_LINE, LineSource
from gradsight_server.importers.names import chosen
from gradsight_server.importers.numbers import is_recorded, number
from gradsight_server.importers.opening import decoded, open_log, read_head

DELIMITERS = (",", ";", "\t", "|")
BLANKS = "blanks"
OF_A_STEP = {"step", "loss", "grad_norm_before_clip", "loss_scale"}
_DIGITS = re.compile(r"[+-]?(?:\d[\d.,]*(?:e[+-]?\d+)?|\b(?:nan|inf)\b)", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+(?:[eE][+-]?\d+)?\s*")


def recognise(path: Path, head: bytes) -> bool:
    """Names in the first line, and in the lines after it as many cells, numbers among them."""
    if path.is_dir():
        return False
    lines = _first_lines(head)
    return bool(lines) and _delimiter(lines) is not None


def _first_lines(head: bytes) -> list[str]:
    """At most 50 lines with something in them, without comments; the last one may be cut, so it does not count."""
    lines = [line for line in decoded(head[: 2**18]).split("\n") if line.strip() and not line.startswith("##")]
    return lines[:50] if len(lines) > 50 or head.endswith(b"\n") or len(lines) < 3 else lines[:-1]


def _delimiter(lines: list[str]) -> str | None:
    """What sets the cells apart; None where this is no table."""
    head = lines[0].removeprefix("# ").strip("\r")
    found = max(DELIMITERS, key=head.count)
    if head.count(found) and _fits(lines, lambda line: next(csv.reader([line], delimiter=found), [])):
        return found
    is_named = {"grad_norm_before_clip", "loss_scale"} & chosen(head.split()).keys()
    return BLANKS if is_named and _fits(lines, str.split) else None


def _fits(lines: list[str], cells_of: Callable[[str], list[str]]) -> bool:
    try:
        rows = [cells_of(line.removeprefix("# ").strip("\r")) for line in lines]
    except csv.Error:
        return False
    names, others = rows[0], rows[1:]
    if len(names) < 2 or sum(1 for name in names if len(name) > 200 or "{" in name) > 0:
        return False
    whole = [row for row in others if len(row) == len(names) and any(number(cell) is not None for cell in row)]
    if _is_row(names, [row for row in others if len(row) == len(names)]):
        return False
    return len(whole) >= len(others) / 2 if others else bool(OF_A_STEP & chosen(names).keys())


def _is_row(names: list[str], others: list[list[str]]) -> bool:
    """Whether the first line is no header but a line like those after it: its words come again, or numbers stand in it.

    `step 1 loss 2.0` names each number beside it, in each line.
    """
    numbers = sum(1 for name in names if number(name) is not None)
    named = {i: cell for i, name in enumerate(names) if any(map(str.isalpha, cell := _DIGITS.sub("0", name.strip())))}
    rows = [row for row in others if row != names]  # a table may have its names again
    if not rows:
        return 0 < numbers < len(names) or any(":" in name or "=" in name for name in names)
    again = sum(1 for row in rows if any(_DIGITS.sub("0", row[i].strip()) == cell for i, cell in named.items()))
    return again > len(rows) / 2


def read(path: Path, options: Options) -> Iterator[Item]:
    lines = _first_lines(read_head(path, 2**18))
    if not lines:
        raise NothingToReadError(f"{str(path)!r} is empty.")
    delimiter = _delimiter(lines) or max((BLANKS, *DELIMITERS), key=lines[0].count)
    with open_log(path) as file:
        source = LineSource(file)
        yield from oldest_first(source.all_of(_items(path, _Rows(source, delimiter), options)))


def column_names(path: Path) -> list[str]:
    """The names in a table's first line."""
    lines = _first_lines(read_head(path, 2**18))
    delimiter = _delimiter(lines) if lines else None
    if delimiter is None:
        return []
    head = lines[0].strip("\r")
    return _names(head.split() if delimiter == BLANKS else next(csv.reader([head], delimiter=delimiter)))[0]


class _Rows:
    """The rows of a table, and the line each ends in."""

    def __init__(self, source: Iterable[tuple[int, str]], delimiter: str) -> None:
        self.source = source
        self.delimiter = delimiter
        self.line = 0
        self.text = ""
        """The last line of the row."""
        csv.field_size_limit(2 * MAX_LINE)  # csv's own is for the whole process, too; a line has ours already

    def __iter__(self) -> Iterator[list[str] | csv.Error]:
        if self.delimiter == BLANKS:
            yield from map(str.split, self._texts())
            return
        reader = csv.reader(self._texts(), delimiter=self.delimiter)
        while True:
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield error

    def _texts(self) -> Iterator[str]:
        for line, text in self.source:
            self.line, self.text = line, text
            yield text


def _items(path: Path, rows: _Rows, options: Options) -> Iterator[Item]:
    columns = Columns(options)
    layouts: Layouts = []
    names: list[str] = []
    num_rows = 0
    has_decimal_comma: bool | None = None if rows.delimiter == ";" else False
    alike = Alike(rows.source, lambda line, text: _point(line, text, rows.delimiter, layouts))
    for row in rows:
        if isinstance(row, csv.Error):
            yield Unread(rows.line, f"no CSV: {row}")
            continue
        if not any(map(str.strip, row)):
            continue
        if not names:
            names, is_numbers = _names(row)
            layouts = columns.layouts(tuple(names))
            _check_places(path, names, options)
            if not is_numbers:
                continue
        num_rows += 1
        if row[0].strip().removeprefix("# ") == names[0] and [cell.strip() for cell in row] == names:
            yield Restart(rows.line, "the table's names again")
            continue
        if len(row) != len(names):
            yield Unread(rows.line, f"{len(row)} cells where the table has {len(names)} columns")
            continue
        if has_decimal_comma is None and any(map(is_recorded, row)):
            has_decimal_comma = any(map(_DECIMAL_COMMA.fullmatch, row)) and not any("." in cell for cell in row)
        cells = [cell.replace(",", ".") for cell in row] if has_decimal_comma else row
        yield from items_of(rows.line, layouts, cells)
        if not has_decimal_comma:
            yield from alike.after(rows.text)
    if not num_rows:
        raise NothingToReadError(f"{str(path)!r} has no rows below its first line, {', '.join(names)[:80]!r}.")


def _check_places(path: Path, names: list[str], options: Options) -> None:
    """
    Raises:
        NothingToReadError: a person names a place that the table does not have.
    """
    wrong = [theirs for _, theirs in options.columns if theirs.isdecimal() and theirs not in names]
    if wrong:
        raise NothingToReadError(f"{str(path)!r}: no column {wrong[0]!r}; found: {', '.join(names[:8])}.")


def _point(line: int, text: str, delimiter: str, layouts: Layouts) -> Point | None:
    """Of a line that is a row, and no more than a point."""
    cells = text.split() if delimiter == BLANKS else text.split(delimiter)
    return point_of(items_of(line, layouts, cells)) if len(cells) == len(layouts[0][1]) and '"' not in text else None


def _names(row: list[str]) -> tuple[list[str], bool]:
    """The columns' names; of a table without, their places from 1 on, and that its first row is one already."""
    if all(number(cell) is not None for cell in row):
        return [str(i) for i in range(1, len(row) + 1)], True
    return [cell.strip().removeprefix("# ") for cell in row], False


FORMAT = FileFormat(
    name="csv_table",
    title="CSV, TSV, or a table set apart by blanks",
    source="any program (W&B history, Lightning's CSVLogger, OpenAI's progress.csv, …); names as in importers/names.py",
    recognise=recognise,
    read=read,
)
