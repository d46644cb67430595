"""The one thread that writes: it takes all that waits and commits it together."""

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from sqlalchemy import Connection

from gradsight_server.errors import DatabaseClosedError, DiskFullError
from gradsight_server.store.faults import explained, is_passing
from gradsight_server.store.prepared import execute

T = TypeVar("T")
Work = Callable[[Connection], Any]
Job = tuple[Work, Future[Any]]
Outcome = tuple[Any, BaseException | None]

MAX_TRIES = 5
"""Of a work that another replica's transaction stands in the way of."""

_logger = logging.getLogger(__name__)


class GroupWriter:
    """Runs works one after another, many in one transaction, each in a savepoint of its own."""

    def __init__(
        self,
        begin: Callable[[], AbstractContextManager[Connection]],
        before_commit: Callable[[Connection], None],
        *,
        on_commit: list[Callable[[], None]],
        on_end: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._before_commit = before_commit
        self._on_commit = on_commit
        self._on_end = on_end
        self._waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.is_full = False
        """The disk had no room for what was written last."""

    @property
    def queue_depth(self) -> int:
        """How many works wait for the next transaction."""
        return self._waiting.qsize()

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """The future of what `work` will return once it is committed. Never blocks."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise DatabaseClosedError("The database is closed; nothing more can be written.")
            self._waiting.put((work, future))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gradsight-writer", daemon=True)
                self._thread.start()
        return future

    def close(self, deadline_s: float) -> None:
        """Commits what waits; what is still waiting at the deadline fails with DatabaseClosedError."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._waiting.put(None)
        if self._thread is None:
            return self._on_end()
        self._thread.join(deadline_s)
        if self._thread.is_alive():
            self._abandon(deadline_s)

    def _abandon(self, deadline_s: float) -> None:
        for _, future in self._take():
            future.set_exception(DatabaseClosedError(f"The database was closed; {deadline_s} s were not enough."))
        self._waiting.put(None)

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            if jobs := self._take(first):
                self._commit(jobs)
        self._on_end()

    def _take(self, job: Job | None = None) -> list[Job]:
        """Whatever waits now, without those whose caller has given up."""
        jobs = [job] if job is not None else []
        while True:
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._waiting.put(None)  # closing: the loop must see it after this group
                break
            jobs.append(job)
        return [(work, future) for work, future in jobs if future.set_running_or_notify_cancel()]

    def _commit(self, jobs: list[Job], tries: int = 1) -> None:
        try:
            with self._begin() as conn:
                outcomes = [_alone(conn, jobs[0][0])] if len(jobs) == 1 else [_attempt(conn, work) for work, _ in jobs]
                self._before_commit(conn)
        except BaseException as error:  # the transaction is lost: every caller must hear of it
            outcomes = [(None, error)] * len(jobs)
        again: list[Job] = []
        for job, (value, problem) in zip(jobs, outcomes, strict=True):
            if problem is None:
                self.is_full = False
                job[1].set_result(value)
            elif tries < MAX_TRIES and is_passing(problem):
                again.append(job)
            else:
                why = explained(problem)
                self.is_full = self.is_full or isinstance(why, DiskFullError)
                job[1].set_exception(why)
        if any(problem is None for _, problem in outcomes):
            self._tell()
        if again:
            self._commit(again, tries + 1)

    def _tell(self) -> None:
        for callback in list(self._on_commit):
            try:
                callback()
            except Exception:  # a listener's fault must not stop the writing
                _logger.exception("a listener to commits failed")


def _alone(conn: Connection, work: Work) -> Outcome:
    """What came of a work that has the transaction to itself: where it raises, the transaction is what goes back."""
    return work(conn), None


def _attempt(conn: Connection, work: Work) -> Outcome:
    """What came of one work. It raises where the savepoint is gone (a full disk rolls all back): the group is lost."""
    execute(conn, "SAVEPOINT work")
    try:
        value = work(conn)
    except BaseException as error:  # it belongs to the caller, who finds it in the future
        execute(conn, "ROLLBACK TO SAVEPOINT work")
        execute(conn, "RELEASE SAVEPOINT work")
        return None, error
    execute(conn, "RELEASE SAVEPOINT work")
    return value, None
