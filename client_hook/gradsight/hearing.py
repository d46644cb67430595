"""The way back: alerts and wishes from the server's answers, and the local rules' alerts, to who wants to hear them.

The sender and the exporter thread bring them; callbacks of the user's run in a thread of their own, so that one that
hangs keeps neither steps from the disk nor training from going on.
"""

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from gradsight import wire
from gradsight.alerts import LOCAL_KINDS, WINDOW, Alert, LocalRules

Lost = Callable[[str, int, BaseException | None], None]
MAX_WAITING = 1_000
MAX_KNOWN = 10_000
END_WITHIN_S = 1.0


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
        self._wishes: dict[str, list[wire.Control]] = {}
        self._newest_wish: dict[str, int] = {}
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._pid = os.getpid()
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
            state = (notice.state, notice.num_repeats)
            if self._known.get(notice.id) != state:
                if len(self._known) > MAX_KNOWN:
                    self._known.clear()
                self._known[notice.id] = state
                if not self._is_told(notice):
                    self._tell(Alert.of(notice))
        for wish in answer.control:
            if wish.id > self._newest_wish.get(wish.stream, 0) or wish.id == 0:
                self._newest_wish[wish.stream] = wish.id
                self._wishes.setdefault(wish.stream, []).append(wish)

    def recorded(self, stream: str, batch: wire.Batch) -> None:
        """Looks at steps that were recorded."""
        for alert in self._rules.look(stream, batch):
            self._tell(alert)

    def _is_told(self, notice: wire.AlertNotice) -> bool:
        """Whether the local rules have said the same already."""
        if notice.kind not in LOCAL_KINDS:
            return False
        return any(
            since is not None and abs(since - (notice.first_step or 0)) <= WINDOW
            for since in (self._rules.open_since(kind, notice.stream) for kind in LOCAL_KINDS)
        )

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
