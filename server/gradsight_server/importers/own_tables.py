"""Our own CSV and Parquet exports, a row for each step, as the batches that bring these rows back."""

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gradsight import wire
from gradsight_server.errors import NothingToReadError
from gradsight_server.exports.lines import FORMAT, BatchLine, RunLine
from gradsight_server.exports.parquet import LAYERS_KEY, RUN_KEY
from gradsight_server.exports.table import KEY, ORIGIN

BATCH_ROWS = 2_000
BATCH_BYTES = 2**22
NEEDED = (*KEY, *ORIGIN)

Message = RunLine | BatchLine
Opened = io.BufferedReader | gzip.GzipFile
Row = dict[str, Any]


class _Owner(NamedTuple):
    """What the rows of a batch have in common."""

    run_id: str
    stream: str
    attempt_id: str
    started_at_s: float
    rank: int
    layers_id: str | None
    has_steps: bool
    """Else only layer norms are known of these steps."""


def of_csv(path: Path, file: Opened) -> Iterator[Message]:
    """
    Raises:
        NothingToReadError: names the line and the column that cannot be right.
    """
    with io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        reader = csv.DictReader(text)
        names = set(reader.fieldnames or ())
        if unknown := names - {*NEEDED, *wire.COLUMNS}:
            raise NothingToReadError(f"{path} has columns that no export has: {', '.join(sorted(unknown))}.")
        if missing := [name for name in NEEDED if name not in names]:
            raise NothingToReadError(f"{path} lacks columns that an export has: {', '.join(missing)}.")
        yield from _messages(_values(path, reader), wire.RunRecord(), {})


def _values(path: Path, reader: "csv.DictReader[str]") -> Iterator[Row]:
    for row in reader:
        if None in row or None in row.values():
            raise NothingToReadError(f"{path}:{reader.line_num} has not as many values as there are columns.")
        for name, text in row.items():
            if name in ("stream", "attempt_id"):  # an empty one is a name too
                continue
            try:
                row[name] = _READ.get(name, str)(text) if text else None
            except ValueError:
                raise NothingToReadError(f"{path}:{reader.line_num}: {name} is no such value: {text!r}.") from None
        yield row


def is_own_parquet(path: Path) -> bool:
    import pyarrow as pa  # late: an extra
    import pyarrow.parquet as pq

    try:
        return RUN_KEY in (pq.read_schema(path).metadata or {})
    except pa.ArrowInvalid:  # cut off: without its end nothing in it can be found
        return False


def of_parquet(path: Path) -> Iterator[Message]:
    """
    Raises:
        NothingToReadError: it is no export, or cut off.
    """
    import pyarrow as pa  # late: an extra
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise NothingToReadError(f"{path} cannot be read as Parquet: {error}.") from error
    with file:
        known = file.schema_arrow.metadata or {}
        if RUN_KEY not in known:
            raise NothingToReadError(f"{path} is no export of a run: its metadata has no {RUN_KEY.decode()}.")
        head = msgspec.json.decode(known[RUN_KEY], type=RunLine)
        names = msgspec.json.decode(known[LAYERS_KEY], type=dict[str, list[list[str]]])
        yield head
        rows = (row for part in file.iter_batches(BATCH_ROWS) for row in _rows_of(part))
        yield from (line for line in _messages(rows, head.record, names) if isinstance(line, BatchLine))


def _rows_of(part: Any) -> Iterator[Row]:
    """Rows of an Arrow batch; norms as bytes, so that a hundred thousand of them are not as many objects."""
    norms = part.column("layer_norms")
    for i, row in enumerate(part.drop_columns(["layer_norms"]).to_pylist()):
        one = norms[i].values
        if one is not None:
            row["layer_norms"] = one.fill_null(wire.NO_GRADIENT).to_numpy().astype("<f4").tobytes()
        yield row


def _messages(rows: Iterable[Row], record: wire.RunRecord, names: dict[str, list[list[str]]]) -> Iterator[Message]:
    """Some rows at a time, those that can go together in a batch of their own: ranks take turns in a table."""
    place: tuple[str, ...] = ()
    waiting: dict[_Owner, list[Row]] = {}
    num_rows = num_bytes = 0
    batches = _Batches(names)
    for row in rows:
        here = (row["run_id"], row["stream"], row["attempt_id"])
        if here != place or num_rows >= BATCH_ROWS or num_bytes >= BATCH_BYTES:
            yield from batches.of(waiting)
            waiting, num_rows, num_bytes = {}, 0, 0
        if here[:1] != place[:1]:
            yield RunLine(format=FORMAT, run_id=row["run_id"], record=record)
            batches = _Batches(names)
        place = here
        waiting.setdefault(_owner_of(row), []).append(row)
        num_rows += 1
        num_bytes += len(row.get("layer_norms") or b"")
    yield from batches.of(waiting)


def _owner_of(row: Row) -> _Owner:
    where = (row["run_id"], row["stream"], row["attempt_id"], row["attempt_started_at_s"], row["rank"])
    return _Owner(*where, row.get("layers_id"), row["wall_time_s"] is not None)


class _Batches:
    """Makes the batches of one run."""

    def __init__(self, names: dict[str, list[list[str]]]) -> None:
        self._names = dict(names)
        self._carriers: dict[tuple[str, str, int], Row] = {}

    def of(self, waiting: dict[_Owner, list[Row]]) -> Iterator[BatchLine]:
        for owner, rows in sorted(waiting.items(), key=lambda item: not item[0].has_steps):
            who = (owner.stream, owner.attempt_id, owner.rank)
            if owner.has_steps:
                self._carriers[who] = rows[-1]
                steps = rows
            elif owner.rank == 0:
                steps = []
            elif who in self._carriers:  # one of its steps again, by which the layers are known to be this rank's
                steps = [self._carriers[who]]
            else:
                continue
            yield BatchLine(stream=owner.stream, batch=self._batch(owner, rows, steps))

    def _batch(self, owner: _Owner, rows: list[Row], steps: list[Row]) -> wire.Batch:
        batch = wire.Batch(attempt_id=owner.attempt_id, attempt_started_at_s=owner.started_at_s)
        if steps:
            batch.step = [row["step"] for row in steps]
            batch.wall_time_s = [row["wall_time_s"] for row in steps]
        if steps and owner.rank:
            batch.rank = [owner.rank] * len(steps)
        for name in wire.COLUMNS:
            values = [row.get(name) for row in steps]
            if any(value is not None for value in values):
                setattr(batch, name, values)
        if owner.layers_id is not None:
            batch.layers_id = owner.layers_id
            batch.layers = self._names.pop(owner.layers_id, None)  # type: ignore[assignment]  # lists of names will do
            batch.layer_step = [row["step"] for row in rows]
            batch.layer_norms = b"".join(row["layer_norms"] for row in rows)
        return batch


def _true_or_false(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_READ: dict[str, Callable[[str], Any]] = {name: float for name in ("wall_time_s", "attempt_started_at_s")}
_READ |= {name: float for name in wire.FLOAT_COLUMNS}
_READ |= {name: int for name in ("attempt", "rank", "step", *wire.INTEGER_COLUMNS)}
_READ["skipped"] = _true_or_false
