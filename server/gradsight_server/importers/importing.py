"""One log from its items to runs at a destination, whichever format it is in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from gradsight import wire
from gradsight_server.exports.lines import RunLine
from gradsight_server.importers import own
from gradsight_server.importers.assembly import Assembly, Sink
from gradsight_server.importers.format import Options
from gradsight_server.importers.items import Happened
from gradsight_server.importers.logs import OWN_FORMAT
from gradsight_server.importers.notes import notes_of
from gradsight_server.importers.placing import Row, Rows
from gradsight_server.importers.reading import Source, items_of
from gradsight_server.importers.sending import Destination, Sending, SentRun, identity_of


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants of an import."""

    options: Options = field(default_factory=Options)
    max_norm: float | None = None
    project: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Imported:
    """What was made of a log."""

    format_name: str
    format_title: str
    runs: list[SentRun]
    notes: list[str]


class Both(Sink):
    """Gives rows to two sinks: one that sends them, one that gathers them."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def row(self, row: Row) -> None:
        for sink in self._sinks:
            sink.row(row)

    def rows(self, rows: Rows) -> None:
        for sink in self._sinks:
            sink.rows(rows)

    def happened(self, run: int, attempt: int, event: Happened) -> None:
        for sink in self._sinks:
            sink.happened(run, attempt, event)


def sending_of(source: Source, destination: Destination, wish: Wish, *, is_whole: bool = True) -> Sending:
    """What sends a log's rows."""
    assert source.format is not None, "an export of ours is sent as it is"
    title = Path(source.name).name
    return Sending(
        destination,
        identity=identity_of(source.path) if source.identity is None else source.identity,
        name=wish.name or title,
        project=wish.project,
        config={"format": source.format.name, "file": title},
        is_whole=is_whole,
    )


def import_log(
    source: Source,
    destination: Destination,
    wish: Wish,
    *,
    is_whole: bool = True,
    on_start: Callable[[Assembly, Sending], None] = lambda assembly, sending: None,
) -> Imported:
    """Makes runs of a log.

    Args:
        is_whole: Whether nothing more will be written to it.
        on_start: Called before the first item is read.

    Raises:
        NothingToReadError: there was nothing about gradients in it, and nothing was sent.
    """
    if source.format is None:
        return import_own(source, destination, wish)
    sending = sending_of(source, destination, wish, is_whole=is_whole)
    assembly = sending.assembly = Assembly(sending, name=source.name, max_norm=wish.max_norm)
    on_start(assembly, sending)
    assembly.take_all(items_of(source, wish.options))
    assembly.close()
    sending.close()
    return Imported(source.format.name, source.format.title, list(sending.runs.values()), notes_of(assembly))


def import_own(source: Source, destination: Destination, wish: Wish) -> Imported:
    """Sends what brought these runs to the server they were exported from, as it was.

    Raises:
        NothingToReadError: the export is damaged; what came before is there by then.
    """
    runs: dict[str, SentRun] = {}
    run_id = ""
    for message in own.messages(source.path):
        if isinstance(message, RunLine):
            record, run_id = message.record, message.run_id
            if wish.project is not None:
                record.project = wish.project
            if wish.name is not None:
                record.name = wish.name
            destination.put_run(run_id, record)
            if message.notes or message.is_archived:
                destination.annotate(run_id, notes=message.notes, is_archived=message.is_archived)
            name = run_id if record.name is wire.UNSET else record.name
            runs.setdefault(run_id, SentRun(run_id, name))
        else:
            destination.post_batch(run_id, message.stream, message.batch)
            runs[run_id].streams[message.stream] = None
            ranks = [0] * len(message.batch.step) if message.batch.rank is wire.UNSET else message.batch.rank
            runs[run_id].num_steps += ranks.count(0)
    return Imported(*OWN_FORMAT, list(runs.values()), [])
