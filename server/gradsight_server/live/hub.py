"""The tailer: follows the database's ticks, also those other replicas commit, and feeds every open stream."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gradsight_server.live.reader import (
    News,
    Progress,
    alert_messages,
    deleted_messages,
    in_order,
    run_messages,
    tick_messages,
)
from gradsight_server.live.run_news import RunNews
from gradsight_server.live.subscriber import Message, Subscriber, message, stale
from gradsight_server.store.database import Database
from gradsight_server.store.ticks import Tick, latest_position, oldest_position, ticks_after

POLL_S = 0.5
"""How soon another replica's commits are seen; our own wake the tailer."""
PAUSE_S = 0.05
"""Between two reads, so that what is committed meanwhile goes out together."""
READ_LIMIT = 2_000
LAG_PATIENCE_S = 2.0
"""How long a reader who comes from a replica that is ahead of this one waits for it to catch up."""

_logger = logging.getLogger(__name__)


class LiveHub:
    """Positions and messages for every reader; built once per event, whoever listens."""

    def __init__(self, database: Database) -> None:
        self.position = 0
        """Everything up to here has been handed out."""
        self._database = database
        self._start = 0  # what came before cannot be told apart from what replaced it
        self._progress = Progress()
        self._changed_at: dict[str, int] = {}
        self._run_news = RunNews()
        self._subscribers: set[Subscriber] = set()
        self._woken = asyncio.Event()
        self._handing_out = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._wake: Callable[[], None] = lambda: None
        self._is_ending = False

    @property
    def num_subscribers(self) -> int:
        return len(self._subscribers)

    def version(self, run_id: str) -> tuple[int, int]:
        """The position to read a run's figures at, and that of the run's newest change up to there.

        In this order: a change in between then makes figures look older than they are, never newer.
        """
        position = self.position
        return position, self._changed_at.get(run_id, self._start)

    async def start(self) -> None:
        self.position = self._start = await asyncio.to_thread(self._latest)
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(self._woken.set)

        self._wake = wake
        self._database.on_commit.append(wake)
        self._task = asyncio.create_task(self._follow(), name="gradsight-live")

    async def close(self) -> None:
        self.end_streams()
        if self._task is None:
            return
        self._database.on_commit.remove(self._wake)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    def end_streams(self) -> None:
        """Ends every open stream, and from now on each new one at once: the server is stopping."""
        self._is_ending = True
        for subscriber in self._subscribers:
            subscriber.close()

    @asynccontextmanager
    async def subscribe(self, runs: frozenset[str], after: int | None) -> AsyncIterator[Subscriber]:
        """An open stream that begins with `hello`, then what it missed after a position, then what comes."""
        subscriber = Subscriber(runs)
        position, missed = await self._catch_up(runs, after)
        async with self._handing_out:  # else a read could be under way that does not know that these runs are watched
            if position < self.position:
                missed += await asyncio.to_thread(self._missed, runs, position, self.position)
            hello = message("hello", {"position": self.position}, position=self.position if after is None else after)
            subscriber.push([hello, *missed], self.position)
            self._subscribers.add(subscriber)
            if self._is_ending:
                subscriber.close()
        try:
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)

    async def _follow(self) -> None:
        has_failed = False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self._woken.wait()
            self._woken.clear()
            try:
                while await self._read_on():
                    pass
                has_failed = False
            except Exception:  # a database that fails for a while must not end the live streams for good
                if not has_failed:
                    _logger.exception("could not read what is new")
                has_failed = True
                await asyncio.sleep(POLL_S)
            await asyncio.sleep(PAUSE_S)

    async def _read_on(self) -> bool:
        """Hands out the next ticks; whether more may be waiting."""
        async with self._handing_out:
            watched = frozenset[str]().union(*(subscriber.runs for subscriber in self._subscribers))
            ticks, messages = await asyncio.to_thread(self._read, watched, bool(self._subscribers))
            for tick in ticks:
                self._changed_at[tick.run_id] = tick.position
            # Only now: who reads the position first and then the run's version never takes old figures for new ones.
            self.position = ticks[-1].position if ticks else self.position
            for subscriber in self._subscribers:
                subscriber.push(messages, self.position)
        return len(ticks) == READ_LIMIT

    def _read(self, watched: frozenset[str], is_heard: bool) -> tuple[list[Tick], list[Message]]:
        with self._database.reading() as conn:
            ticks = ticks_after(conn, self.position, limit=READ_LIMIT)
            position = ticks[-1].position if ticks else self.position
            news = [News(tick, self._progress.advance(tick)) for tick in ticks if tick.kind == "steps"]
            messages = [
                *deleted_messages(ticks),
                *(alert_messages(conn, ticks) if is_heard else ()),
                *tick_messages(conn, (item for item in news if item.tick.run_id in watched), position),
                *run_messages(conn, self._due(ticks, is_heard), position),
            ]
        self._forget(ticks, position)
        return ticks, in_order(messages)

    def _due(self, ticks: list[Tick], is_heard: bool) -> list[str]:
        self._run_news.note(tick.run_id for tick in ticks)
        if is_heard:
            return self._run_news.due()
        self._run_news.drop_waiting()
        return []

    def _forget(self, ticks: list[Tick], position: int) -> None:
        for tick in ticks:
            if tick.kind == "deleted":
                self._progress.forget(tick.run_id)
                self._run_news.forget(tick.run_id)
        if self._progress.is_full:
            self._progress, self._run_news = Progress(), RunNews()
            self._changed_at.clear()
            self._start = position

    async def _catch_up(self, runs: frozenset[str], after: int | None) -> tuple[int, list[Message]]:
        """What a reader missed since a position, and up to which position that is."""
        if after is not None and self.position < after <= await asyncio.to_thread(self._latest):
            await self._read_up_to(after)
        position = self.position
        if after is not None and not self._start <= after <= position:
            return position, [stale(None, position)]
        return position, await asyncio.to_thread(self._missed, runs, position if after is None else after, position)

    async def _read_up_to(self, position: int) -> None:
        deadline_s = time.monotonic() + LAG_PATIENCE_S
        while position > self.position and time.monotonic() < deadline_s:
            self._woken.set()
            await asyncio.sleep(PAUSE_S)

    def _missed(self, runs: frozenset[str], after: int, position: int) -> list[Message]:
        with self._database.reading() as conn:
            if position - after > READ_LIMIT or after + 1 < oldest_position(conn):
                return [stale(None, position)]
            ticks = [tick for tick in ticks_after(conn, after, limit=READ_LIMIT) if tick.position <= position]
            changed = {run_id for run_id in runs if self._progress.rewound_at(run_id) > after}
            news = (
                News(tick, (tick.first_step or 0) - 1)
                for tick in ticks
                if tick.kind == "steps" and tick.run_id in runs - changed
            )
            in_brief = dict.fromkeys([*self._run_news.recent(), *(tick.run_id for tick in ticks)])
            messages = [
                *deleted_messages(ticks),
                *alert_messages(conn, ticks),
                *(stale(run_id, position) for run_id in sorted(changed)),
                *tick_messages(conn, news, position),
                *run_messages(conn, in_brief, position),
            ]
        return in_order(messages)

    def _latest(self) -> int:
        with self._database.reading() as conn:
            return latest_position(conn)
