"""A file that is still written, read to its end and on: what `--watch` reads from."""

import threading
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path

from gradsight_server.importers.opening import open_bytes

POLL_S = 0.25


class Following(BufferedIOBase):
    """Blocks at the end of the file until more comes, or until it is told to stop.

    A file that was cut shorter, or another one of its name, is read from its beginning.

    Args:
        stop: Set when no more is wanted: what is there by then is read.
        on_idle: Called whenever there is nothing to read.
    """

    def __init__(self, path: Path, stop: threading.Event, on_idle: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._path = path
        self._stop = stop
        self._on_idle = on_idle
        self._file = open_bytes(path)
        self._inode = path.stat().st_ino

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        return self.read1(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        while True:
            if part := self._file.read1(size):
                return part
            if self._stop.is_set():
                return b""
            self._on_idle()
            self._stop.wait(POLL_S)
            self._look_for_another()

    def _look_for_another(self) -> None:
        try:
            now = self._path.stat()
        except OSError:
            return  # moved away: another one may come
        if now.st_ino != self._inode or now.st_size < self._file.tell():
            self._file.close()
            self._file = open_bytes(self._path)
            self._inode = now.st_ino

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


class Counted(BufferedIOBase):
    """Bytes as they are read, counted for whoever shows how far it is."""

    def __init__(self, file: BufferedIOBase, on_read: Callable[[int], None]) -> None:
        super().__init__()
        self._file = file
        self._on_read = on_read

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        part = self._file.read(size)
        self._on_read(len(part))
        return part

    def read1(self, size: int = -1, /) -> bytes:
        part = self._file.read1(size)
        self._on_read(len(part))
        return part

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
