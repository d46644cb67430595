"""The small integers that stand for a stream's and an attempt's name within a run, given at first sight."""

from sqlalchemy import Connection, Table, func, insert, select

from gradsight_server.store.models import attempts, streams


def new_stream(conn: Connection, run_id: str, stream: str) -> int:
    """The key of a stream seen for the first time."""
    key = _next(conn, streams, "stream_key", run_id)
    row = {"run_id": run_id, "stream_key": key, "stream": stream, "record": {}, "last": {}}
    conn.execute(insert(streams), row)
    return key


def new_attempt(conn: Connection, run_id: str, attempt_id: str, started_at_s: float) -> int:
    """The key of an attempt seen for the first time."""
    key = _next(conn, attempts, "attempt_key", run_id)
    row = {"run_id": run_id, "attempt_key": key, "attempt_id": attempt_id, "started_at_s": started_at_s}
    conn.execute(insert(attempts), row | {"dropped": {}, "sequences": {}})
    return key


def _next(conn: Connection, table: Table, column: str, run_id: str) -> int:
    """One more than the greatest key; the caller holds the run's row, so nobody takes it meanwhile."""
    newest = conn.scalar(select(func.max(table.c[column])).where(table.c.run_id == run_id))
    return 1 if newest is None else newest + 1
