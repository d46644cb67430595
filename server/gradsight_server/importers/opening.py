"""A log's bytes and text, whatever it is packed and encoded in: gzip, bzip2, xz, zip; UTF-8, UTF-16.

Nothing is held as a whole but by `read_whole`, which has a limit.
"""

import bz2
import codecs
import gzip
import io
import lzma
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from gradsight_server.errors import NothingToReadError

MAX_WHOLE_BYTES = 512 * 2**20
"""Of a file that must be read as a whole: a JSON document."""
DAMAGE = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, OSError)
"""What reading on raises in a packed file that is cut or damaged (gzip's own error is an OSError)."""

GZIP, BZIP2, XZ, ZIP, ZSTD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"PK\x03\x04", b"\x28\xb5\x2f\xfd"
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
PACKED_SUFFIXES = frozenset({".gz", ".bz2", ".xz", ".zip"})


def open_bytes(path: Path) -> BufferedIOBase:
    """The file's bytes, unpacked; of a zip archive its largest file.

    Raises:
        NothingToReadError: says why it cannot be read.
    """
    try:
        with path.open("rb") as raw:
            begin = raw.read(6)
        return _opener(path, begin)()
    except FileNotFoundError:
        raise NothingToReadError(f"there is no file {str(path)!r}.") from None
    except IsADirectoryError:
        raise NothingToReadError(f"{str(path)!r} is a folder; name a file in it.") from None
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise NothingToReadError(f"{str(path)!r} is damaged: {error}.") from None
    except OSError as error:
        raise NothingToReadError(f"{str(path)!r} cannot be read: {error.strerror or error}.") from None


def _opener(path: Path, begin: bytes) -> Callable[[], BufferedIOBase]:
    if begin.startswith(GZIP):
        return lambda: gzip.GzipFile(path)
    if begin.startswith(BZIP2):
        return lambda: bz2.BZ2File(path)
    if begin.startswith(XZ):
        return lambda: lzma.LZMAFile(path)
    if begin.startswith(ZIP):
        return lambda: _largest_in(path)
    if begin.startswith(ZSTD):
        raise NothingToReadError(f"{str(path)!r} is packed with zstd, which isn't read here: unpack it first.")
    return lambda: path.open("rb")


def _largest_in(path: Path) -> BufferedIOBase:
    with zipfile.ZipFile(path) as archive:  # the member keeps it open
        files = [member for member in archive.infolist() if not member.is_dir()]
        largest = max(files, key=lambda member: member.file_size, default=None)
        if largest is None:
            raise NothingToReadError(f"{str(path)!r} is a zip archive with no file in it.")
        if largest.flag_bits & 1:
            raise NothingToReadError(f"{str(path)!r} is a zip archive with a password.")
        return cast(BufferedIOBase, archive.open(largest))


_opened_otherwise: ContextVar[Callable[[Path], BufferedIOBase] | None] = ContextVar("opened_otherwise", default=None)


@contextmanager
def opening_otherwise(opened: Callable[[Path], BufferedIOBase]) -> Iterator[None]:
    """Has `open_log` call this: a log that is followed while it grows, or whose reading is counted."""
    token = _opened_otherwise.set(opened)
    try:
        yield
    finally:
        _opened_otherwise.reset(token)


def open_log(path: Path) -> BufferedIOBase:
    """The bytes of a log that is read once from its beginning to its end, unpacked.

    Raises:
        NothingToReadError
    """
    return (_opened_otherwise.get() or open_bytes)(path)


@contextmanager
def standard_input() -> Iterator[Path]:
    """What comes through a pipe, as a file: its format is told by looking at several places."""
    with tempfile.NamedTemporaryFile(prefix="gradsight-") as file:
        shutil.copyfileobj(sys.stdin.buffer, file, 2**20)
        file.flush()
        yield Path(file.name)


def is_packed(path: Path) -> bool:
    """Whether the file is compressed, so that it cannot be followed while it grows."""
    with path.open("rb") as raw:
        return raw.read(6).startswith((GZIP, BZIP2, XZ, ZIP))


def read_head(path: Path, num_bytes: int) -> bytes:
    """The first bytes, unpacked; empty for a folder, less than asked where it is damaged.

    Raises:
        NothingToReadError
    """
    if path.is_dir():
        return b""
    with open_bytes(path) as file:
        return read_up_to(file, num_bytes)


def read_up_to(file: BufferedIOBase, num_bytes: int) -> bytes:
    """So many bytes, or all there are, or all before the damage."""
    parts: list[bytes] = []
    left = num_bytes
    try:
        while left > 0 and (part := file.read1(min(left, 2**20))):
            parts.append(part)
            left -= len(part)
    except DAMAGE:
        pass
    return b"".join(parts)


def read_whole(path: Path, max_bytes: int = MAX_WHOLE_BYTES) -> bytes:
    """All of the file, unpacked; of one that is damaged what comes before.

    Raises:
        NothingToReadError: also where it is larger than that.
    """
    with open_bytes(path) as file:
        found = read_up_to(file, max_bytes + 1)
    if len(found) > max_bytes:
        raise NothingToReadError(
            f"{str(path)!r} is larger than {max_bytes >> 20} MiB, too large to be read as a whole."
        )
    return found


def decoded(raw: bytes) -> str:
    """A text in one of the encodings logs come in; what cannot be read is U+FFFD."""
    text = raw.decode(encoding_of(raw), errors="replace").removeprefix("\ufeff")
    return text.replace("\0", "")


def open_text(path: Path) -> TextIO:
    """The file as text with its line ends as they are; what cannot be decoded is U+FFFD. Not ending in a traceback
    where it is damaged is up to the caller: see DAMAGE.

    Raises:
        NothingToReadError
    """
    head = read_head(path, 4096)
    encoding = "utf-16" if head.startswith(tuple(_UTF16)) else encoding_of(head)  # which leaves the mark out
    file = cast(BinaryIO, open_bytes(path))
    return io.TextIOWrapper(file, "utf-8-sig" if encoding == "utf-8" else encoding, errors="replace", newline="")


def encoding_of(head: bytes) -> str:
    """By a mark at the beginning, or by where the NULs are."""
    for mark, encoding in _UTF16.items():
        if head.startswith(mark):
            return encoding
    parts = head[:4], head[:64], head[:4096]
    if all(_has_nuls(part[1::2]) and not _has_nuls(part[::2]) for part in parts):
        return "utf-16-le"
    is_big = all(_has_nuls(part[::2]) and not _has_nuls(part[1::2]) for part in parts)
    return "utf-16-be" if is_big else "utf-8"


def _has_nuls(octets: bytes) -> bool:
    """Whether these are the upper halves of a text that is mostly ASCII."""
    return octets.count(0) > 0.7 * len(octets)
