"""Rows of a log as the messages a training process would send: the run's record, then batches, in bounded memory.

The same log gives the same messages again, so that sending it twice changes nothing, and a grown one adds to it.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gradsight import wire
from gradsight_server.importers.assembly import Assembly, Sink
from gradsight_server.importers.items import Happened, Point
from gradsight_server.importers.notes import notes_of
from gradsight_server.importers.opening import PACKED_SUFFIXES
from gradsight_server.importers.placing import Row, Rows

BATCH_ROWS = 2_000
BATCH_VALUES = 500_000
"""Layer norms and metrics of a batch count too."""
FIRST_MOMENT_S, LAST_MOMENT_S = 1e8, 1e11
"""UTC seconds; what lies before 1973 counts from the start of a training."""
TAG = "imported"
NUM_METRICS = wire.MAX_METRIC_NAMES
RESERVED = 8
"""So many names are kept for metrics of an evaluation, which may come late."""
EVALUATIONS = ("val", "eval", "test", "dev")


class Destination(Protocol):
    """Where messages go."""

    def put_run(self, run_id: str, record: wire.RunRecord) -> None: ...

    def post_batch(self, run_id: str, stream: str, batch: wire.Batch) -> None: ...

    def annotate(self, run_id: str, *, notes: str, is_archived: bool) -> None: ...


@dataclass(slots=True)
class SentRun:
    """A run that was made."""

    run_id: str
    name: str
    streams: dict[str, None] = field(default_factory=dict)
    num_steps: int = 0


@dataclass(slots=True)
class _Gathered:
    """Rows of one stream and attempt that wait to be sent."""

    rows: dict[tuple[int, int], Row | Rows] = field(default_factory=dict)
    """By rank and (first) step: a row that came once more has more in it."""
    num_rows: int = 0
    metrics: list[wire.Metric] = field(default_factory=list)
    events: list[wire.Event] = field(default_factory=list)
    num_values: int = 0


def identity_of(path: Path) -> str:
    """What stays of a log's place while it grows, is packed, or is reached another way: its name and its folder's."""
    whole = path.resolve()
    name = whole.name
    while Path(name).suffix in PACKED_SUFFIXES:
        name = name.removesuffix(Path(name).suffix)
    return f"{whole.parent.name}/{name}"


def run_id_of(identity: str, run: int, first: Point) -> str:
    """A run's id, from where its log lies and how it begins: its first numbers, since names may be understood anew."""
    numbers = sorted(map(repr, (*first.values.values(), *first.metrics.values())))
    text = json.dumps([identity, run, first.stream, repr(first.step), numbers])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Sending(Sink):
    """Sends the rows of one log.

    Args:
        identity: See `identity_of`.
        config: What is told of the import beside what is found in the log.
        is_whole: Ends each run with a `finished` event; not where the log is still written.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        identity: str,
        name: str,
        project: str | None,
        config: dict[str, Any],
        is_whole: bool = True,
    ) -> None:
        self._destination = destination
        self._identity = identity
        self._name = name
        self._project = project
        self._config = config
        self._is_whole = is_whole
        self._gathered: dict[tuple[int, int, str], _Gathered] = {}
        self._newest = (0, 0)
        self._stream_names: dict[str, str] = {}
        self._started_at_s: dict[tuple[int, int], float | None] = {}
        self._last_time_s: dict[int, float] = {}
        self._metric_names: dict[int, set[str]] = {}
        self._records: dict[int, wire.RunRecord] = {}
        self._attempts: dict[int, set[tuple[int, str]]] = {}
        self.runs: dict[int, SentRun] = {}
        self.assembly: Assembly | None = None
        """Set once there is one: it knows settings and notes."""
        self.on_sent: Callable[[], None] = lambda: None

    def row(self, row: Row) -> None:
        key, gathered = self._gathered_of(row)
        point = row.point
        if point.metrics:
            gathered.metrics += self._metrics(row.run, [row.step], {name: [it] for name, it in point.metrics.items()})
            gathered.num_values += len(point.metrics)
        if point.values or point.layer_norms:
            gathered.num_rows += (row.rank, row.step) not in gathered.rows
            gathered.rows[row.rank, row.step] = row
            gathered.num_values += len(point.layer_norms)
        self._send_if_full(key, gathered)

    def rows(self, rows: Rows) -> None:
        while len(rows):
            key, gathered = self._gathered_of(rows)
            num = BATCH_ROWS - gathered.num_rows
            piece, rows = rows[:num], rows[num:]
            metrics = {name: column.tolist() for name, column in piece.points.metrics.items()}
            gathered.metrics += self._metrics(piece.run, piece.step.tolist(), metrics)
            gathered.num_values += len(metrics) * len(piece)
            gathered.num_rows += len(piece)
            gathered.rows[piece.rank, int(piece.step[0])] = piece
            self._send_if_full(key, gathered)

    def _gathered_of(self, row: Row | Rows) -> tuple[tuple[int, int, str], _Gathered]:
        stream = self._stream_names.get(row.stream)
        if stream is None:
            stream = self._stream_names[row.stream] = _stream_name(row.stream)
        key = (row.run, row.attempt, stream)
        gathered = self._gathered.get(key)
        if gathered is None:
            if (row.run, row.attempt) > self._newest:
                self._newest = row.run, row.attempt
                self.flush()  # nothing more is to be expected of the attempts before
            gathered = self._gathered[key] = _Gathered()
        return key, gathered

    def _send_if_full(self, key: tuple[int, int, str], gathered: _Gathered) -> None:
        if gathered.num_rows >= BATCH_ROWS or gathered.num_values >= BATCH_VALUES:
            self._send(key)

    def happened(self, run: int, attempt: int, event: Happened) -> None:
        gathered = self._gathered.setdefault((run, attempt, _stream_name(event.stream)), _Gathered())
        step = int(event.step) if event.step is not None and 0 <= event.step <= wire.MAX_STEP else None
        gathered.events.append(
            wire.Event(kind=_text(event.kind, 64) or "log", step=step, message=_text(event.message, 4096))
        )

    def flush(self) -> None:
        """Sends all that waits."""
        for key in list(self._gathered):
            self._send(key)

    def close(self) -> None:
        """Sends what waits, and what was learnt on the way."""
        self.flush()
        for run in self.runs:
            self._put(run, with_notes=True)
            if self._is_whole:
                self._end(run)

    # One message each

    def _put(self, run: int, *, with_notes: bool = False) -> None:
        assembly = self.assembly
        assert assembly is not None, "set by whoever sends"
        settings = assembly.told.settings[run]
        sent = self.runs[run]
        told = self._config | {"settings": settings.as_config(), "meanings": _meanings(assembly)}
        record = wire.RunRecord(name=sent.name, tags=[TAG], config={"import": told})
        if with_notes:
            record.config = {"import": told | {"notes": notes_of(assembly)}}
        if self._project is not None:
            record.project = self._project
        if settings.total_steps is not None:
            record.total_steps = settings.total_steps
        if settings.world_size is not None:
            record.world_size = settings.world_size
        record.streams = {stream: settings.record(stream) for stream in sent.streams}
        started = [time_s for (of_run, _), time_s in self._started_at_s.items() if of_run == run and time_s is not None]
        if started:
            record.started_at_s = min(started)
        if self._records.get(run) != record:
            self._records[run] = record
            self._destination.put_run(sent.run_id, record)

    def _send(self, key: tuple[int, int, str]) -> None:
        gathered = self._gathered.pop(key)
        run, attempt, stream = key
        rows = list(gathered.rows.values())
        if not rows and run not in self.runs:
            if gathered.metrics or gathered.events:
                self._gathered[key] = gathered  # a run is made by its first step
            return
        self._begin(run, attempt, stream, rows)
        batch = _batch(rows)
        batch.attempt_id = f"import-{attempt + 1}"
        batch.attempt_started_at_s = self._started_at_s.get((run, attempt))
        batch.metrics, batch.events = gathered.metrics, gathered.events
        sent = self.runs[run]
        for piece in _pieces(batch):
            self._destination.post_batch(sent.run_id, stream, piece)
        sent.num_steps += sum(len(row) if isinstance(row, Rows) else 1 for row in rows if row.rank == 0)
        self._attempts.setdefault(run, set()).add((attempt, stream))
        self.on_sent()

    def _begin(self, run: int, attempt: int, stream: str, rows: list[Row | Rows]) -> None:
        times = [time_s for time_s in _moments(rows) if time_s is not None]
        if times:
            self._last_time_s[run] = max(times[-1], self._last_time_s.get(run, 0.0))
        if (run, attempt) not in self._started_at_s:
            before = self._started_at_s.get((run, attempt - 1))
            first = times[0] if times else None
            if first is not None and before is not None:
                first = max(first, before + 1e-3)  # attempts are shown in the order they started
            self._started_at_s[run, attempt] = first
        sent = self.runs.get(run)
        if sent is None:
            assembly = self.assembly
            assert assembly is not None, "set by whoever sends"
            first_point = assembly.first_points[run]
            name = assembly.told.settings[run].name or (self._name if run == 0 else f"{self._name} #{run + 1}")
            sent = self.runs[run] = SentRun(run_id_of(self._identity, run, first_point), _text(name, 256))
        if stream not in sent.streams:
            sent.streams[stream] = None
            self._put(run)

    def _end(self, run: int) -> None:
        attempt, stream = max(self._attempts[run])
        event = wire.Event(kind="finished", message="The log ends here.", wall_time_s=self._last_time_s.get(run))
        batch = wire.Batch(attempt_id=f"import-{attempt + 1}", events=[event])
        batch.attempt_started_at_s = self._started_at_s.get((run, attempt))
        self._destination.post_batch(self.runs[run].run_id, stream, batch)

    def _metrics(self, run: int, steps: list[int], metrics: dict[str, list[float]]) -> Iterable[wire.Metric]:
        names = self._metric_names.setdefault(run, set())
        known = {}
        for whole, values in metrics.items():
            name = _text(whole, 256)
            if name not in names:
                is_evaluation = any(part in name.lower() for part in EVALUATIONS)
                if not name or len(names) >= (NUM_METRICS if is_evaluation else NUM_METRICS - RESERVED):
                    continue
                names.add(name)
            known[name] = values
        if not known:
            return
        for step, *row in zip(steps, *known.values(), strict=True):
            for name, value in zip(known, row, strict=True):
                yield wire.Metric(step=step, name=name, value=value)


def _meanings(assembly: Assembly) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [
        {name: _word(value) for name, value in asdict(meaning).items() if value not in (None, "", False)}
        for meaning in assembly.told.meanings
    ]


def _word(value: Any) -> Any:
    return wire.word(value) if isinstance(value, float) else value


def _moment(time_s: float | None) -> float | None:
    return time_s if time_s is not None and FIRST_MOMENT_S < time_s < LAST_MOMENT_S else None


def _text(text: str, most: int) -> str:
    """Without what no database takes."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:most]


def _stream_name(text: str) -> str:
    """As near to the log's own name as a stream may be called."""
    printable = re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", _text(text, 256))
    return "/".join(part if part not in (".", "..") else "_" for part in printable.split("/")) or "main"


def _moments(rows: list[Row | Rows]) -> list[float | None]:
    moments: list[float | None] = []
    for row in rows:
        if isinstance(row, Row):
            moments.append(_moment(row.point.wall_time_s))
        elif row.points.wall_time_s is None:
            moments += [None] * len(row)
        else:
            moments += map(_moment, row.points.wall_time_s.tolist())
    return moments


def _batch(rows: list[Row | Rows]) -> wire.Batch:
    kept = [row for row in rows if isinstance(row, Rows) or row.point.values]
    steps = [row.step.tolist() if isinstance(row, Rows) else [row.step] for row in kept]
    batch = wire.Batch(step=[step for part in steps for step in part])
    of_parts = [_values(row) for row in kept]
    for name in dict.fromkeys(name for values in of_parts for name in values):
        column: list[float | None] = []
        for values, part in zip(of_parts, steps, strict=True):
            column += values.get(name) or [None] * len(part)
        if name in wire.FLOAT_COLUMNS:
            setattr(batch, name, column)
        elif name == "skipped":
            batch.skipped = [None if value is None or math.isnan(value) else value != 0 for value in column]
        elif name in wire.INTEGER_COLUMNS:
            setattr(batch, name, [_count(value) for value in column])
    times = _moments(kept)
    if times.count(None) < len(times):
        batch.wall_time_s = times
    if any(row.rank for row in kept):
        batch.rank = [row.rank for row, part in zip(kept, steps, strict=True) for _ in part]
    _put_texts(batch, kept, steps)
    _put_layers(batch, [row for row in rows if isinstance(row, Row) and row.point.layer_norms and row.rank == 0])
    return batch


def _values(row: Row | Rows) -> dict[str, list[float]]:
    if isinstance(row, Row):
        return {name: [value] for name, value in row.point.values.items()}
    return {name: column.tolist() for name, column in row.points.values.items()}


def _put_texts(batch: wire.Batch, rows: list[Row | Rows], steps: list[list[int]]) -> None:
    """Columns of rows have none."""
    reasons: list[str | None] = []
    layers: list[str | None] = []
    for row, part in zip(rows, steps, strict=True):
        reasons += [row.point.skip_reason] if isinstance(row, Row) else [None] * len(part)
        layers += [row.point.first_nonfinite_layer] if isinstance(row, Row) else [None] * len(part)
    if any(reasons):
        batch.skip_reason = [reason if reason in wire.SKIP_REASONS else None for reason in reasons]  # type: ignore[misc]
    if any(layers):
        batch.first_nonfinite_layer = [_text(layer or "", 1024) or None for layer in layers]


def _count(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value < 2**31 else None


def _put_layers(batch: wire.Batch, rows: list[Row]) -> None:
    if not rows:
        return
    names = list(dict.fromkeys(name for row in rows for name in row.point.layer_norms))[: wire.MAX_LAYERS]
    texts = [_text(name, 1024) or f"layer {i}" for i, name in enumerate(names)]
    batch.layers = list(texts)
    batch.layer_step = [row.step for row in rows]
    batch.layer_norms = wire.pack_norms([[row.point.layer_norms.get(name) for name in names] for row in rows])


def _pieces(batch: wire.Batch) -> Iterable[wire.Batch]:
    """The batch, and further ones where it has more metrics or events than fit into one."""
    most = wire.MAX_STEPS_PER_BATCH
    metrics, events = batch.metrics, batch.events
    batch.metrics, batch.events = metrics[:most], events[:most]
    yield batch
    for start in range(most, max(len(metrics), len(events)), most):
        yield wire.Batch(
            attempt_id=batch.attempt_id,
            attempt_started_at_s=batch.attempt_started_at_s,
            metrics=metrics[start : start + most],
            events=events[start : start + most],
        )
