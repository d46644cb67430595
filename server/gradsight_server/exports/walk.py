"""A whole run in the order it is written, a piece at a time: what is read is let go of before the next is asked for."""

from collections.abc import Iterator
from itertools import groupby

from gradsight_server.exports import messages
from gradsight_server.exports.lines import EndLine, Line
from gradsight_server.store import export
from gradsight_server.store.database import Database
from gradsight_server.store.export import Contents, Launch, Slice


def lines(database: Database, contents: Contents, *, stream: str | None, now_s: float) -> Iterator[Line]:
    """All of it. Events come last: one of them ends the run, and a run that has ended lives again by its next step."""
    yield from messages.heads(contents, stream=stream, now_s=now_s)
    yield from messages.introductions(contents)
    losses = {
        attempt.attempt_key: {rank: lost for rank, lost in attempt.dropped.items() if rank != "0"}
        for attempt in contents.attempts
    }
    num_steps = 0
    for part in slices(database, contents.launches, max_layers=contents.max_layers):
        num_steps += len(part.rows)
        yield from messages.batches(part, dropped=losses[part.launch.attempt.attempt_key])
    for launch in contents.launches:
        yield from _metrics(database, launch)
    for attempt in contents.attempts:
        if losses[attempt.attempt_key]:
            yield messages.of_losses(attempt, next(iter(contents.streams.values())), losses[attempt.attempt_key])
    yield from _events(database, contents)
    yield EndLine(num_steps=num_steps)


def slices(database: Database, launches: list[Launch], *, max_layers: int) -> Iterator[Slice]:
    """The steps of these launches; with layer norms unless `max_layers` is 0."""
    for launch in launches:
        first_step: int | None = 0 if launch.last_step >= 0 else None
        while first_step is not None:
            with database.reading() as conn:
                part = export.next_slice(conn, launch, first_step, max_layers=max_layers)
            yield part
            first_step = part.next_step


def _metrics(database: Database, launch: Launch) -> Iterator[Line]:
    after: tuple[str, int] | None = None
    while True:
        with database.reading() as conn:
            some = export.next_metrics(conn, launch.key, after)
        if not some:
            return
        yield from messages.of_metrics(launch.attempt, launch.stream, some)
        after = (some[-1].name, some[-1].step)


def _events(database: Database, contents: Contents) -> Iterator[Line]:
    attempts = {attempt.attempt_key: attempt for attempt in contents.attempts}
    after = ""
    while True:
        with database.reading() as conn:
            some = export.next_events(conn, contents.run_id, after)
        if not some:
            return
        after = some[-1][0]
        kept = sorted((row for row in some if row[1] in contents.streams), key=lambda row: (row[2], row[1]))
        for (attempt_key, stream_key), group in groupby(kept, key=lambda row: (row[2], row[1])):
            events = [row[3] for row in group]
            yield messages.of_events(attempts[attempt_key], contents.streams[stream_key], events)
