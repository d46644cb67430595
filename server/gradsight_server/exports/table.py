"""A row for each step, and CSV of it: what is not recorded is empty, what is not finite is a word."""

import csv
import io
from collections.abc import Iterable, Iterator

from gradsight import wire
from gradsight_server.store.export import Launch, Slice

KEY = ("stream", "attempt", "rank", "step", "wall_time_s")
ORIGIN = ("attempt_id", "attempt_started_at_s", "run_id")
"""What else it takes to bring the rows to where they were."""
COLUMNS = (*KEY, *wire.COLUMNS, *ORIGIN)


def by_stream(launches: Iterable[Launch]) -> list[Launch]:
    """In the order of a table: a stream's attempts follow each other as they are numbered."""
    return sorted(launches, key=lambda launch: (launch.key[1], launch.attempt.number))


def csv_text(parts: Iterable[Slice]) -> Iterator[bytes]:
    """The header, and then a piece for each slice."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for part in parts:
        launch = part.launch
        head = (launch.stream, launch.attempt.number)
        origin = (launch.attempt.attempt_id, launch.attempt.started_at_s, launch.key[0])
        skipped = 3 + wire.COLUMNS.index("skipped")
        for row in part.rows:
            values = ["" if value is None else value for value in row]
            values[:2] = row[1], row[0]
            if row[skipped] is not None:
                values[skipped] = "true" if row[skipped] else "false"
            writer.writerow((*head, *values, *origin))
        yield text.getvalue().encode()
        text.seek(0)
        text.truncate()
    yield text.getvalue().encode()
