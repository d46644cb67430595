"""The file format of the spool: frames of mark, length, CRC-32 and message, read back whole or not at all."""

import struct
import zlib
from pathlib import Path
from typing import IO, Literal, NamedTuple

import msgspec

_HEADER = struct.Struct("<4sII")
_MARK = b"GSF1"


class Frame(msgspec.Struct, array_like=True):
    """One message to the server: a run's record, or a batch."""

    kind: Literal["run", "batch"]
    run_id: str
    stream: str
    num_steps: int
    body: bytes


class Found(NamedTuple):
    frames: list[Frame]
    offset: int  # behind the last of them
    num_damaged: int


def packed(message: bytes) -> bytes:
    return _HEADER.pack(_MARK, len(message), zlib.crc32(message)) + message


def read_frames(path: Path, offset: int, max_bytes: int) -> Found:
    """Whole frames from `offset` on; what is damaged or cut short is passed over."""
    with open(path, "rb") as file:
        return frames_in(file, offset, max_bytes)


def frames_in(file: IO[bytes], offset: int, max_bytes: int, end: int | None = None) -> Found:
    """The same of a file that is open, up to its byte `end`."""
    frames: list[Frame] = []
    num_damaged, start = 0, offset
    file.seek(offset)
    while offset - start < max_bytes and (end is None or offset < end):
        header = file.read(_HEADER.size)
        if not header:
            break
        frame, size = _frame_after(header, file)
        if frame is None:
            num_damaged += 1
            size = _distance_to_mark(file, offset + 1) + 1
        else:
            frames.append(frame)
        offset += size
        file.seek(offset)
    return Found(frames, offset, num_damaged)


def _frame_after(header: bytes, file: IO[bytes]) -> tuple[Frame | None, int]:
    """(the frame, its bytes with the header); None where it is not whole."""
    if len(header) < _HEADER.size or not header.startswith(_MARK):
        return None, 0
    _, length, checksum = _HEADER.unpack(header)
    message = file.read(length)
    if len(message) < length or zlib.crc32(message) != checksum:
        return None, 0
    try:
        return msgspec.msgpack.decode(message, type=Frame), _HEADER.size + length
    except msgspec.MsgspecError:
        return None, 0


def _distance_to_mark(file: IO[bytes], offset: int) -> int:
    """Bytes from `offset` to the next frame's mark, or to the end."""
    file.seek(offset)
    rest = file.read()  # a segment is some megabytes, and damage is rare
    found = rest.find(_MARK)
    return found if found >= 0 else len(rest)
