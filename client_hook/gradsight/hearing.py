"""The way back: alerts and wishes from the server's answers, and the local rules' alerts, to who wants to hear them.

The sender and the exporter thread bring them; callbacks of the user's run in a thread of their own, so that one that
hangs keeps neither steps from the disk nor training from going on.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from gradsight import wire
from gradsight.alerts import LOCAL_KINDS, WINDOW, Alert, LocalRules

Lost = Callable[[str, int, BaseException | None], None]
MAX_WAITING = 1_000
MAX_KNOWN = 10_000
MAX_TOLD = 100
END_WITHIN_S = 1.0


@dataclass(slots=True)
class _Told:
    """Non-finite steps that were told of: by the local rules, or by the server."""

    kind: str
    is_local: bool
    first_step: int
    last_step: float  # infinite until they are over


class Hearing:
    """What a run hears.

    Args:
        lost: Counts what went wrong: (reason, how many, error).
    """

    def __init__(self, lost: Lost) -> None:
        self._lost = lost
        self._listeners: list[Callable[[Alert], None]] = []
        self._callbacks: list[Callable[[Alert], Any]] = []
        self._rules = LocalRules()
        self._known: dict[int, tuple[str, int]] = {}
        self._told: dict[str | None, deque[_Told]] = {}
        self._muted: set[Hashable] = set()
        self._wishes: dict[str, list[wire.Control]] = {}
        self._newest_wish: dict[str, int] = {}
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
        self._lock = Lock()
        self._waiting: SimpleQueue[Alert | None] = SimpleQueue()
        self._thread: Thread | None = None

    def forget_after_fork(self) -> None:
        """In a forked child: the thread is the parent's."""
        self._rules, self._wishes = LocalRules(), {}
        self._start_afresh()

    # The training thread

    def call(self, callback: Callable[[Alert], Any]) -> None:
        """With each alert that opens, repeats or is over, in a thread of its own."""
        self._callbacks.append(callback)
        if self._thread is None:
            self._thread = Thread(target=self._work, name="gradsight-alerts", daemon=True)
            self._thread.start()

    def listen(self, listener: Callable[[Alert], None]) -> None:
        """As `call`, but at once and in whatever thread: for what is quick and cannot fail."""
        self._listeners.append(listener)

    def wish(self, stream: str) -> wire.Control | None:
        """The next change of a threshold that a person wants, once."""
        wishes = self._wishes.get(stream)
        return wishes.pop(0) if wishes else None

    def close(self) -> None:
        """Ends the thread once the callbacks that wait have been called, as far as a second allows."""
        if self._thread is not None and self._pid == os.getpid():
            self._waiting.put(None)
            self._thread.join(END_WITHIN_S)

    # The sender and the exporter thread

    def answered(self, answer: wire.Answer) -> None:
        """Takes what an answer brings; each thing comes again with later answers, and is told once."""
        for notice in answer.alerts:
            state, known = (notice.state, notice.num_repeats), self._known.get(notice.id)
            if known == state:
                continue
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[notice.id] = state
            alert = Alert.of(notice)
            if known is None and alert.state == "resolved" and alert.stream is not None:
                # It opened and passed between two answers. One of the whole run may be an older process's.
                self._pass_on(notice.id, replace(alert, state="open"), is_new=True)
                known = state
            self._pass_on(notice.id, alert, is_new=known is None)
        for wish in answer.control:
            if wish.id > self._newest_wish.get(wish.stream, 0) or wish.id == 0:
                self._newest_wish[wish.stream] = wish.id
                self._wishes.setdefault(wish.stream, []).append(wish)

    def recorded(self, stream: str, batch: wire.Batch) -> None:
        """Looks at steps that were recorded."""
        for alert in self._rules.look(stream, batch):
            self._pass_on((stream, alert.kind), alert, is_new=alert.state == "open")

    def _pass_on(self, key: Hashable, alert: Alert, *, is_new: bool) -> None:
        """Tells of an alert, unless the other side, server or local rules, has told of the same steps."""
        with self._lock:
            if is_new:
                self._muted.discard(key)
                if self._is_told_otherwise(alert):
                    self._muted.add(key)
            if key in self._muted:
                return
            self._note(alert)
        self._tell(alert)

    def _is_told_otherwise(self, alert: Alert) -> bool:
        if alert.kind not in LOCAL_KINDS or alert.first_step is None:
            return False
        return any(
            told.is_local != alert.is_local
            and told.kind in (alert.kind, "dead_run")  # a burst within a dead run is no news
            and told.first_step - WINDOW <= alert.first_step <= told.last_step + WINDOW
            for told in self._told.get(alert.stream, ())
        )

    def _note(self, alert: Alert) -> None:
        if alert.kind not in LOCAL_KINDS or alert.first_step is None:
            return
        told = self._told.setdefault(alert.stream, deque(maxlen=MAX_TOLD))
        until = math.inf if alert.state == "open" or alert.last_step is None else float(alert.last_step)
        for other in told:
            if (other.kind, other.is_local, other.first_step) == (alert.kind, alert.is_local, alert.first_step):
                other.last_step = until
                return
        told.append(_Told(alert.kind, alert.is_local, alert.first_step, until))

    def _tell(self, alert: Alert) -> None:
        for listener in self._listeners:
            listener(alert)
        if not self._callbacks:
            return
        if self._waiting.qsize() >= MAX_WAITING:
            self._lost("alerts_waiting", 0, None)
        else:
            self._waiting.put(alert)

    def _work(self) -> None:
        while (alert := self._waiting.get()) is not None:
            for callback in list(self._callbacks):
                try:
                    callback(alert)
                except Exception as error:  # the boundary: the user's own code, in our thread
                    self._lost("callback_error", 0, error)
