"""One open live stream: what waits for its reader, bounded. A reader too slow for it hears that it lost ticks."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

MAX_WAITING_BYTES = 4 * 2**20


class Message(NamedTuple):
    """An event as it goes over the wire, encoded once however many streams it goes to."""

    position: int
    run_id: str | None
    is_for_all: bool
    """Else only for those who watch the run."""
    frame: bytes


def message(event: str, payload: Any, *, position: int, run_id: str | None = None, is_for_all: bool = True) -> Message:
    """An event. Its position is its id: who loses the connection after it has all up to there."""
    frame = b"id: %d\nevent: %b\ndata: %b\n\n" % (position, event.encode(), msgspec.json.encode(payload))
    return Message(position, run_id, is_for_all, frame)


def stale(run_id: str | None, position: int) -> Message:
    """Tells a reader to read the run's figures afresh; None means every run's."""
    return message("stale", {"run_id": run_id}, position=position, run_id=run_id, is_for_all=run_id is None)


class Subscriber:
    """The stream's end in the hub. Used in the event loop only."""

    def __init__(self, runs: frozenset[str]) -> None:
        self.runs = runs
        self._waiting: deque[bytes] = deque()
        self._num_bytes = 0
        self._filled = asyncio.Event()
        self._is_closed = False

    def push(self, messages: Iterable[Message], position: int) -> None:
        """Takes those messages that concern this stream; `position` is where they end."""
        for found in messages:
            if found.is_for_all or found.run_id in self.runs:
                self._waiting.append(found.frame)
                self._num_bytes += len(found.frame)
                self._filled.set()
        if self._num_bytes > MAX_WAITING_BYTES:
            lost = stale(None, position).frame
            self._waiting = deque([lost])
            self._num_bytes = len(lost)

    def close(self) -> None:
        """Ends the stream: its reader gets what waits, then nothing more."""
        self._is_closed = True
        self._filled.set()

    async def next(self, timeout_s: float) -> bytes | None:
        """All that waits; None where nothing came in time, empty where the stream has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._filled.wait()
        except TimeoutError:
            return None
        chunk = b"".join(self._waiting)
        self._waiting.clear()
        self._num_bytes = 0
        if not self._is_closed:
            self._filled.clear()
        return chunk
