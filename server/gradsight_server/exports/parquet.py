"""Parquet: the table's rows with the layer norms of each as a list; what the run says of itself is in its metadata."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np

from gradsight import wire
from gradsight_server.errors import InvalidRequestError
from gradsight_server.exports.lines import RunLine
from gradsight_server.exports.table import COLUMNS
from gradsight_server.store.export import Contents, Slice

ROW_GROUP_ROWS = 20_000
ROW_GROUP_NORMS = 2**20
RUN_KEY, LAYERS_KEY = b"gradsight_run", b"gradsight_layers"
LAYER_COLUMNS = ("layers_id", "layer_norms")
"""Which layers, by the names in the metadata; and their norms, null where a layer had no gradient."""


def check_installed() -> None:
    """
    Raises:
        InvalidRequestError: pyarrow is not there.
    """
    try:
        import pyarrow.parquet  # noqa: F401  # late: an extra, and a tenth of a second to import
    except ImportError:
        raise InvalidRequestError(
            "format 'parquet' needs pyarrow where the server runs (pip install 'gradsight[parquet]'); "
            "'csv' and 'jsonl' are there without."
        ) from None


def parquet_bytes(contents: Contents, head: RunLine, parts: Iterable[Slice]) -> Iterator[bytes]:
    """The file in pieces, one for each row group: no more than a row group is held in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = {layers_id: names for layers_id, names in contents.layers.items() if names is not None}
    known = {RUN_KEY: msgspec.json.encode(head), LAYERS_KEY: msgspec.json.encode(names)}
    schema = _schema(pa).with_metadata(known)
    sink = _Sink()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in _groups(parts):
            writer.write_table(_table(pa, schema, group), row_group_size=2**31 - 1)
            yield sink.taken()
    yield sink.taken()


class _Sink:
    """A file that is only written to, from front to back, and emptied while it grows."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._num_bytes = 0
        self.closed = False

    def write(self, some: bytes) -> int:
        self._parts.append(bytes(some))
        self._num_bytes += len(some)
        return len(some)

    def tell(self) -> int:
        return self._num_bytes

    def flush(self) -> None:
        """There is nothing behind it."""

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _schema(pa: Any) -> Any:
    types = {name: pa.float64() for name in ("wall_time_s", "attempt_started_at_s", *wire.FLOAT_COLUMNS)}
    types |= {name: pa.int32() for name in ("attempt", "rank", *wire.INTEGER_COLUMNS)}
    types |= {"step": pa.int64(), "skipped": pa.bool_(), "layer_norms": pa.list_(pa.float32())}
    return pa.schema([(name, types.get(name, pa.string())) for name in (*COLUMNS, *LAYER_COLUMNS)])


def _groups(parts: Iterable[Slice]) -> Iterator[list[Slice]]:
    group: list[Slice] = []
    num_rows = num_norms = 0
    for part in parts:
        group.append(part)
        num_rows += len(part.rows)
        num_norms += sum(layers.norms.size for _, layers in part.layers)
        if num_rows >= ROW_GROUP_ROWS or num_norms >= ROW_GROUP_NORMS:
            yield group
            group, num_rows, num_norms = [], 0, 0
    if group:
        yield group


def _table(pa: Any, schema: Any, group: Sequence[Slice]) -> Any:
    return pa.concat_tables([_part(pa, schema, part) for part in group])


def _part(pa: Any, schema: Any, part: Slice) -> Any:
    norms_of = {
        (int(step), rank): (layers.layers_id, norms)
        for rank, layers in part.layers
        for step, norms in zip(layers.step, layers.norms, strict=True)
    }
    rows = part.rows
    if alone := norms_of.keys() - {(row[0], row[1]) for row in rows}:  # layers of a step nothing else is known of
        rows = sorted([*rows, *((step, rank) + (None,) * (1 + len(wire.COLUMNS)) for step, rank in alone)], key=_place)
    step, rank, time_s, *values = map(list, zip(*rows, strict=True)) if rows else [[]] * (3 + len(wire.COLUMNS))
    launch, num_rows = part.launch, len(rows)
    columns = dict(zip(wire.COLUMNS, values, strict=True))
    for name in wire.FLOAT_COLUMNS:
        if any(isinstance(value, str) for value in columns[name]):
            columns[name] = [wire.number(value) for value in columns[name]]
    columns |= {"step": step, "rank": rank, "wall_time_s": time_s}
    same = {"stream": launch.stream, "attempt": launch.attempt.number, "run_id": launch.key[0]}
    same |= {"attempt_id": launch.attempt.attempt_id, "attempt_started_at_s": launch.attempt.started_at_s}
    columns |= {name: [value] * num_rows for name, value in same.items()}
    found = [norms_of.get((row[0], row[1])) for row in rows]
    columns["layers_id"] = [None if one is None else one[0] for one in found]
    arrays = {name: pa.array(column, schema.field(name).type) for name, column in columns.items()}
    arrays["layer_norms"] = _lists(pa, [None if one is None else one[1] for one in found])
    return pa.table([arrays[name] for name in schema.names], schema=schema)


def _place(row: Sequence[Any]) -> tuple[int, int]:
    return row[0], row[1]


def _lists(pa: Any, rows: Sequence[Any]) -> Any:
    """Rows of norms as a column of lists; −1 becomes null, and so does a row that is None."""
    if not rows:
        return pa.array([], pa.list_(pa.float32()))
    sizes = [0 if row is None else len(row) for row in rows]
    norms = np.concatenate([np.empty(0, np.float32), *(row for row in rows if row is not None)], dtype=np.float32)
    offsets = pa.array(np.cumsum([0, *sizes]), pa.int32())
    values = pa.array(norms, pa.float32(), mask=norms == wire.NO_GRADIENT)
    return pa.ListArray.from_arrays(offsets, values, mask=pa.array([row is None for row in rows]))
