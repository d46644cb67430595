"""The thread that judges runs which have changed: each at most every few seconds, all of them within a small budget.

A server judges the runs whose batches came to it. Where several serve one database and a run's batches come to two of
them, both may judge it: the verdict is the same, and what is news is told once, because the run is locked for that.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradsight_server.diagnosis import Diagnosis, diagnose
from gradsight_server.errors import DatabaseClosedError
from gradsight_server.judging.telling import HOLD_S, Teller, Told, is_all_told
from gradsight_server.judging.verdict import in_brief, severity_of
from gradsight_server.store.database import Database
from gradsight_server.store.evidence import evidence, streams_with_steps
from gradsight_server.store.verdicts import Kept, News, keep_verdict, kept_verdict, newest_runs

if TYPE_CHECKING:
    from sqlalchemy import Connection

INTERVAL_S = 2.0
"""A run is judged at most so often."""
BUDGET = 0.04
"""The part of the time in which judging may be at work; with hundreds of runs each is judged less often instead.

By the clock on the wall: where ingest or other processes keep this thread waiting, it takes the smaller part of what
little the server gets. A verdict must not be much late for that, hence the limit. Waiting for a write is not counted.
"""
MOST_REST_S = 4.0
"""The longest rest after a judgement, unless by the processor's clock alone it had to be longer."""
REST = 1 / BUDGET - 1
NUM_AT_START = 50
MAX_REMEMBERED = 10_000
WRITE_WITHIN_S = 30.0

_logger = logging.getLogger(__name__)


def rest_after(took_s: float, worked_s: float) -> float:
    """How long to rest after a judgement, in s, so that judging keeps within its budget.

    Args:
        took_s: By the clock on the wall, without waiting for a write.
        worked_s: By the processor's clock.
    """
    return max(min(REST * took_s, MOST_REST_S), REST * worked_s)


class VerdictKeeper:
    """Keeps `runs.verdict` current. `note` may be called from any thread and costs nothing."""

    def __init__(self, database: Database, *, interval_s: float = INTERVAL_S, hold_s: float = HOLD_S) -> None:
        self._database = database
        self._interval_s = interval_s
        self._hold_s = hold_s
        self._teller = Teller(hold_s=hold_s)
        self._due_s: dict[str, float] = {}
        self._judged_s: dict[str, float] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures: set[str] = set()
        self._waited_s = 0.0

    def start(self) -> None:
        """Begins with the runs that trained last: somebody must judge what came while no server was there."""
        assert self._thread is None, "started twice"
        with self._database.reading() as conn:
            for run_id in newest_runs(conn, limit=NUM_AT_START):
                self.note(run_id)
        self._thread = threading.Thread(target=self._run, name="gradsight-verdicts", daemon=True)
        self._thread.start()

    def note(self, run_id: str) -> None:
        """This run has changed."""
        due_s = self._judged_s.get(run_id, 0.0) + self._interval_s
        with self._changed:
            if self._due_s.setdefault(run_id, due_s) > due_s:
                self._due_s[run_id] = due_s
            self._changed.notify()

    def close(self) -> None:
        """Ends the thread; a run that still waits is judged at the next start."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while (run_id := self._next()) is not None:
            began_s, worked_s, self._waited_s = time.perf_counter(), time.thread_time(), 0.0
            try:
                self._judge(run_id)
            except DatabaseClosedError:
                return
            except Exception as error:  # one run that cannot be judged must not keep the others from it
                if repr(error) not in self._failures:
                    _logger.exception("could not judge run %s", run_id)
                self._failures.add(repr(error))
            took_s, worked_s = time.perf_counter() - began_s - self._waited_s, time.thread_time() - worked_s
            self._closing.wait(rest_after(took_s, worked_s))

    def _next(self) -> str | None:
        """The run that has been due for longest, once one is; None at the end."""
        with self._changed:
            while not self._closing.is_set():
                run_id = min(self._due_s, key=self._due_s.__getitem__, default=None)
                wait_s = None if run_id is None else self._due_s[run_id] - time.monotonic()
                if run_id is not None and wait_s is not None and wait_s <= 0:
                    del self._due_s[run_id]
                    return run_id
                self._changed.wait(wait_s)
        return None

    def _judge(self, run_id: str) -> None:
        if len(self._judged_s) > MAX_REMEMBERED:
            self._judged_s.clear()
        self._judged_s[run_id] = time.monotonic()
        with self._database.reading() as conn:
            before = kept_verdict(conn, run_id)
            diagnoses = {stream: _diagnosis(conn, run_id, stream) for stream in streams_with_steps(conn, run_id)}
        if not diagnoses:  # so that the first steps need not wait
            del self._judged_s[run_id]
            return
        brief, severity, now_s = in_brief(diagnoses), severity_of(diagnoses), time.monotonic()
        self._teller.look(run_id, diagnoses, _told(before), now_s=now_s)

        def judge(before: Kept | None) -> tuple[Kept, Sequence[News]]:
            told, news = self._teller.news(run_id, diagnoses, _told(before), now_s=now_s)
            return Kept(brief | {"told": _as_json(told)}, severity), news

        after, _ = judge(before)
        if after != before:
            began_s = time.perf_counter()
            self._database.write(lambda conn: keep_verdict(conn, run_id, judge, now_s=time.time())).result(
                WRITE_WITHIN_S
            )
            self._waited_s = time.perf_counter() - began_s
        if not is_all_told(diagnoses, _told(after)):
            with self._changed:
                self._due_s.setdefault(run_id, time.monotonic() + self._hold_s)


def _diagnosis(conn: "Connection", run_id: str, stream: str) -> Diagnosis:
    found = evidence(conn, run_id, stream=stream)
    return diagnose(found.steps, found.context, found.facts)


def _told(kept: Kept | None) -> Told:
    """What was told of the run, out of the database's JSON."""
    told: dict[str, dict[str, Sequence[Any]]] = {} if kept is None else kept.verdict.get("told", {})
    return {stream: {name: (said[0], said[1]) for name, said in parts.items()} for stream, parts in told.items()}


def _as_json(told: Told) -> dict[str, dict[str, list[str]]]:
    return {stream: {name: list(said) for name, said in parts.items()} for stream, parts in told.items()}
