"""Short words for what the store's tests do: one run in one database, at a clock that the test sets."""

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Table, select

from gradsight import wire
from gradsight_server.store import runs
from gradsight_server.store.database import Database
from gradsight_server.store.ingest import ingest

T = TypeVar("T")
RUN = "0123456789abcdef" * 2
TIMEOUT_S = 10


class Store:
    """What a test writes to and reads from."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.now_s = 1000.0

    def write(self, work: Callable[[Connection], T]) -> T:
        return self.db.write(work).result(TIMEOUT_S)

    def read(self, question: Callable[..., T], *args: Any, **options: Any) -> T:
        with self.db.reading() as conn:
            return question(conn, *args, **options)

    def put(self, run_id: str = RUN, **record: Any) -> None:
        self.write(lambda conn: runs.put_run(conn, run_id, wire.RunRecord(**record), now_s=self.now_s))

    def send(
        self, step: list[int] | None = None, *, run_id: str = RUN, stream: str = "main", **batch: Any
    ) -> wire.Answer:
        sent = wire.Batch(step=step or [], **batch)
        return self.write(lambda conn: ingest(conn, run_id, stream, sent, now_s=self.now_s))

    def run(self, run_id: str = RUN) -> dict[str, Any]:
        return self.read(runs.get_run, run_id, now_s=self.now_s)

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """Every row, in the order of its key."""
        with self.db.reading() as conn:
            found = conn.execute(select(table).order_by(*table.primary_key)).mappings()
            return [dict(row) for row in found]
