"""Which format a log is in: told by its content; a format is found by lying in `formats/`."""

import io
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from pkgutil import iter_modules

from gradsight_server.errors import NothingToReadError, SettingsError
from gradsight_server.importers import formats
from gradsight_server.importers.format import FileFormat, Format, LineFormat, Options
from gradsight_server.importers.items import OF_GRADIENTS, Item, Point, Points
from gradsight_server.importers.lines import LineSource
from gradsight_server.importers.opening import DAMAGE, is_packed, open_bytes, read_head, read_up_to

HEAD_BYTES = 2**18
WINDOW_BYTES = 2**16
NUM_WINDOWS = 24
"""How many more places of a large file are looked at where its head, middle and end have nothing."""
MAX_PACKED_BYTES = 2**23
"""A packed file cannot be looked into anywhere; so much of it is read through instead."""

GENERIC = ("jsonl", "csv_table")
"""Tables by their look, whichever tool wrote them: after the formats that name their tool."""
LAST = "key_value"
"""Takes any line with a norm or a scale, of configuration too…"""
LAST_SHARE = 0.1
"""…so that it wins only where others find hardly a line of theirs: at its weight of 0.2, one in fifty."""
NUM_TRIED = 500
"""So many rows of a table tell whether gradients are in it."""
SURE_WEIGHT = 0.5
"""A line format of less weight does not take a table from the generic formats."""


@cache
def known_formats() -> dict[str, Format]:
    """All formats by name, in the order of their names."""
    modules = sorted(found.name for found in iter_modules(formats.__path__) if not found.name.startswith("_"))
    found: list[Format] = [import_module(f"{formats.__name__}.{name}").FORMAT for name in modules]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}


def as_markdown() -> str:
    """The table of formats in docs/importers.md."""
    rows = [f"| `{one.name}` | {one.title} | {one.source.replace('|', '/')} |" for one in known_formats().values()]
    return "\n".join(["| `--format` | log | follows |", "|---|---|---|", *rows])


def format_named(name: str) -> Format:
    """
    Raises:
        SettingsError: lists the formats there are.
    """
    known = known_formats()
    if name not in known:
        raise SettingsError(f"--format must be auto or one of {', '.join(known)}; got {name!r}.")
    return known[name]


def recognise(path: Path) -> Format | None:
    """The format of a file or folder; None where nothing in it looks like a training log.

    Raises:
        NothingToReadError: it cannot be opened.
    """
    known = known_formats()
    head = read_head(path, HEAD_BYTES)
    of_files = [one for one in known.values() if isinstance(one, FileFormat)]
    for one in of_files:
        if one.name not in GENERIC and one.recognise(path, head):
            return one
    if path.is_dir():
        return None
    table = next((one for one in of_files if one.name in GENERIC and one.recognise(path, head)), None)
    by_lines = [one for one in known.values() if isinstance(one, LineFormat)]
    for sample in _samples(path, head):
        scores = {one.name: _score(one, sample) for one in by_lines}
        if LAST in scores:
            scores[LAST] *= LAST_SHARE
        best = max(by_lines, key=lambda one: scores[one.name], default=None)
        if best is not None and scores[best.name] > 0 and (table is None or best.weight >= SURE_WEIGHT):
            return best if best.name == LAST else _tried(best, _items_of(best, sample), known.get(LAST), sample)
        if table is not None:
            is_large_document = len(head) >= HEAD_BYTES and head.lstrip()[:1] == b"["
            return table if is_large_document else _tried(table, _first_items(table, path), known.get(LAST), sample)
    return None


def _tried(best: Format, items: Iterator[Item], last: Format | None, sample: list[str]) -> Format | None:
    """The best format; the fallback where only that finds gradients; None where the best finds nothing at all."""
    points = [item for item in items if isinstance(item, Point)]
    if any(map(_is_of_gradients, points)) or not isinstance(last, LineFormat):
        return best
    found = [item for item in _items_of(last, sample) if isinstance(item, Point) and _is_of_gradients(item)]
    num_steps = len({point.step for point in found} - {None})
    if num_steps > 1 or (found and 2 * len(found) >= len(points)):  # a printed configuration has a scale or two as well
        return last
    return best if points or isinstance(best, FileFormat) else None


def _is_of_gradients(point: Point) -> bool:
    return not OF_GRADIENTS.isdisjoint(point.values)


def is_of_several_steps(path: Path, found: Format) -> bool:
    """Whether more than a setting or a number in a sentence made a file look like a log of a general format."""
    if isinstance(found, LineFormat):
        points = [item for item in _items_of(found, sample_lines(path)) if isinstance(item, Point)]
        return found.name != LAST or sum(map(_is_of_gradients, points)) > 1
    if found.name not in GENERIC or path.stat().st_size > MAX_PACKED_BYTES:
        return True
    points = [item for item in _first_items(found, path) if isinstance(item, Point)]
    return len(points) > 1 or any(point.step is not None for point in points)


def _items_of(one: LineFormat, sample: list[str]) -> Iterator[Item]:
    """What a format reads in lines; their numbers count for nothing."""
    is_given = one.pattern.search
    also = one.also.search if one.also is not None else is_given
    lines = [(at, line) for at, line in enumerate(sample, 1) if not one.only_matching or is_given(line) or also(line)]
    return one.read(lines, Options())


def _first_items(table: FileFormat, path: Path) -> Iterator[Item]:
    try:
        items = (
            one for item in table.read(path, Options()) for one in (item.each() if isinstance(item, Points) else [item])
        )
        yield from islice(items, NUM_TRIED)
    except (NothingToReadError, *DAMAGE):
        return


def _score(one: LineFormat, lines: list[str]) -> float:
    found = one.pattern.search
    return one.weight * sum(1 for line in lines if found(line))


def sample_lines(path: Path) -> list[str]:
    """Lines of a file's head, middle and end.

    Raises:
        NothingToReadError
    """
    return next(_samples(path, read_head(path, HEAD_BYTES)))


def stands_in(path: Path, pattern: re.Pattern[str]) -> bool:
    """Whether a line of the head, the middle, the end, or many more places has it."""
    return any(pattern.search(line) for lines in _samples(path, read_head(path, HEAD_BYTES)) for line in lines)


def _samples(path: Path, head: bytes) -> Iterator[list[str]]:
    """Lines of the head, the middle and the end; then, if asked on, of many more places."""
    if len(head) < HEAD_BYTES:
        yield _lines(head)
        return
    if is_packed(path):
        yield _lines(head)
        with open_bytes(path) as file:
            yield _lines(read_up_to(file, MAX_PACKED_BYTES))
        return
    size = path.stat().st_size
    yield _lines(head) + _window(path, size // 2) + _window(path, max(size - WINDOW_BYTES, HEAD_BYTES))
    yield [line for i in range(NUM_WINDOWS) for line in _window(path, size * i // NUM_WINDOWS)]


def _window(path: Path, start: int) -> list[str]:
    with path.open("rb") as file:
        file.seek(start // 2 * 2)  # where UTF-16 has whole characters
        return _lines(file.read(WINDOW_BYTES))


def _lines(raw: bytes) -> list[str]:
    return [line for _, line in LineSource(io.BytesIO(raw))]
