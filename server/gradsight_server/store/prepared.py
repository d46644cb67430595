"""Core statements for hot paths: built and compiled once for each engine, then run by the driver alone.

SQLAlchemy's own execution costs several times what SQLite needs for a short statement. Errors come as the driver's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ClauseElement, Connection

Parameters = Mapping[str, Any]
Row = tuple[Any, ...]


def execute(conn: Connection, text: str, parameters: Sequence[Any] = ()) -> None:
    """Runs a text in the driver's own dialect."""
    cursor = conn.connection.cursor()
    cursor.execute(text, parameters)
    cursor.close()


def execute_many(conn: Connection, text: str, rows: Sequence[Row]) -> int:
    """Runs a text once for each row; how many rows of the table that changed."""
    cursor = conn.connection.cursor()
    cursor.executemany(text, rows)
    num_changed = cursor.rowcount
    cursor.close()
    return num_changed


class Prepared:
    """A statement with named parameters.

    Values go in and come out as the driver has them: JSON is text on SQLite, a Boolean there 0 or 1.
    """

    def __init__(self, statement: ClauseElement) -> None:
        self._statement = statement
        self._compiled: dict[str, tuple[str, Callable[[Parameters], Any]]] = {}

    def run(self, conn: Connection, parameters: Parameters) -> None:
        text, bound = self._compiled.get(conn.dialect.name) or self._compile(conn)
        execute(conn, text, bound(parameters))

    def rows(self, conn: Connection, parameters: Parameters) -> list[Row]:
        """All rows."""
        text, bound = self._compiled.get(conn.dialect.name) or self._compile(conn)
        cursor = conn.connection.cursor()
        cursor.execute(text, bound(parameters))
        found: list[Row] = list(cursor.fetchall())
        cursor.close()
        return found

    def one(self, conn: Connection, parameters: Parameters) -> Row | None:
        """The row of a statement that finds at most one."""
        rows = self.rows(conn, parameters)
        return rows[0] if rows else None

    def scalar(self, conn: Connection, parameters: Parameters) -> Any:
        """The first value of that row; None without one."""
        row = self.one(conn, parameters)
        return None if row is None else row[0]

    def chunks(self, conn: Connection, parameters: Parameters, num_rows: Callable[[Row], int]) -> Iterator[list[Row]]:
        """All rows, first one and then `num_rows` of the first in a chunk at a time."""
        text, bound = self._compiled.get(conn.dialect.name) or self._compile(conn)
        cursor = conn.connection.cursor()
        try:
            cursor.execute(text, bound(parameters))
            chunk: list[Row] = list(cursor.fetchmany(1))
            while chunk:
                size = num_rows(chunk[0])
                yield chunk
                chunk = list(cursor.fetchmany(size))
        finally:
            cursor.close()

    def _compile(self, conn: Connection) -> tuple[str, Callable[[Parameters], Any]]:
        compiled = self._statement.compile(dialect=conn.dialect)
        fixed: dict[str, Any] = dict(compiled.params)
        names = getattr(compiled, "positiontup", None)

        def by_place(given: Parameters) -> tuple[Any, ...]:
            return tuple([given[name] if name in given else fixed[name] for name in names or ()])

        def by_name(given: Parameters) -> dict[str, Any]:
            return {name: given.get(name, value) for name, value in fixed.items()}

        found = self._compiled[conn.dialect.name] = (str(compiled), by_place if names is not None else by_name)
        return found
