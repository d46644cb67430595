"""Layer norms in the database: sixteen steps to a row, written and read as if each step had one of its own.

While a block still grows, SQLite overwrites its row in place, for which it has room from the beginning. PostgreSQL
would write a whole new version each time, so it gets a row for what each batch brings (`part`: the first step's place
in the block; 0 for the first row), and one row in place of them when the block is settled.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, delete, func, select, update

from gradsight_server.store import statements
from gradsight_server.store.extents import AttemptKey
from gradsight_server.store.models import layer_blocks
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.rollup import FANOUT

BLOCK_STEPS = FANOUT
"""A block has the steps of a bucket of level 1."""
CHUNK_BYTES = 2**22
"""About how much is read at once."""

_BITS = np.arange(BLOCK_STEPS)
_OF_ATTEMPT_NAMES = ("of_run", "of_stream", "of_attempt")
_OF_ATTEMPT = (
    layer_blocks.c.run_id == bindparam("of_run"),
    layer_blocks.c.stream_key == bindparam("of_stream"),
    layer_blocks.c.attempt_key == bindparam("of_attempt"),
)
_IN_RANGE = (*_OF_ATTEMPT, layer_blocks.c.block.between(bindparam("first_block"), bindparam("last_block")))
_OF_BLOCK = (
    *_OF_ATTEMPT,
    layer_blocks.c.block == bindparam("of_block"),
    layer_blocks.c.rank == bindparam("of_rank"),
    layer_blocks.c.layers_id == bindparam("of_layers"),
    layer_blocks.c.part == bindparam("of_part"),
)
_PLACE = (layer_blocks.c.block, layer_blocks.c.rank, layer_blocks.c.layers_id, layer_blocks.c.part)
_ROWS = (layer_blocks.c.num_layers, layer_blocks.c.present, layer_blocks.c.norms)
_OF_RANK_0 = select(*_PLACE, *_ROWS).where(*_IN_RANGE, layer_blocks.c.rank == 0)
_READ = Prepared(_OF_RANK_0.order_by(layer_blocks.c.block, layer_blocks.c.part))
_READ_NEWEST_FIRST = Prepared(_OF_RANK_0.order_by(layer_blocks.c.block.desc(), layer_blocks.c.part.desc()))
_READ_ANY_RANK = Prepared(select(*_PLACE, *_ROWS).where(*_IN_RANGE))
_READ_FIRST = Prepared(
    select(*_PLACE, *_ROWS)
    .where(*_IN_RANGE)
    .order_by(layer_blocks.c.block, layer_blocks.c.rank, layer_blocks.c.layers_id, layer_blocks.c.part)
    .limit(bindparam("at_most"))
)
_LAST_BLOCK = Prepared(select(func.max(layer_blocks.c.block)).where(*_OF_ATTEMPT))
_READ_SIZES = Prepared(select(*_PLACE, *_ROWS[:2], func.length(layer_blocks.c.norms)).where(*_IN_RANGE))
_TRIM = Prepared(
    update(layer_blocks).where(*_OF_BLOCK).values(norms=func.substr(layer_blocks.c.norms, 1, bindparam("num_bytes")))
)
_DELETE = Prepared(delete(layer_blocks).where(*_OF_BLOCK))
_PRESENT = Prepared(
    select(layer_blocks.c.block, layer_blocks.c.present)
    .where(*_IN_RANGE, layer_blocks.c.rank == 0)
    .limit(bindparam("at_most"))
)


class LayerRows(NamedTuple):
    """Layer norms of some steps, by rising step, of one set of layers."""

    layers_id: str
    step: NDArray[np.int64]
    norms: NDArray[np.float32]
    """A row for each step; −1 is no gradient."""


class _Block(NamedTuple):
    """The rows of a block that are there: bit i of `present` for its step i, and their norms by rising step."""

    num_layers: int
    present: int
    norms: bytes
    """Behind the rows there may be room for more: what has the same size is overwritten in place."""

    @property
    def num_bytes(self) -> int:
        return 4 * self.num_layers * self.present.bit_count()

    def rows(self) -> dict[int, bytes]:
        size = 4 * self.num_layers
        places = [i for i in range(BLOCK_STEPS) if self.present >> i & 1]
        return {place: self.norms[size * i : size * (i + 1)] for i, place in enumerate(places)}

    def without(self, present: int) -> "_Block":
        return _of_rows({place: row for place, row in self.rows().items() if not present >> place & 1})

    def place_after(self, others: Collection["_Block"]) -> int:
        """The place of its first row, where it goes on behind all others; 0 where it does not, or there are none."""
        lowest = self.present & -self.present
        goes_on = all(other.present < lowest for other in others)
        return lowest.bit_length() - 1 if others and goes_on else 0

    def with_room(self) -> "_Block":
        """With room for the steps up to the block's end, where so far there was one at every step."""
        low, high = self.present & -self.present, self.present.bit_length()
        if self.present + low != 1 << high:
            return self
        room = (BLOCK_STEPS - high) * 4 * self.num_layers
        return self._replace(norms=self.norms[: self.num_bytes] + bytes(room))


def _of_rows(rows: dict[int, bytes]) -> _Block:
    num_layers = len(next(iter(rows.values()), b"")) // 4
    return _Block(num_layers, sum(1 << place for place in rows), b"".join(row for _, row in sorted(rows.items())))


def _of_parts(parts: Iterable[_Block]) -> _Block:
    """All as one; of a step that several have, the last one's."""
    rows: dict[int, bytes] = {}
    for part in parts:
        rows |= part.rows()
    return _of_rows(rows)


def write(
    conn: Connection,
    key: AttemptKey,
    layers_id: str,
    step: Sequence[int],
    rank: Sequence[int],
    norms: bytes,
    *,
    known_step: int,
) -> None:
    """Puts a row of norms for each step in the place of what was there; the last row of a step repeated wins.

    Args:
        known_step: behind this step rank 0 has nothing yet; −1 where it has nothing at all.
    """
    blocks = _in_blocks(step, rank, norms)
    seen = [block for block, of_rank in blocks if of_rank or block <= known_step // BLOCK_STEPS]
    there: dict[tuple[int, int], dict[int, _Block]] = {}
    for first, last in _runs(seen):
        for block, of_rank, of_layers, part, *rest in _READ_ANY_RANK.rows(conn, _range(key, first, last)):
            old, new = _Block(*rest), blocks.get((block, of_rank))
            if of_layers == layers_id:
                there.setdefault((block, of_rank), {})[part] = old
            elif new is not None and old.present & new.present:
                _write_row(conn, key, (block, of_rank, of_layers, part), old.without(new.present))
    grows_in_place = conn.dialect.name == "sqlite"
    newest = max(known_step, *step) // BLOCK_STEPS
    rows = []
    for (block, of_rank), new in blocks.items():
        parts = there.get((block, of_rank), {})
        part = 0 if grows_in_place else new.place_after(parts.values())
        if part == 0:
            new = _of_parts([*parts.values(), new])
            _delete_parts(conn, key, (block, of_rank, layers_id), parts)
        if grows_in_place and block == newest:
            new = new.with_room()
        rows.append((*key, block, of_rank, layers_id, part, *new))
    statements.upsert_layer_blocks(conn, rows)


def settle(conn: Connection, key: AttemptKey, first_block: int, last_block: int) -> None:
    """Makes one row of each block that has several, and takes back room that was left for steps which did not come."""
    sizes: dict[tuple[int, int, str], dict[int, tuple[int, int, int]]] = {}
    for block, rank, layers_id, part, *rest in _READ_SIZES.rows(conn, _range(key, first_block, last_block)):
        sizes.setdefault((block, rank, layers_id), {})[part] = (rest[0], rest[1], rest[2])
    for place, parts in sizes.items():
        if len(parts) > 1:
            _join(conn, key, place)
            continue
        ((part, (num_layers, present, size)),) = parts.items()
        num_bytes = _Block(num_layers, present, b"").num_bytes
        if size > num_bytes:
            _TRIM.run(conn, _named(key, (*place, part)) | {"num_bytes": num_bytes})


def _join(conn: Connection, key: AttemptKey, place: tuple[int, int, str]) -> None:
    rows = _READ_ANY_RANK.rows(conn, _range(key, place[0], place[0]))
    parts = {row[3]: _Block(*row[4:]) for row in rows if row[:3] == place}
    _delete_parts(conn, key, place, parts)
    _write_row(conn, key, (*place, 0), _of_parts(parts.values()))


def read(conn: Connection, key: AttemptKey, first_step: int, last_step: int) -> Iterator[LayerRows]:
    """Rank 0's layer norms between two steps, both included, in chunks that rise from block to block."""
    asked = _range(key, first_step // BLOCK_STEPS, last_step // BLOCK_STEPS)
    for chunk in _READ.chunks(conn, asked, lambda row: 1 + CHUNK_BYTES // len(row[-1])):
        by_layers: dict[str, list[tuple[int, _Block]]] = {}
        for block, _, layers_id, _, *rest in chunk:
            by_layers.setdefault(layers_id, []).append((block, _Block(*rest)))
        for layers_id, blocks in by_layers.items():
            found = _rows(layers_id, blocks, first_step, last_step)
            if len(found.step):
                yield found


def newest(conn: Connection, key: AttemptKey, first_step: int, last_step: int) -> LayerRows | None:
    """The row of the last step between two steps that has one."""
    asked = _range(key, first_step // BLOCK_STEPS, last_step // BLOCK_STEPS)
    best: LayerRows | None = None
    for ((block, _, layers_id, _, *rest),) in _READ_NEWEST_FIRST.chunks(conn, asked, lambda _: 1):
        if best is not None and block < best.step[0] // BLOCK_STEPS:
            break
        found = _rows(layers_id, [(block, _Block(*rest))], first_step, last_step)
        if len(found.step) and (best is None or found.step[-1] > best.step[0]):
            best = LayerRows(layers_id, found.step[-1:], found.norms[-1:])
    return best


def read_first(
    conn: Connection, key: AttemptKey, first_step: int, last_step: int, at_most: int
) -> tuple[list[tuple[int, LayerRows]], int]:
    """(rank, layer norms) of every rank from the first step on, and the last step up to which these are all.

    Args:
        at_most: rows of the database that are read, unless one block has more.
    """
    first_block, last_block = first_step // BLOCK_STEPS, last_step // BLOCK_STEPS
    rows = _READ_FIRST.rows(conn, _range(key, first_block, last_block) | {"at_most": at_most})
    if len(rows) == at_most:
        last_block = rows[-1][0]
        if rows[0][0] == last_block:
            rows = sorted(_READ_ANY_RANK.rows(conn, _range(key, last_block, last_block)), key=lambda row: row[:4])
        else:
            last_block -= 1
        last_step = min(last_step, (last_block + 1) * BLOCK_STEPS - 1)
    found: dict[tuple[int, str], list[tuple[int, _Block]]] = {}
    for block, rank, layers_id, _, *rest in rows:
        if block <= last_block:
            found.setdefault((rank, layers_id), []).append((block, _Block(*rest)))
    parts = [(rank, _rows(layers_id, blocks, first_step, last_step)) for (rank, layers_id), blocks in found.items()]
    return [(rank, part) for rank, part in parts if len(part.step)], last_step


def last_block(conn: Connection, key: AttemptKey) -> int | None:
    """The newest block of any rank; None where there is none."""
    found: int | None = _LAST_BLOCK.scalar(conn, dict(zip(_OF_ATTEMPT_NAMES, key, strict=True)))
    return found


def num_rows(conn: Connection, key: AttemptKey, first_step: int, last_step: int, at_most: int) -> int:
    """How many steps of rank 0 between these two have a row; not counted far beyond `at_most`."""
    asked = _range(key, first_step // BLOCK_STEPS, last_step // BLOCK_STEPS) | {"at_most": at_most + 3}
    rows = _PRESENT.rows(conn, asked)
    return sum((present & _mask(block, first_step, last_step)).bit_count() for block, present in rows)


def _in_blocks(step: Sequence[int], rank: Sequence[int], norms: bytes) -> dict[tuple[int, int], _Block]:
    """(block, rank) → what a batch has of it."""
    size = len(norms) // len(step)
    found: dict[tuple[int, int], dict[int, bytes]] = {}
    for i, (number, of_rank) in enumerate(zip(step, rank, strict=True)):
        block, place = divmod(number, BLOCK_STEPS)
        found.setdefault((block, of_rank), {})[place] = norms[size * i : size * (i + 1)]
    return {place: _of_rows(rows) for place, rows in found.items()}


def _write_row(conn: Connection, key: AttemptKey, place: tuple[int, int, str, int], block: _Block) -> None:
    if block.present:
        statements.upsert_layer_blocks(conn, [(*key, *place, *block)])
    else:
        _DELETE.run(conn, _named(key, place))


def _delete_parts(conn: Connection, key: AttemptKey, place: tuple[int, int, str], parts: Iterable[int]) -> None:
    """The rows behind a block's first, which comes to stand for all."""
    for part in parts:
        if part:
            _DELETE.run(conn, _named(key, (*place, part)))


def _rows(layers_id: str, blocks: Sequence[tuple[int, _Block]], first_step: int, last_step: int) -> LayerRows:
    number = np.array([number for number, _ in blocks])
    present = np.array([block.present for _, block in blocks])
    places = (present[:, None] >> _BITS & 1).astype(bool)
    step = (number[:, None] * BLOCK_STEPS + _BITS)[places]
    norms = np.frombuffer(b"".join([block.norms[: block.num_bytes] for _, block in blocks]), dtype="<f4")
    norms = norms.reshape(len(step), -1)
    if len(step) and (step[0] < first_step or step[-1] > last_step):
        is_inside = (step >= first_step) & (step <= last_step)
        step, norms = step[is_inside], norms[is_inside]
    return LayerRows(layers_id, step, norms)


def _mask(block: int, first_step: int, last_step: int) -> int:
    """The bits of a block's steps that lie between two steps."""
    low, high = max(first_step - block * BLOCK_STEPS, 0), min(last_step - block * BLOCK_STEPS, BLOCK_STEPS - 1)
    return (2 << high) - (1 << low)


def _runs(blocks: Sequence[int]) -> list[tuple[int, int]]:
    """Ranges of neighbouring blocks."""
    runs: list[tuple[int, int]] = []
    for block in sorted(set(blocks)):
        if runs and block == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], block)
        else:
            runs.append((block, block))
    return runs


def _range(key: AttemptKey, first_block: int, last_block: int) -> dict[str, str | int]:
    names = (*_OF_ATTEMPT_NAMES, "first_block", "last_block")
    return dict(zip(names, (*key, first_block, last_block), strict=True))


def _named(key: AttemptKey, place: Sequence[int | str]) -> dict[str, str | int]:
    names = (*_OF_ATTEMPT_NAMES, "of_block", "of_rank", "of_layers", "of_part")
    return dict(zip(names, (*key, *place), strict=True))
