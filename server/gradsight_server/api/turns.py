"""Work that takes a processor for seconds: in a thread, and one of a kind at a time, so that batches go on."""

from collections.abc import Callable
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

T = TypeVar("T")


class OneAtATime:
    """Whoever comes waits until the one before is done. A limiter belongs to an event loop, so each has its own."""

    def __init__(self, name: str) -> None:
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"gradsight_{name}")

    async def run(self, work: Callable[[], T]) -> T:
        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(1)
            self._limiter.set(limiter)
        return await run_sync(work, limiter=limiter)
