"""Ranks: processes joined by gloo that run a test's functions, so that the tests of a file share their start."""

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE_S = 120.0
COLLECTIVE_WITHIN_S = 30
"""A rank that waits for the others for longer is told so by gloo, and its test fails."""


class RankError(AssertionError):
    """A function failed on a rank, or did not come back."""


class Ranks:
    """`world_size` processes, each with a rank.

    Args:
        folder: Where they meet; empty.
    """

    def __init__(self, world_size: int, folder: Path) -> None:
        self.world_size = world_size
        context = multiprocessing.get_context("spawn")
        pipes = [context.Pipe() for _ in range(world_size)]
        self._ends: list[Connection[Any, Any]] = [ours for ours, _ in pipes]
        self._processes = [
            context.Process(target=serve, args=(theirs, rank, world_size, str(folder / "store")), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process, (_, theirs) in zip(self._processes, pipes, strict=True):
            process.start()
            theirs.close()

    def __call__(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> list[T]:
        """What `function(*args, **kwargs)` gives on each rank."""
        for end in self._ends:
            end.send((function, args, kwargs))
        answers: dict[int, T] = {}
        until = monotonic() + DEADLINE_S
        while len(answers) < self.world_size:
            waiting: list[Any] = [end for rank, end in enumerate(self._ends) if rank not in answers]
            ready: list[Any] = wait(waiting, timeout=max(0.0, until - monotonic()))
            if not ready:
                self.end()
                raise RankError(f"ranks {sorted(answers)} came back, the others not within {DEADLINE_S} s")
            for end in ready:
                rank = self._ends.index(end)
                try:
                    failed, answer = end.recv()
                except EOFError:
                    failed, answer = True, "the process has ended"
                if failed:
                    self.end()
                    raise RankError(f"rank {rank}: {answer}")
                answers[rank] = answer
        return [answers[rank] for rank in range(self.world_size)]

    @property
    def is_running(self) -> bool:
        return all(process.is_alive() for process in self._processes)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
            process.close()
        self._processes = []
        for end in self._ends:
            end.close()


class Lineup:
    """Ranks by world size, started when first asked for and again when a test has brought them down."""

    def __init__(self) -> None:
        self._lines: dict[int, Ranks] = {}
        self._folders: list[tempfile.TemporaryDirectory[str]] = []

    def of(self, world_size: int) -> Ranks:
        line = self._lines.get(world_size)
        if line is None or not line._processes or not line.is_running:
            self._folders.append(tempfile.TemporaryDirectory())
            line = self._lines[world_size] = Ranks(world_size, Path(self._folders[-1].name))
        return line

    def end(self) -> None:
        for line in self._lines.values():
            line.end()
        for folder in self._folders:
            folder.cleanup()


@contextmanager
def lineup() -> Iterator[Lineup]:
    lines = Lineup()
    try:
        yield lines
    finally:
        lines.end()


def serve(end: "Connection[Any, Any]", rank: int, world_size: int, store: str) -> None:
    """What a rank does: joins the others, then runs what it is sent."""
    if sys.platform == "linux":  # this machine alone, whatever its name resolves to
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch  # here, so that the parent can start the next process meanwhile
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        store=distributed.FileStore(store, world_size),  # type: ignore[attr-defined]
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=COLLECTIVE_WITHIN_S),
    )
    while True:
        try:
            function, args, kwargs = end.recv()
        except EOFError:
            return
        try:
            end.send((False, function(*args, **kwargs)))
        except Exception:
            end.send((True, traceback.format_exc()))
