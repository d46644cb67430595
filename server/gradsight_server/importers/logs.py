"""A log as the diagnosis takes it: of each run and stream in it the steps, what goes with them, and notes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gradsight import wire
from gradsight_server.diagnosis import Context, StreamSteps
from gradsight_server.errors import NothingToReadError
from gradsight_server.exports.lines import BatchLine, RunLine
from gradsight_server.importers import own
from gradsight_server.importers.assembly import Assembly
from gradsight_server.importers.columns import StreamColumns
from gradsight_server.importers.format import Options
from gradsight_server.importers.items import Happened, Point
from gradsight_server.importers.notes import MAX_SHOWN, notes_of
from gradsight_server.importers.placing import Row, Rows
from gradsight_server.importers.reading import Source, items_of, sources_of
from gradsight_server.importers.settings import RunSettings

OWN_FORMAT = ("gradsight", "Gradsight export")


@dataclass(frozen=True, slots=True)
class Part:
    """One stream of one run of a log."""

    run: int
    """From 0 on."""
    run_name: str | None
    stream: str
    num_attempts: int
    steps: StreamSteps
    context: Context


@dataclass(frozen=True, slots=True)
class Log:
    """What a log has to say."""

    name: str
    """What a person calls it: its path."""
    format_name: str
    format_title: str
    parts: tuple[Part, ...]
    notes: tuple[str, ...]

    @property
    def num_runs(self) -> int:
        return len({part.run for part in self.parts})

    def title_of(self, part: Part) -> str:
        """What tells a part from the others; empty for the only one."""
        words = []
        if self.num_runs > 1:
            words.append(part.run_name or f"run {part.run + 1}")
        if sum(1 for other in self.parts if other.run == part.run) > 1:
            words.append(f"stream {part.stream}")
        return ", ".join(words)


class Gathering:
    """Takes the rows of a log."""

    def __init__(self) -> None:
        self.streams: dict[tuple[int, str], StreamColumns] = {}
        self.num_attempts: dict[int, int] = {}
        self.events: list[Happened] = []

    def row(self, row: Row) -> None:
        self._columns_of(row).add(row)

    def rows(self, rows: Rows) -> None:
        self._columns_of(rows).add_many(rows)

    def _columns_of(self, row: Row | Rows) -> StreamColumns:
        columns = self.streams.get((row.run, row.stream))
        if columns is None:
            columns = self.streams[row.run, row.stream] = StreamColumns()
        if row.attempt >= self.num_attempts.get(row.run, 0):
            self.num_attempts[row.run] = row.attempt + 1
        return columns

    def happened(self, run: int, attempt: int, event: Happened) -> None:
        self.events.append(event)

    def parts(self, settings: list[RunSettings]) -> Iterator[Part]:
        for (run, stream), columns in sorted(self.streams.items(), key=lambda pair: pair[0][0]):
            if len(columns.steps):
                of_run = settings[run] if run < len(settings) else RunSettings()
                context = columns.context(of_run, stream)
                yield Part(run, of_run.name, stream, self.num_attempts[run], columns.as_steps(), context)


def read_logs(
    path: Path,
    *,
    format_name: str | None = None,
    options: Options | None = None,
    max_norm: float | None = None,
    name: str | None = None,
) -> list[Log]:
    """The logs at a path; of a folder those that have something to say.

    Args:
        format_name: The format a person names.
        max_norm: The threshold that was in force, over all that the log says.
        name: What the log is called, where not by its path.

    Raises:
        NothingToReadError: there is none with a gradient norm or a loss scale; says what there is.
        SettingsError: there is no such format.
    """
    sources = sources_of(path, format_name, name, options or Options())
    found, problems = [], []
    for source in sources:
        try:
            found.append(read_log(source, options=options, max_norm=max_norm))
        except NothingToReadError as error:
            problems.append(error)
    if not found:
        raise problems[0]
    return found


def read_log(source: Source, *, options: Options | None = None, max_norm: float | None = None) -> Log:
    """
    Raises:
        NothingToReadError
    """
    if source.format is None:
        return _read_own(source)
    gathering = Gathering()
    assembly = Assembly(gathering, name=source.name, max_norm=max_norm)
    assembly.take_all(items_of(source, options or Options()))
    assembly.close()
    return log_of(source, gathering, assembly)


def log_of(source: Source, gathering: Gathering, assembly: Assembly) -> Log:
    """What was gathered of a log that has been read to its end."""
    assert source.format is not None, "an export of ours is not assembled"
    parts = tuple(gathering.parts(assembly.told.settings))
    notes = (*notes_of(assembly), *_events(gathering.events))
    return Log(source.name, source.format.name, source.format.title, parts, notes)


def _events(events: list[Happened]) -> Iterator[str]:
    """What the log tells in words, the first of each kind: a diagnosis is made of numbers, and would not say it."""
    for kind in dict.fromkeys(event.kind for event in events):
        of_kind = [event for event in events if event.kind == kind]
        for event in of_kind[:MAX_SHOWN]:
            yield f"Line {event.line:,}: {' '.join(event.message.split())}"
        if (more := len(of_kind) - MAX_SHOWN) > 0:
            yield f"{more:,} more line{'s' * (more != 1)} like the last."


def _read_own(source: Source) -> Log:
    gathering = Gathering()
    records: list[tuple[str, wire.RunRecord]] = []
    attempts: dict[tuple[int, str], int] = {}
    for message in own.messages(source.path):
        if isinstance(message, RunLine):
            if not records or records[-1][0] != message.run_id:
                records.append((message.run_id, message.record))
        elif isinstance(message, BatchLine):
            run = len(records) - 1
            of_run = sum(1 for known, _ in attempts if known == run)
            attempt = attempts.setdefault((run, message.batch.attempt_id), of_run)
            for row in _rows(run, attempt, message.stream, message.batch):
                gathering.row(row)
    parts = tuple(_with_record(part, records[part.run][1]) for part in gathering.parts([]))
    if not parts:
        raise NothingToReadError(f"{source.name!r} is an export without a step in it.")
    return Log(source.name, *OWN_FORMAT, parts, ())


def _rows(run: int, attempt: int, stream: str, batch: wire.Batch) -> Iterator[Row]:
    columns = {name: values for name, values in batch.columns.items() if name not in wire.TEXT_COLUMNS}
    for i, step in enumerate(batch.step):
        point = Point(i, step)
        for name, values in columns.items():
            value = wire.number(values[i])
            if value is not None:
                point.values[name] = float(value)
        if batch.skip_reason is not wire.UNSET:
            point.skip_reason = batch.skip_reason[i]
        if batch.first_nonfinite_layer is not wire.UNSET:
            point.first_nonfinite_layer = batch.first_nonfinite_layer[i]
        yield Row(run, attempt, stream, 0 if batch.rank is wire.UNSET else batch.rank[i], step, point)


def _with_record(part: Part, record: wire.RunRecord) -> Part:
    streams = {} if record.streams is wire.UNSET else record.streams
    name = None if record.name is wire.UNSET else record.name
    context = Context(
        record=streams.get(part.stream, wire.StreamRecord()),
        metrics=part.context.metrics,
        rank_norms=part.context.rank_norms,
    )
    return Part(part.run, name, part.stream, part.num_attempts, part.steps, context)
