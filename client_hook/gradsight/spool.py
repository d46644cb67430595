"""The spool: what was recorded lies in append-only segments on disk until the server has acknowledged it.

    .gradsight/spool/<run id>/<attempt>-r<rank>-<pid>/lock         held by the writing process while it lives
                                                      000001.seg   frames: mark, length, CRC-32, message
    .gradsight/refused/<run id>.frames                             what a server would never take, kept to look at

What a kill has cut short and what a disk has damaged is left out and counted (frames.py). Each segment begins with the
run's record and repeats the layers' names, so it can be sent by itself.
"""

import os
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, NamedTuple

import msgspec

from gradsight.frames import Found, Frame, frames_in, packed, read_frames

try:
    import fcntl
except ImportError:  # Windows has no flock: there a spool is never taken for abandoned while its process lives on
    fcntl = None  # type: ignore[assignment]

SEGMENT_BYTES = 8 * 1024 * 1024
ROTATE_BYTES = 1024 * 1024
"""A segment larger than this goes as soon as all of it is acknowledged."""
MAX_SPOOL_BYTES = 4 * 1024**3
MAX_MEMORY_BYTES = 32 * 1024 * 1024
"""How much is kept in memory where the disk takes nothing."""


class Position(NamedTuple):
    """How far a read has come: a place in a segment, or (segment None) a count of the frames kept in memory."""

    segment: Path | None
    offset: int
    num_damaged: int = 0  # stretches on the way there that could not be read back
    num_steps: int = 0  # on the way there


@dataclass(slots=True)
class _Segment:
    path: Path
    size: int = 0
    num_steps: int = 0
    """Of those not acknowledged."""


class Writer:
    """One process's spool: appends frames, hands them out in order, forgets them once acknowledged. Thread-safe.

    Where the disk takes nothing, frames are kept in memory up to a bound, then the oldest of them are dropped.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = Lock()
        self._file: IO[bytes] | None = None
        self._lock_file: IO[bytes] | None = None
        self._segments: deque[_Segment] = deque()  # the last one is written to
        self._offset = 0  # how much of the first segment is acknowledged
        self._memory: deque[tuple[bytes, int]] = deque()  # (message, steps in it), behind everything on disk
        self._memory_bytes = 0
        self._num_left_memory = 0  # frames that were in memory and are not any more
        self._num_segments = 0
        self._lead: list[bytes] = []
        self.error: OSError | None = None
        self.num_damaged = 0
        """Stretches of segments that could not be read back."""
        self.num_deleted = 0
        """Steps in segments that somebody has deleted before they were sent."""

    def set_lead(self, frames: list[Frame]) -> None:
        """What every new segment begins with."""
        with self._lock:
            self._lead = [msgspec.msgpack.encode(frame) for frame in frames]

    def append(self, frame: Frame) -> int:
        """Take a frame; how many steps had to be dropped for it (0 when all is well)."""
        message = msgspec.msgpack.encode(frame)
        num_dropped = 0
        with self._lock:
            self._memory.append((message, frame.num_steps))
            self._memory_bytes += len(message)
            try:
                while self._memory:
                    self._write(*self._memory[0])
                    self._leave_memory()
            except OSError as error:
                self.error = error
                self._abandon_segment()
            while self._memory_bytes > MAX_MEMORY_BYTES:
                num_dropped += self._leave_memory()
        return num_dropped

    def _leave_memory(self) -> int:
        message, num_steps = self._memory.popleft()
        self._memory_bytes -= len(message)
        self._num_left_memory += 1
        return num_steps

    def _write(self, message: bytes, num_steps: int) -> None:
        if self._num_bytes() > MAX_SPOOL_BYTES:
            raise OSError(f"the spool has reached {MAX_SPOOL_BYTES} bytes")
        if self._is_deleted():
            self._save_deleted()
        lead: list[bytes] = []
        if self._file is None or self._segments[-1].size >= SEGMENT_BYTES:
            self._open_segment()
            lead = self._lead
        # The first message of a run is the record that the segment begins with: once is enough.
        self._write_out(b"".join(map(packed, dict.fromkeys((*lead, message)))), num_steps)

    def _write_out(self, data: bytes, num_steps: int) -> None:
        assert self._file is not None
        self._file.seek(self._segments[-1].size)  # it may have been read meanwhile
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]
        self._segments[-1].size += len(data)
        self._segments[-1].num_steps += num_steps

    def _is_deleted(self) -> bool:
        """Whether somebody has deleted the segment that is written to."""
        if self._file is None or os.fstat(self._file.fileno()).st_nlink:
            return False
        return not self._segments[-1].path.exists()

    def _save_deleted(self) -> None:
        """What is still in our hands of it goes into a new one."""
        assert self._file is not None
        deleted = self._segments.pop()
        start = 0
        if not self._segments:
            start, self._offset = self._offset, 0
        self._file.seek(start)
        rest = self._file.read(deleted.size - start)
        for file in (self._file, self._lock_file):
            if file is not None:
                file.close()
        self._file = self._lock_file = None
        try:
            self._open_segment()
            self._write_out(b"".join(map(packed, self._lead)) + rest, deleted.num_steps)
        except OSError:
            self.num_deleted += deleted.num_steps
            raise

    def _open_segment(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._lock_file is None and fcntl is not None:
            self._lock_file = open(self._folder / "lock", "wb")  # noqa: SIM115  # held until close
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if self._file is not None:
            self._file.close()
            self._file = None
        path = self._folder / f"{self._num_segments + 1:06}.seg"
        # Unbuffered: in the page cache at once. It is read through the same handle, whatever becomes of its name.
        self._file = open(path, "w+b", buffering=0)  # noqa: SIM115
        self._num_segments += 1
        self._segments.append(_Segment(path))

    def _abandon_segment(self) -> None:
        """After a failed write: cut the half frame off, and begin a new segment when the disk takes data again."""
        if self._file is None:
            return
        path, size = self._segments[-1].path, self._segments[-1].size
        try:
            self._file.truncate(size)
        except OSError:
            pass  # readers leave a half frame out
        finally:
            self._file.close()
            self._file = None
        if size == 0:  # a full disk must not fill with empty segments either
            self._segments.pop()
            _unlink(path)

    def read(self, max_bytes: int) -> tuple[list[Frame], Position]:
        """The oldest frames not yet acknowledged, in order, and the position behind them."""
        with self._lock:
            while self._segments:
                segment = self._segments[0]
                found = self._read_first_segment(max_bytes)
                if found.frames:
                    num_steps = sum(frame.num_steps for frame in found.frames)
                    return found.frames, Position(segment.path, found.offset, found.num_damaged, num_steps)
                self.num_damaged += found.num_damaged
                self._offset = segment.size
                if len(self._segments) == 1:
                    break
                self._drop_first_segment()
            waiting = list(self._memory)[:256]
            frames = [msgspec.msgpack.decode(message, type=Frame) for message, _ in waiting]
            return frames, Position(None, self._num_left_memory + len(frames))

    def _read_first_segment(self, max_bytes: int) -> Found:
        segment = self._segments[0]
        if len(self._segments) == 1 and self._file is not None:
            return frames_in(self._file, self._offset, max_bytes, segment.size)
        try:
            with open(segment.path, "rb") as file:
                return frames_in(file, self._offset, max_bytes, segment.size)
        except FileNotFoundError:
            self.num_deleted += segment.num_steps
            return Found([], segment.size, 0)

    def acknowledge(self, position: Position) -> None:
        """The server has everything before this position."""
        with self._lock:
            if position.segment is None:
                while self._memory and self._num_left_memory < position.offset:
                    self._leave_memory()
            elif self._segments and self._segments[0].path == position.segment:
                self._offset = max(self._offset, position.offset)
                self._segments[0].num_steps -= position.num_steps
                self.num_damaged += position.num_damaged
                whole = self._offset >= self._segments[0].size
                if whole and (len(self._segments) > 1 or self._offset > ROTATE_BYTES):
                    self._drop_first_segment()

    def _drop_first_segment(self) -> None:
        segment = self._segments.popleft()
        self._offset = 0
        if not self._segments and self._file is not None:
            self._file.close()
            self._file = None
        _unlink(segment.path)

    @property
    def is_empty(self) -> bool:
        """Whether everything taken has been acknowledged."""
        with self._lock:
            return self._num_bytes() <= self._offset and not self._memory

    @property
    def num_waiting_bytes(self) -> int:
        """How much of what was taken has not been acknowledged."""
        with self._lock:
            return self._num_bytes() - self._offset + self._memory_bytes

    def _num_bytes(self) -> int:
        """In all segments."""
        return sum(segment.size for segment in self._segments)

    def close(self) -> int:
        """Let go of the files: what is acknowledged is removed, the rest stays for a later process. How many steps
        were in memory only, and are lost."""
        empty = self.is_empty
        with self._lock:
            num_lost = sum(num_steps for _, num_steps in self._memory)
            self._memory.clear()
            if empty:
                for segment in self._segments:
                    _unlink(segment.path)
                _remove_folder(self._folder)
            for file in (self._file, self._lock_file):
                if file is not None:
                    file.close()
            self._file = self._lock_file = None
            self._segments.clear()
            self._offset = 0
        return num_lost

    def forget_after_fork(self) -> None:
        """In a forked child: let go of the parent's files. Their locks stay with the parent."""
        self._lock = Lock()
        for file in (self._file, self._lock_file):
            if file is not None:
                file.close()
        self._file = self._lock_file = None


class Leftover:
    """What a process that is gone has left: segments to send, then to remove. Use it as a context manager."""

    def __init__(self, folder: Path, lock_file: IO[bytes] | None) -> None:
        self._folder = folder
        self._lock_file = lock_file
        self.num_damaged = 0

    def runs_of_frames(self, max_bytes: int = 4 * 1024 * 1024) -> Iterator[list[Frame]]:
        """Frames in order, some at a time. A segment is removed once the caller asks for what comes after it."""
        for path in sorted(self._folder.glob("*.seg")):
            found = read_frames(path, 0, max_bytes)
            while True:
                self.num_damaged += found.num_damaged
                if not found.frames:
                    break
                yield found.frames
                found = read_frames(path, found.offset, max_bytes)
            _unlink(path)
        _remove_folder(self._folder)

    def __enter__(self) -> "Leftover":
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock_file is not None:
            self._lock_file.close()


def pending(spool_dir: Path | str) -> list[Path]:
    """Folders of processes, living or gone, that have left something in this spool; oldest first."""
    root = Path(spool_dir) / "spool"
    found = {path.parent for path in root.glob("*/*/*.seg") if re.fullmatch(r"\d{6}\.seg", path.name)}
    return sorted(found, key=_modified_at)


def _modified_at(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def take(folder: Path) -> Leftover | None:
    """The leftover in `folder`; None while its process lives, or while another one is sending it."""
    if fcntl is None:
        return Leftover(folder, None)
    try:
        lock_file = open(folder / "lock", "ab")  # noqa: SIM115  # held while the leftover is sent
    except OSError:
        return None
    try:
        fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock_file.close()
        return None
    return Leftover(folder, lock_file)


def keep_refused(spool_dir: Path | str, frame: Frame) -> None:
    """Keep what a server will never take: it cannot be sent, and must not be destroyed."""
    folder = Path(spool_dir) / "refused"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{frame.run_id}.frames", "ab") as file:
            file.write(packed(msgspec.msgpack.encode(frame)))
    except OSError:
        pass  # it is counted all the same


def _unlink(path: Path) -> None:
    with suppress(OSError):  # a spool that cannot be removed is sent again: re-sending changes nothing
        path.unlink(missing_ok=True)


def _remove_folder(folder: Path) -> None:
    """Remove an empty spool folder and the run's folder above it, if nothing else is in them."""
    _unlink(folder / "lock")
    for path in (folder, folder.parent, folder.parent.parent):
        try:
            path.rmdir()
        except OSError:
            return
