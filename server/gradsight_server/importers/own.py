"""Our own exports: read back as the messages that brought the run here, to be sent again as they are.

Unlike other logs these give no items: nothing in them is to be worked out. JSON lines bring everything back; CSV and
Parquet bring what a table of steps holds, Parquet with the run's record and layer norms.
"""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from gradsight.errors import WireError
from gradsight_server.errors import NothingToReadError
from gradsight_server.exports import lines
from gradsight_server.exports.lines import BatchLine, EndLine, RunLine
from gradsight_server.exports.table import KEY
from gradsight_server.importers import own_tables
from gradsight_server.importers.own_tables import Opened

Message = RunLine | BatchLine
"""To be sent in order: a RunLine as PUT of its record (and PATCH of its notes), a BatchLine as POST to its stream, of
the run that the RunLine before it names."""

GZIP = b"\x1f\x8b"
PARQUET = b"PAR1"
JSON_LINES = b'{"kind":"gradsight_run",'
CSV = ",".join(KEY).encode() + b","


def recognise(path: Path, head: bytes) -> bool:
    """Whether a file is an export of ours, by its first bytes, decompressed; of Parquet also by its metadata."""
    if head.startswith(PARQUET):
        return own_tables.is_own_parquet(path)
    return head.removeprefix(b"\xef\xbb\xbf").startswith((JSON_LINES, CSV))


def messages(path: Path) -> Iterator[Message]:
    """What to send, in order. A file may hold several runs, one behind the other.

    Raises:
        NothingToReadError: the file is damaged, or ends before its end; what came before has been given by then.
    """
    if _first_bytes(path).startswith(PARQUET):
        yield from own_tables.of_parquet(path)
        return
    with _opened(path) as file:
        begin = file.peek(len(JSON_LINES))[: len(JSON_LINES)]
        read: Callable[[Path, Opened], Iterator[Message]]
        read = _of_json_lines if begin.startswith(JSON_LINES) else own_tables.of_csv
        try:
            yield from read(path, file)
        except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
            raise NothingToReadError(f"{path} is damaged: {error}.") from error


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _opened(path: Path) -> Opened:
    return gzip.open(path) if _first_bytes(path).startswith(GZIP) else path.open("rb")


def _of_json_lines(path: Path, file: Opened) -> Iterator[Message]:
    is_whole = False
    for number, text in enumerate(file, 1):
        try:
            line = lines.decode(text)
        except (msgspec.DecodeError, WireError) as error:
            if not text.endswith(b"\n"):
                break
            raise NothingToReadError(f"{path}:{number} is no line of an export: {error}.") from error
        if isinstance(line, EndLine):
            is_whole = True
        else:
            is_whole = False
            yield line
    if not is_whole:
        raise NothingToReadError(f"{path} ends before its end: the export was cut off, so steps may be missing.")
