"""Takes messages from the outbox to their targets: a thread for each, so that one that hangs keeps no other waiting.

The leader does it. A message counts as delivered once its target's place in the outbox is committed: a server killed
in between sends it again after its restart, so each arrives at least once, and in order.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gradsight_server.alerts.messages import Note, Waiting, note_of
from gradsight_server.alerts.notify import Target
from gradsight_server.alerts.rules import SEVERITIES
from gradsight_server.errors import DatabaseClosedError
from gradsight_server.store import outbox
from gradsight_server.store.database import Database
from gradsight_server.store.outbox import Progress

FIRST_RETRY_S, LONGEST_RETRY_S = 2.0, 300.0
GIVE_UP_S = 86_400.0
"""News of yesterday: a target that has been down for so long is told what happened since."""
HANGS_AFTER_S = 15.0
MAX_SINGLE = 3
"""Where more wait, they go as one message."""
BURST = 10
REFILL_S = 5.0
"""A target gets so many messages at once, then one in so many seconds, with all that has come meanwhile in it."""
TIMEOUT_S = 60.0

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Parcel:
    """What one message tells, and where the target stands after it."""

    note: Note
    severity: str
    up_to: int
    num: int


@dataclass
class _Lane:
    """The way to one target: at most one message is under way."""

    target: Target
    parcels: "queue.SimpleQueue[_Parcel | None]" = field(default_factory=queue.SimpleQueue)
    thread: threading.Thread | None = None
    busy_since_s: float | None = None
    hangs: bool = False
    tokens: float = BURST
    filled_at_s: float = 0.0

    def refill(self, now_s: float) -> float:
        """How many messages the target may get now."""
        self.tokens = min(BURST, self.tokens + (now_s - self.filled_at_s) / REFILL_S)
        self.filled_at_s = now_s
        return self.tokens


class Courier:
    """Delivers to all targets of this server's configuration.

    Args:
        public_url: What links begin with.
        clock: UTC seconds.
    """

    def __init__(
        self,
        database: Database,
        targets: Sequence[Target],
        *,
        public_url: str | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.targets = tuple(targets)
        self.public_url = public_url
        self._database = database
        self._clock = clock
        self._lanes = {target.target_id: _Lane(target, filled_at_s=clock()) for target in targets}
        self._closing = threading.Event()

    def start(self) -> None:
        """Makes the targets known to the database; new ones are told of what comes from now on."""
        if self._lanes:
            ids = list(self._lanes)
            self._database.write(lambda conn: outbox.introduce(conn, ids)).result(TIMEOUT_S)

    def pump(self) -> None:
        """Hands what waits to targets that are free. Quick; called again and again by the leader."""
        if not self._lanes or self._closing.is_set():
            return
        now_s = self._clock()
        free = {lane.target.target_id for lane in self._lanes.values() if lane.busy_since_s is None}
        for lane in self._lanes.values():
            self._watch(lane, now_s)
        with self._database.reading() as conn:  # after: a target that is free by then has its new place noted
            newest = outbox.newest_id(conn)
            known = outbox.progress(conn, free)
            todo = [
                (self._lanes[place.target_id], place, outbox.waiting(conn, place.delivered_up_to))
                for place in known.values()
                if place.delivered_up_to < newest
            ]
        for lane, place, waiting in todo:
            if (place.next_try_at_s or 0.0) <= now_s:
                self._hand_over(lane, place, waiting, now_s)

    def hangs(self, target_id: str) -> bool:
        """Whether a target has not answered for long to what it was sent."""
        lane = self._lanes[target_id]
        return lane.hangs and lane.busy_since_s is not None

    def close(self, *, deadline_s: float = 2.0) -> None:
        """Ends the threads that are free; what is under way is not waited for beyond the deadline."""
        self._closing.set()
        until_s = time.monotonic() + deadline_s
        for lane in self._lanes.values():
            lane.parcels.put(None)
        for lane in self._lanes.values():
            if lane.thread is not None:
                lane.thread.join(max(0.0, until_s - time.monotonic()))

    def _hand_over(self, lane: _Lane, place: Progress, waiting: Sequence[Waiting], now_s: float) -> None:
        wanted = [message for message in waiting if lane.target.wants(message)]
        old = [message for message in wanted if message.created_at_s < now_s - GIVE_UP_S]
        if old:
            self._database.write(
                lambda conn: outbox.give_up(conn, place.target_id, old[-1].outbox_id, len(old))
            ).result(TIMEOUT_S)
        elif not wanted:
            if waiting:
                self._database.write(
                    lambda conn: outbox.pass_over(conn, place.target_id, waiting[-1].outbox_id)
                ).result(TIMEOUT_S)
        elif lane.refill(now_s) >= 1:
            some = wanted[:1] if len(wanted) <= min(MAX_SINGLE, lane.tokens) else wanted
            lane.tokens -= 1
            lane.busy_since_s, lane.hangs = now_s, False
            severity = max((message.severity for message in some), key=SEVERITIES.index)
            note = note_of(some, public_url=self.public_url)
            lane.parcels.put(_Parcel(note, severity, some[-1].outbox_id, len(some)))
            self._start(lane)

    def _watch(self, lane: _Lane, now_s: float) -> None:
        """Says once of a target that it does not answer."""
        since_s = lane.busy_since_s
        if since_s is not None and not lane.hangs and now_s - since_s > HANGS_AFTER_S:
            lane.hangs = True
            problem = f"it has not answered for {HANGS_AFTER_S:g} s"
            self._note_failure(lane.target, problem, now_s=since_s, next_try_at_s=None)

    def _start(self, lane: _Lane) -> None:
        if lane.thread is None:
            name = f"gradsight-notify-{lane.target.target_id}"
            lane.thread = threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
            lane.thread.start()

    def _work(self, lane: _Lane) -> None:
        while (parcel := lane.parcels.get()) is not None and not self._closing.is_set():
            try:
                self._deliver(lane, parcel)
            except DatabaseClosedError:
                return
            except Exception:  # sent, or not, but not noted: it is sent again
                _logger.exception("could not note what became of a message to %s", lane.target.name)
            finally:
                lane.busy_since_s = None

    def _deliver(self, lane: _Lane, parcel: _Parcel) -> None:
        target = lane.target
        problem = target.send(parcel.note, parcel.severity)
        now_s = self._clock()
        if problem is None:
            self._database.write(
                lambda conn: outbox.delivered(conn, target.target_id, parcel.up_to, parcel.num, now_s=now_s)
            ).result(TIMEOUT_S)
            return
        with self._database.reading() as conn:
            num_failures = outbox.progress(conn, [target.target_id])[target.target_id].num_failures
        pause_s = min(LONGEST_RETRY_S, FIRST_RETRY_S * 2.0 ** min(num_failures, 20))
        self._note_failure(target, problem, now_s=now_s, next_try_at_s=now_s + pause_s)
        if not num_failures:
            _logger.warning("notification target %s cannot be reached, tried again: %s", target.name, problem)

    def _note_failure(self, target: Target, problem: str, *, now_s: float, next_try_at_s: float | None) -> None:
        self._database.write(
            lambda conn: outbox.failed(conn, target.target_id, problem, now_s=now_s, next_try_at_s=next_try_at_s)
        ).result(TIMEOUT_S)
