"""The seam between the formats and everything else: a format is one file with one `FORMAT` in it."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gradsight_server.importers.items import Item

Lines = Iterable[tuple[int, str]]
"""(line number from 1, the line without its end). ANSI colours are gone, of a carriage-return progress bar each state
is a line of its own, undecodable bytes are U+FFFD. Never held in memory as a whole; under `--watch` it waits."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the person at the command line said."""

    columns: tuple[tuple[str, str], ...] = ()
    """`--map norm=my_col,step=it` as ((our name, the log's name), …)."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """A log of lines, recognised by what its lines look like.

    Args:
        name: One lower-case word, as in `--format megatron`.
        title: What a person calls it: "Megatron-LM console".
        source: The tool, its version, and the file whose print statement it follows.
        pattern: Found (by `search`) in each line that holds a point, and in as few others as can be. Must be fast: it
            also keeps all other lines from the reader where `only_matching` says so.
        read: Gives the items, in order, as the lines come.
        weight: Among several formats whose pattern is found, the largest number of found lines times weight wins: 1.0
            for a pattern that only this tool prints, less for a general one (0.2 for any `key: value`).
        only_matching: Lines in which neither `pattern` nor `also` is found are not given to `read`.
        also: Found in lines without a point that matter all the same: configuration, banners, warnings.
        words: Lines without any of them are passed over quickly: worth it where `pattern` does not begin with a plain
            word. Empty where nothing of the kind holds.
    """

    name: str
    title: str
    source: str
    pattern: re.Pattern[str]
    read: Callable[[Lines, Options], Iterator[Item]]
    weight: float = 1.0
    only_matching: bool = True
    also: re.Pattern[str] | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A file or folder that is no sequence of lines: a JSON document, an event file, a table with a header.

    Args:
        recognise: Whether this path is one, from its first bytes (decompressed; empty for a folder) and, for a folder,
            what is in it. Never by the name alone.
        read: Gives the items.
    """

    name: str
    title: str
    source: str
    recognise: Callable[[Path, bytes], bool]
    read: Callable[[Path, Options], Iterator[Item]]


Format = LineFormat | FileFormat
