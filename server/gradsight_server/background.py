"""What a server does by itself: old ticks, raw steps past their time and deleted runs go, sparklines are drawn.

Of several servers on one database only the leader does it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gradsight_server.alerts.courier import Courier
from gradsight_server.errors import DatabaseClosedError
from gradsight_server.settings import Settings
from gradsight_server.store import deletion, outbox, retention, silence, sparklines, ticks
from gradsight_server.store.database import Database

ROUND_S = 0.5
"""How often the leader looks what is due, and the others whether it is still there."""
PROMPT_ROUND_S = 0.2
"""The same for what cannot wait until a large run has been deleted."""
TIMEOUT_S = 600.0

_logger = logging.getLogger(__name__)


@dataclass
class Chore:
    """Something to do again and again. It is cut in pieces by itself, so that other writes go on in between."""

    name: str
    every_s: float
    work: Callable[[], object]
    due_at_s: float = field(default=0.0, init=False)
    has_failed: bool = field(default=False, init=False)


def chores(database: Database, settings: Settings) -> list[Chore]:
    """What there is to do for a database."""
    keep = retention.Keep(days=settings.keep_raw_days, steps=settings.keep_raw_steps)
    return [
        Chore("deleting runs", 1.0, lambda: deletion.sweep(database)),
        Chore("drawing sparklines", 2.0, lambda: sparklines.refresh(database, now_s=time.time())),
        Chore("pruning ticks and messages", 60.0, lambda: _prune(database)),
        Chore("removing raw steps", 600.0, lambda: retention.sweep(database, keep, now_s=time.time())),
    ]


def prompt_chores(database: Database, courier: Courier) -> list[Chore]:
    """What must not wait for the others."""
    started_at_s = time.time()
    return [
        Chore("sending messages", 0.0, courier.pump),
        Chore(
            "looking for silent runs",
            2.0,
            lambda: silence.sweep(database, now_s=time.time(), started_at_s=started_at_s),
        ),
    ]


def _prune(database: Database) -> None:
    database.write(lambda conn: ticks.prune(conn, now_s=time.time())).result(TIMEOUT_S)
    database.write(lambda conn: outbox.prune(conn, now_s=time.time())).result(TIMEOUT_S)


class Background:
    """Does the chores while this process leads: in one thread what takes its time, in another what must be prompt."""

    def __init__(self, database: Database, chores: Sequence[Chore], prompt: Sequence[Chore] = ()) -> None:
        self._leadership = database.leadership()
        self._chores = chores
        self._prompt = prompt
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name="gradsight-background", daemon=True),
            threading.Thread(target=self._run_prompt, name="gradsight-prompt", daemon=True),
        ]
        self._is_leader = False

    @property
    def is_leader(self) -> bool:
        """Whether this process does the chores at present."""
        return self._is_leader

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self, *, deadline_s: float = 10.0) -> None:
        """Ends once the piece at hand is done, as far as the deadline allows. Later calls do nothing."""
        self._ending.set()
        until_s = time.monotonic() + deadline_s
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self) -> None:
        while not self._ending.is_set():
            self._is_leader = self._hold()
            if self._is_leader:
                self._do_what_is_due(self._chores)
            self._ending.wait(ROUND_S)
        self._is_leader = False
        self._leadership.give_up()

    def _run_prompt(self) -> None:
        while not self._ending.wait(PROMPT_ROUND_S):
            if self._is_leader:
                self._do_what_is_due(self._prompt)

    def _hold(self) -> bool:
        try:
            return self._leadership.hold()
        except Exception:  # a database out of reach for a while must not end the chores for good
            _logger.warning("could not ask whether this server leads", exc_info=True)
            return False

    def _do_what_is_due(self, chores: Sequence[Chore]) -> None:
        for chore in chores:
            if self._ending.is_set() or chore.due_at_s > time.monotonic():
                continue
            try:
                chore.work()
                chore.has_failed = False
            except DatabaseClosedError:
                return self._ending.set()
            except Exception:  # the other chores are none the worse for it
                if not chore.has_failed:
                    _logger.exception("%s failed; it is tried again", chore.name)
                chore.has_failed = True
            chore.due_at_s = time.monotonic() + chore.every_s
