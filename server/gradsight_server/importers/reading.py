"""From a path to items: which files are logs, in which format each is, and what each says, item by item."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gradsight_server.errors import NothingToReadError
from gradsight_server.importers import mapped, own
from gradsight_server.importers.format import FileFormat, Format, LineFormat, Options
from gradsight_server.importers.formats import key_value
from gradsight_server.importers.formats.csv_table import column_names
from gradsight_server.importers.items import Item, Unread
from gradsight_server.importers.lines import LineSource
from gradsight_server.importers.names import column_of
from gradsight_server.importers.opening import DAMAGE, open_log, read_head
from gradsight_server.importers.registry import (
    HEAD_BYTES,
    format_named,
    is_of_several_steps,
    recognise,
    sample_lines,
    stands_in,
)

MAX_FILES = 1_000
"""Of a folder so many files are looked at."""
NO_LOGS = frozenset({
    ".py", ".pyi", ".ipynb", ".sh", ".bash", ".zsh", ".ps1", ".bat", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp",
    ".js", ".mjs", ".ts", ".rs", ".go", ".java", ".lua", ".jl", ".r", ".md", ".rst", ".tex", ".html", ".htm", ".css",
    ".svg", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".lock", ".slurm", ".sbatch", ".diff", ".patch",
})  # fmt: skip
"""Source, prose and configuration lie beside logs and speak of norms, too; who names such a file has it read."""
MAX_NAMES = 8
NO_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Source:
    """A log: a file or folder, and the format it is in; None for an export of ours."""

    path: Path
    format: Format | None
    name: str
    """What a person calls it: its path."""
    identity: str | None = None
    """What it is known by when it comes again; None: by its path, see `sending.identity_of`."""


def sources_of(
    path: Path, format_name: str | None = None, name: str | None = None, options: Options = NO_OPTIONS
) -> list[Source]:
    """The logs at a path: the file, the folder as one log, or each log in the folder.

    Args:
        format_name: The format a person names; None or "auto" finds out.
        name: What a person calls the log, where not by its path.
        options: Columns a person names may make a log of what would not look like one.

    Raises:
        NothingToReadError: there is none; says what there is instead.
        SettingsError: there is no such format.
    """
    given = None if format_name in (None, "auto") else format_named(str(format_name))
    name = name or str(path)
    if not path.exists():
        raise NothingToReadError(f"there is no file {name!r}.")
    if given is not None:
        if path.is_dir() and isinstance(given, LineFormat):
            raise NothingToReadError(f"{name!r} is a folder; name a file in it.")
        if path.is_file():
            _check_columns(path, name, given, options)
        if options.columns and isinstance(given, LineFormat):
            given = mapped.with_columns(given, options, sample_lines(path))
        return [Source(path, given, name)]
    if not path.is_dir():
        return [_of_file(path, name, options)]
    if (found := recognise(path)) is not None:
        return [Source(path, found, name)]
    sources = list(_in_folder(path))
    if not sources:
        raise NothingToReadError(f"{name!r} is a folder without a training log in it.")
    return sources


def _of_file(path: Path, name: str, options: Options) -> Source:
    head = read_head(path, HEAD_BYTES)
    if own.recognise(path, head):
        return Source(path, None, name)
    if not head.strip():
        raise NothingToReadError(f"{name!r} is empty.")
    found = recognise(path)
    if options.columns and all(theirs.isdecimal() for _, theirs in options.columns):
        found = found if isinstance(found, FileFormat) else format_named("csv_table")
    elif options.columns and (found is None or isinstance(found, LineFormat)):
        found = mapped.with_columns(found, options, sample_lines(path))
    if found is None:
        raise NothingToReadError(_refusal(path, name, head))
    _check_columns(path, name, found, options)
    return Source(path, found, name)


def _refusal(path: Path, name: str, head: bytes) -> str:
    if _is_binary(head):
        return f"{name!r} is no text, and no file of a kind that is known here."
    return f"{name!r}: no gradient norm or loss scale found; {_found(filter(_is_shown, _names_in(path)))}."


def _names_in(path: Path) -> list[str]:
    """What has a number in a text."""
    names: dict[str, None] = {}
    bare: Counter[str] = Counter()
    lines = [line[:4096] for line in sample_lines(path)[:20_000] if line.strip()]
    for line in lines:
        names.update(dict.fromkeys(key_value.pairs_of(line)))
        bare.update(key_value.bare_names(line))
        if len(names) > 100:
            break
    # In prose, too, a word stands before a number now and then.
    return list(dict.fromkeys([*names, *(name for name, num in bare.items() if num > max(1, len(lines) // 3))]))


def _found(names: Iterable[str]) -> str:
    names = list(names)
    shown = ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")
    return f"found: {shown}" if shown else "and no named numbers at all"


def _check_columns(path: Path, name: str, found: Format, options: Options) -> None:
    """
    Raises:
        NothingToReadError: a column that a person names stands nowhere in the text.
    """
    asked = [theirs for _, theirs in options.columns if not theirs.isdecimal()]  # `1` is a column's place
    if not asked or _is_binary(read_head(path, HEAD_BYTES)):
        return
    missing = [theirs for theirs in asked if not stands_in(path, _spelled(theirs))]
    if missing:
        names = column_names(path) if found.name == "csv_table" else []
        raise NothingToReadError(f"{name!r}: no column {missing[0]!r}; {_found(names or _names_in(path))}.")


def _spelled(name: str) -> re.Pattern[str]:
    """As it stands in a text: of objects in objects the innermost name alone."""
    return re.compile(rf"(?<!\w)(?:{re.escape(name)}|{re.escape(name.rpartition('/')[2])})(?!\w)")


def _is_shown(name: str) -> bool:
    return len(name) <= 40 and column_of(name) not in ("step", "epoch", "rank", "wall_time_s")


def _is_binary(head: bytes) -> bool:
    """Whether a file's beginning has many bytes that no text has."""
    part = head[:4096]
    odd = sum(1 for octet in part if octet < 9 or 13 < octet < 27 or 27 < octet < 32)
    return odd > 0.1 * len(part) and not part.startswith((b"\xff\xfe", b"\xfe\xff"))


def _in_folder(folder: Path) -> Iterator[Source]:
    """Each folder that is one log, and each file that is one, in the order of their names."""
    num_files = 0
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            entries = sorted(entry for entry in here.iterdir() if not entry.name.startswith("."))
        except OSError:
            continue
        folders = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
        for entry in entries:
            if not entry.is_file() or entry.suffix.lower() in NO_LOGS:
                continue
            num_files += 1
            if num_files > MAX_FILES:
                return
            if (found := _recognised(entry)) is not None:
                yield found
        for entry in reversed(folders):
            if (found := _recognised(entry)) is not None:
                yield found
            else:
                waiting.append(entry)


def _recognised(path: Path) -> Source | None:
    try:
        if not path.is_dir() and own.recognise(path, read_head(path, HEAD_BYTES)):
            return Source(path, None, str(path))
        found = recognise(path)
    except (NothingToReadError, OSError):
        return None
    if found is None or (path.is_file() and not is_of_several_steps(path, found)):
        return None
    return Source(path, found, str(path))


def items_of(source: Source, options: Options) -> Iterator[Item]:
    """What a log says. Where it is cut or damaged, what comes before, and an `Unread`.

    Raises:
        NothingToReadError
    """
    match source.format:
        case LineFormat():
            yield from _items_of_lines(source.path, source.format, options)
        case FileFormat():
            try:
                yield from source.format.read(source.path, options)
            except DAMAGE as error:
                yield Unread(
                    0, f"the file is cut or damaged ({error or type(error).__name__}); what comes before is read"
                )


def _items_of_lines(path: Path, log_format: LineFormat, options: Options) -> Iterator[Item]:
    with open_log(path) as file:
        source = LineSource(file, _filter(log_format), _has_any(log_format.words))
        yield from source.all_of(log_format.read(source, options))


def _filter(log_format: LineFormat) -> Callable[[str], object] | None:
    """Which lines a format is given."""
    if not log_format.only_matching:
        return None
    given = log_format.pattern.search
    if log_format.also is None:
        return given
    also = log_format.also.search
    return lambda line: given(line) or also(line)


def _has_any(words: tuple[str, ...]) -> Callable[[str], bool] | None:
    """Whether a text has one of the words."""

    def has_any(text: str) -> bool:
        for word in words:  # `any` over a generator takes twice as long, and this is asked of each line  # noqa: SIM110
            if word in text:
                return True
        return False

    return has_any if words else None
