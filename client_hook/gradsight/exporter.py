"""From the training thread to the server: a bounded queue, a thread that writes the spool, a thread that sends it.

The training thread only appends to a deque: it takes no lock, wakes nobody and never waits. The exporter thread turns
what is there into frames on disk every 80 ms; the sender thread posts them as often as the server likes, so a server
that hangs cannot keep anything from the disk. After a fork the child starts with a queue and a spool of its own.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Literal
from weakref import WeakSet

from gradsight import spool, wire
from gradsight.errors import ServerRefusedError, TransportError
from gradsight.frames import Frame
from gradsight.hearing import Hearing
from gradsight.rows import Attempt, BatchBuilder, LayerSet, Recorded, Resolvable
from gradsight.transport import Report, Transport, messages, send, sending_spooled

DRAIN_EVERY_S = 0.08
HEARTBEAT_AFTER_S = 2.0
MAX_BACKOFF_S = 5.0
SWEEP_S = 0.1
SEND_AT_BYTES = 256 * 1024
"""So much is sent at once, however long the server would have us gather: more would not make a message longer."""
MAX_READ_BYTES = 4 * 1024 * 1024
MAX_QUEUE_ROWS = 65_536
MAX_QUEUE_VALUES = 4_000_000

logger = logging.getLogger("gradsight")
logger.addHandler(logging.NullHandler())  # telemetry never prints; who wants to see it sets up logging

_living: "WeakSet[Exporter]" = WeakSet()


class Exporter:
    """Queue, spool and sender of one run in one process.

    Args:
        run_id: The run everything belongs to.
        attempt: This launch.
        spool_dir: Where spools live, `.gradsight`.
        connect: Makes the transport; None spools only.
    """

    def __init__(self, run_id: str, attempt: Attempt, spool_dir: Path, connect: Callable[[], Transport] | None) -> None:
        self._run_id = run_id
        self._attempt = attempt
        self._spool_dir = spool_dir
        self._connect = connect
        self._record = wire.RunRecord()
        self._queue: deque[Recorded] = deque()
        self._max_rows = MAX_QUEUE_ROWS
        self._sequences: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._logged: set[str] = set()
        self.hearing = Hearing(self.count_dropped)
        self.heartbeat_after_s = HEARTBEAT_AFTER_S
        self._start_afresh()
        _living.add(self)

    def _start_afresh(self) -> None:
        """Everything that belongs to one process: made at the start, and again in a forked child."""
        self._pid = os.getpid()
        name = f"{self._attempt.attempt_id[:12]}-r{self._attempt.rank}-{self._pid}"
        self._spool = spool.Writer(self._spool_dir / "spool" / self._run_id / name)
        self._layer_sets: dict[str, LayerSet] = {}
        self._sent_layers: set[str] = set()
        self._threads: list[Thread] = []
        self._closing = Event()
        self._has_much = Event()
        self._stopped = False
        self._deadline: float | None = None

    # The training thread

    def submit(self, stream: str, what: Resolvable | wire.Metric | wire.Event, *, is_step: bool = True) -> bool:
        """Take something recorded. Never blocks; False where it was dropped, which is counted."""
        if self._stopped:
            self.count_dropped("after_finish")
            return False
        if not self._threads:
            self._start()
        sequence = None
        if is_step:
            sequence = self._sequences.get(stream, 0)
            self._sequences[stream] = sequence + 1
        if len(self._queue) >= self._max_rows:
            try:
                self._queue.popleft()
                self.count_dropped("queue_full")
            except IndexError:
                pass  # the exporter thread was quicker
        self._queue.append(Recorded(stream, sequence, what))
        return True

    def count_dropped(self, reason: str, num_steps: int = 1, error: BaseException | None = None) -> None:
        """Count what is lost, by reason; the first of each kind goes to the log."""
        self._dropped[reason] = self._dropped.get(reason, 0) + num_steps
        if reason not in self._logged:
            self._logged.add(reason)
            logger.warning("gradsight lost telemetry (%s)", reason, exc_info=error)

    @property
    def dropped(self) -> dict[str, int]:
        """Rows lost so far in this process, by reason."""
        return dict(self._dropped)

    def describe(self, record: wire.RunRecord, *, num_layers: int = 0) -> None:
        """Add to the run's record; it is sent in order with everything else."""
        self._max_rows = min(self._max_rows, max(256, MAX_QUEUE_VALUES // max(1, num_layers)))
        self._record = _with(self._record, record)
        self._spool.set_lead([self._run_frame(self._record)])
        self._spool.append(self._run_frame(record))
        self._start()

    def _run_frame(self, record: wire.RunRecord) -> Frame:
        return Frame("run", self._run_id, "", 0, wire.encode(record))

    def _start(self) -> None:
        if self._threads:
            return
        export = Thread(target=self._export, name="gradsight-export", daemon=True)
        self._threads.append(export)
        if self._connect is not None:
            self._threads.append(Thread(target=self._send, name="gradsight-send", daemon=True))
        for thread in self._threads:
            thread.start()

    def close(self, *, timeout_s: float) -> bool:
        """Write out and send what is left, for at most `timeout_s`; True when the server has all of it.

        Closing twice is fine. In a forked child it closes the child's own part.
        """
        if self._stopped:
            return self._spool.is_empty
        self._deadline = monotonic() + timeout_s
        self._closing.set()
        self._has_much.set()  # the sender waits for either
        self._stopped = True
        for thread in self._threads:
            thread.join(max(0.0, self._deadline - monotonic()) + 0.5)
        if not any(thread.is_alive() for thread in self._threads):
            self._drain()  # what came between the thread's last look and the stop
        self.hearing.close()
        delivered = self._spool.is_empty
        num_lost = self._spool.close()
        if num_lost:
            self.count_dropped("spool_full", num_lost, self._spool.error)
        return delivered

    def forget_after_fork(self) -> None:
        """In a forked child: nothing of the parent's is sent or closed from here."""
        self._queue = deque()
        self._sequences, self._dropped = {}, {}
        self._spool.forget_after_fork()
        self.hearing.forget_after_fork()
        self._start_afresh()
        self._spool.set_lead([self._run_frame(self._record)])

    # The exporter thread

    def _export(self) -> None:
        while not self._closing.wait(DRAIN_EVERY_S):
            self._drain()
        self._drain()

    def _drain(self) -> None:
        """Turn what is in the queue into frames in the spool."""
        entries: list[Recorded] = []
        while self._queue:
            try:
                entries.append(self._queue.popleft())
            except IndexError:
                break  # the training thread dropped it for a newer one
        if entries:
            self._spool_entries(entries)
            if self._spool.num_waiting_bytes >= SEND_AT_BYTES:
                self._has_much.set()

    def _spool_entries(self, entries: list[Recorded]) -> None:
        """Spool them together; where that fails one by one, so that a bad one takes no other along."""
        try:
            for stream, batch, layer_set in BatchBuilder(self._attempt).batches(entries):
                self._spool_batch(stream, batch, layer_set)
        except Exception as error:  # the boundary: whatever it is, training goes on
            if len(entries) == 1:
                self.count_dropped("bad_value", 1, error)
                return
            for entry in entries:
                self._spool_entries([entry])

    def _spool_batch(self, stream: str, batch: wire.Batch, layer_set: LayerSet | None) -> None:
        is_new = layer_set is not None and layer_set.layers_id not in self._layer_sets
        if layer_set is not None and is_new:
            batch.layers = layer_set.names
        batch.dropped = self.dropped
        body = wire.encode(batch)
        wire.decode(body, wire.Batch)  # what no server would take must not take the rest of its batch along
        if layer_set is not None and is_new:
            self._layer_sets[layer_set.layers_id] = layer_set
            self._set_lead()
        frame = Frame("batch", self._run_id, stream, len(batch.step), body)
        num_dropped = self._spool.append(frame)
        if num_dropped:
            self.count_dropped("spool_full", num_dropped, self._spool.error)
        try:
            self.hearing.recorded(stream, batch)
        except Exception as error:  # the boundary: the steps themselves are safe
            self.count_dropped("alert_error", 0, error)

    def _set_lead(self) -> None:
        """Every segment can be sent by itself: it begins with the run's record and the layers' names."""
        lead = [self._run_frame(self._record)]
        for layers_id, layer_set in self._layer_sets.items():
            named = wire.Batch(
                attempt_id=self._attempt.attempt_id,
                attempt_started_at_s=self._attempt.started_at_s,
                layers_id=layers_id,
                layers=layer_set.names,
            )
            lead.append(Frame("batch", self._run_id, "main", 0, wire.encode(named)))
        self._spool.set_lead(lead)

    # The sender thread

    def _send(self) -> None:
        assert self._connect is not None
        transport = self._connect()
        try:
            Sender(self, transport).work()
        except Exception as error:  # the boundary: what is spooled stays for a later process
            self.count_dropped("send_error", 0, error)
        finally:
            transport.close()


class Sender:
    """The sender thread's work: frames from the spool to the server, heartbeats, what the answers ask for."""

    def __init__(self, exporter: Exporter, transport: Transport) -> None:
        self._exporter = exporter
        self._transport = transport
        self._flush_after_s = 0.25
        self._backoff_s = 0.0
        self._last_contact = monotonic()
        self._stream: str | None = None
        self._report = Report()
        self._num_counted: dict[str, int] = {}
        self._sweep = self._new_sweep()

    def work(self) -> None:
        """Until the exporter closes: then until all is sent, the deadline has passed, or nobody answers."""
        exporter = self._exporter
        self._flush()  # the run is on the page before its first steps
        while not self._has_to_end():
            self._flush()
        exporter._threads[0].join()  # the last rows are in the spool once the exporter thread has ended
        while not exporter._spool.is_empty and monotonic() < (exporter._deadline or 0.0):
            if not self._flush():
                return
        if exporter.dropped:
            self._flush(last_word=True)

    def _has_to_end(self) -> bool:
        """Waits until it is time to send again; whether the exporter has been closed meanwhile."""
        exporter = self._exporter
        if self._backoff_s:
            return exporter._closing.wait(self._backoff_s)
        exporter._has_much.wait(self._flush_after_s)
        exporter._has_much.clear()
        return exporter._closing.is_set()

    def _flush(self, *, last_word: bool = False) -> bool:
        """Send what is spooled, or a heartbeat; False where the server did not take it."""
        try:
            frames, position = self._exporter._spool.read(MAX_READ_BYTES)
            while frames:
                for message in messages(frames):
                    self._deliver(*message)
                self._exporter._spool.acknowledge(position)
                frames, position = self._exporter._spool.read(MAX_READ_BYTES)
            self._count("spool_damaged", self._exporter._spool.num_damaged + self._report.num_damaged)
            self._count("spool_deleted", self._exporter._spool.num_deleted)
            if last_word or monotonic() - self._last_contact > self._exporter.heartbeat_after_s:
                heartbeat = self._heartbeat()
                self._deliver(heartbeat, [heartbeat])
            self._sweep_a_little()
            self._backoff_s = 0.0
            return True
        except (TransportError, OSError) as error:
            self._log_once(error)
            self._sweep = self._new_sweep()
            self._backoff_s = min(MAX_BACKOFF_S, max(0.25, self._backoff_s * 2))
            return False

    def _deliver(self, frame: Frame, parts: Sequence[Frame]) -> None:
        exporter = self._exporter
        timeout_s = 10.0 if exporter._deadline is None else max(0.2, exporter._deadline - monotonic())
        record = wire.encode(exporter._record)
        answer, refused = send(self._transport, frame, parts, record=record, timeout_s=timeout_s)
        for part, error in refused:
            self._refused(part, error)
        self._last_contact = monotonic()
        if frame.kind == "batch":
            self._stream = frame.stream
        if answer is not None:
            try:
                exporter.hearing.answered(answer)
            except Exception as error:  # the boundary: what was sent has been taken
                exporter.count_dropped("alert_error", 0, error)
            self._flush_after_s = min(60.0, max(0.05, answer.flush_after_s))
            if answer.layers_needed:
                self._send_layers(frame.stream, record, timeout_s)

    def _refused(self, frame: Frame, error: ServerRefusedError) -> None:
        spool.keep_refused(self._exporter._spool_dir, frame)
        self._exporter.count_dropped("refused", max(1, frame.num_steps), error)

    def _send_layers(self, stream: str, record: bytes, timeout_s: float) -> None:
        for layers_id, layer_set in list(self._exporter._layer_sets.items()):
            frame = self._without_steps(stream, wire.Batch(layers_id=layers_id, layers=layer_set.names))
            send(self._transport, frame, [frame], record=record, timeout_s=timeout_s)

    def _heartbeat(self) -> Frame:
        """A sign of life, with what has been lost so far."""
        exporter = self._exporter
        if self._stream is None:
            return exporter._run_frame(wire.RunRecord())
        started_at_s = exporter._attempt.started_at_s
        return self._without_steps(
            self._stream, wire.Batch(attempt_started_at_s=started_at_s, dropped=exporter.dropped)
        )

    def _without_steps(self, stream: str, batch: wire.Batch) -> Frame:
        batch.attempt_id = self._exporter._attempt.attempt_id
        return Frame("batch", self._exporter._run_id, stream, 0, wire.encode(batch))

    def _new_sweep(self) -> Iterator[None]:
        """Sends what earlier processes have left, a message at a time."""
        return sending_spooled(self._exporter._spool_dir, self._transport, self._report)

    def _count(self, reason: str, num_lost: int) -> None:
        """What the spool has lost in all: steps, or stretches that cannot be read (how many steps, nobody knows)."""
        if num_lost > self._num_counted.get(reason, 0):
            self._exporter.count_dropped(reason, num_lost - self._num_counted.get(reason, 0))
            self._num_counted[reason] = num_lost

    def _sweep_a_little(self) -> None:
        """Send some of what earlier processes have left in this spool, between this run's own batches."""
        until = monotonic() + SWEEP_S
        while monotonic() < until and not self._exporter._closing.is_set():
            if next(self._sweep, StopIteration) is StopIteration:
                return

    def _log_once(self, error: Exception) -> None:
        kind = type(error).__name__
        if kind not in self._exporter._logged:
            self._exporter._logged.add(kind)
            logger.warning("gradsight cannot send, spooling: %s", error)


def _with(record: wire.RunRecord, update: wire.RunRecord) -> wire.RunRecord:
    """The record with the update's fields over it; streams are merged by name."""
    merged = {
        name: value
        for source in (record, update)
        for name in source.__struct_fields__
        if (value := getattr(source, name)) is not wire.UNSET
    }
    if record.streams is not wire.UNSET and update.streams is not wire.UNSET:
        merged["streams"] = {**record.streams, **update.streams}
    return wire.RunRecord(**merged)


def _after_fork_in_child() -> None:
    for exporter in list(_living):
        exporter.forget_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

Status = Literal["finished", "failed"]
