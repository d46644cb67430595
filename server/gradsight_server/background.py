"""What a server does by itself: old ticks, raw steps past their time and deleted runs go, sparklines are drawn.

Of several servers on one database only the leader does it.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gradsight_server.errors import DatabaseClosedError
from gradsight_server.settings import Settings
from gradsight_server.store import deletion, retention, sparklines, ticks
from gradsight_server.store.database import Database

ROUND_S = 0.5
"""How often the leader looks what is due, and the others whether it is still there."""
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
        Chore("pruning ticks", 60.0, lambda: _prune(database)),
        Chore("removing raw steps", 600.0, lambda: retention.sweep(database, keep, now_s=time.time())),
    ]


def _prune(database: Database) -> None:
    database.write(lambda conn: ticks.prune(conn, now_s=time.time())).result(TIMEOUT_S)


class Background:
    """One thread that does the chores while this process leads."""

    def __init__(self, database: Database, chores: Sequence[Chore]) -> None:
        self._leadership = database.leadership()
        self._chores = chores
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gradsight-background", daemon=True)
        self._is_leader = False

    @property
    def is_leader(self) -> bool:
        """Whether this process does the chores at present."""
        return self._is_leader

    def start(self) -> None:
        self._thread.start()

    def close(self, *, deadline_s: float = 10.0) -> None:
        """Ends once the piece at hand is done, as far as the deadline allows. Later calls do nothing."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(deadline_s)

    def _run(self) -> None:
        while not self._ending.is_set():
            self._is_leader = self._hold()
            if self._is_leader:
                self._do_what_is_due()
            self._ending.wait(ROUND_S)
        self._is_leader = False
        self._leadership.give_up()

    def _hold(self) -> bool:
        try:
            return self._leadership.hold()
        except Exception:  # a database out of reach for a while must not end the chores for good
            _logger.warning("could not ask whether this server leads", exc_info=True)
            return False

    def _do_what_is_due(self) -> None:
        for chore in self._chores:
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
