"""How far an attempt at a stream reaches: what its segments, its closed buckets and its sealed steps follow from."""

from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select, update

from gradsight_server.store import statements
from gradsight_server.store.models import extents
from gradsight_server.store.prepared import Prepared

AttemptKey = tuple[str, int, int]
"""(run_id, stream_key, attempt_key)"""


class Extent(NamedTuple):
    """From the first to the last step that rank 0 has anything of."""

    first_step: int
    last_step: int
    sealed_before: int = 0
    """Of steps before this one only rollups are left, and nothing changes them any more."""


_OF_ATTEMPT = (
    extents.c.run_id == bindparam("of_run"),
    extents.c.stream_key == bindparam("of_stream"),
    extents.c.attempt_key == bindparam("of_attempt"),
)
_EXTENT = Prepared(select(extents.c.first_step, extents.c.last_step, extents.c.sealed_before).where(*_OF_ATTEMPT))
_SEAL = Prepared(update(extents).where(*_OF_ATTEMPT).values(sealed_before=bindparam("before")))


def extent_of(conn: Connection, key: AttemptKey) -> Extent | None:
    """None where rank 0 has nothing yet."""
    row = _EXTENT.one(conn, _named(key))
    return None if row is None else Extent._make(row)


def reach(conn: Connection, key: AttemptKey, known: Extent | None, first_step: int, last_step: int) -> Extent:
    """The extent with these steps in it too, kept."""
    if known is None:
        grown = Extent(first_step, last_step)
    else:
        grown = Extent(min(first_step, known.first_step), max(last_step, known.last_step), known.sealed_before)
    if grown != known:
        statements.upsert_extent(conn, (*key, *grown))
    return grown


def seal(conn: Connection, key: AttemptKey, before: int) -> None:
    """From now on nothing before this step changes any more."""
    _SEAL.run(conn, _named(key) | {"before": before})


def _named(key: AttemptKey) -> dict[str, str | int]:
    return dict(zip(("of_run", "of_stream", "of_attempt"), key, strict=True))
