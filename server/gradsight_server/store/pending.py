"""What batches leave to the end of their transaction: rollups, a stream's counters and ticks, once for all of them."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from gradsight_server.store import alert_rows, alerting, counters, pyramid, ticks
from gradsight_server.store.alert_rows import Message
from gradsight_server.store.alerting import Taken
from gradsight_server.store.extents import AttemptKey, Extent
from gradsight_server.store.rule_book import RuleBook
from gradsight_server.store.ticks import News

OPTION = "gradsight_pending"
"""The execution option under which a writing connection carries its Pending."""
MAX_STEPS_PER_TICK = 1_000
"""Batches are told of in one tick up to so many steps: a live stream reads a tick's steps at once."""


class Change(NamedTuple):
    """What one batch changed of an attempt at a stream."""

    extent_before: Extent | None
    extent: Extent | None
    touched: NDArray[np.int64]
    """Steps of rank 0."""
    counts: NDArray[np.int64]
    """How much it moved each of `counters.COUNTERS`."""
    first_step: int
    last_step: int
    """Of any rank."""
    now_s: float


@dataclass(slots=True)
class _Changes:
    extent_before: Extent | None
    extent: Extent | None = None
    touched: list[NDArray[np.int64]] = field(default_factory=list)
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(counters.COUNTERS), np.int64))
    edges: list[tuple[int, int]] = field(default_factory=list)
    now_s: float = 0.0


class Pending:
    """The changes of one transaction."""

    def __init__(self, rule_book: RuleBook) -> None:
        self.rule_book = rule_book
        self._taken: list[Taken] = []
        self._messages: list[Message] = []
        self._of_attempt: dict[AttemptKey, _Changes] = {}
        self._news: list[News] = []

    def tell(self, run_id: str, kind: Literal["run", "deleted"], *, now_s: float) -> None:
        """Notes that a run has changed or is gone; called last, as `add` is."""
        self._news.append(News(run_id, kind, now_s=now_s))

    def judge(self, taken: Taken) -> None:
        """Has the alert rules look at a batch; called last, as `add` is."""
        self._taken.append(taken)

    def alert(self, news: News, message: Message | None = None) -> None:
        """Notes that an alert has changed, and what is to be told of it; called last, as `add` is."""
        self._news.append(news)
        if message is not None:
            self._messages.append(message)

    def add(self, key: AttemptKey, change: Change) -> None:
        """Notes what a batch changed; called last, so that a batch which fails leaves nothing here."""
        changes = self._of_attempt.get(key)
        if changes is None or (change.extent_before is None and changes.extent is not None):  # or deleted meanwhile
            changes = self._of_attempt[key] = _Changes(change.extent_before)
        changes.extent = change.extent
        changes.touched.append(change.touched)
        changes.counts += change.counts
        changes.now_s = change.now_s
        edges = changes.edges
        if edges and edges[-1][1] < change.first_step <= change.last_step < edges[-1][0] + MAX_STEPS_PER_TICK:
            edges[-1] = (edges[-1][0], change.last_step)
        else:
            edges.append((change.first_step, change.last_step))

    def finish(self, conn: Connection) -> None:
        """Does what is left to do, before the commit."""
        moved: dict[tuple[str, int], NDArray[np.int64]] = {}
        for key, changes in self._of_attempt.items():
            touched = np.concatenate(changes.touched)
            if changes.extent is not None and len(touched):
                before = changes.extent_before
                last_before = None if before is None else before.last_step
                pyramid.roll_up(conn, key, touched, last_before=last_before, extent=changes.extent)
            if any(map(len, changes.touched)):
                stream = key[:2]
                moved[stream] = moved.get(stream, 0) + changes.counts
        for stream, counts in moved.items():
            counters.update_stream(conn, *stream, counts)
        steps = [
            News(run_id, "steps", stream_key, attempt_key, first, last, changes.now_s)
            for (run_id, stream_key, attempt_key), changes in self._of_attempt.items()
            for first, last in changes.edges
        ]
        outcome = alerting.judge(conn, self._taken, self.rule_book)
        ticks.append(conn, self._news + steps + outcome.news)
        alert_rows.post(conn, self._messages + outcome.messages)


def pending_of(conn: Connection) -> Pending:
    """The Pending of a connection that writes (`Database.write`)."""
    found: Pending = conn.get_execution_options()[OPTION]
    return found


def finish(conn: Connection) -> None:
    """Does what the transaction's batches have left to its end."""
    pending_of(conn).finish(conn)
