"""Which of several server processes does what only one may do: on PostgreSQL the one that holds an advisory lock."""

import contextlib

from sqlalchemy import Connection, Engine, text

LEADER_LOCK = 0x6C65_6164  # the key of PostgreSQL's advisory lock, any constant of our own
_TRY = text(f"SELECT pg_try_advisory_lock({LEADER_LOCK})")
_STILL_THERE = text("SELECT 1")


class Leadership:
    """A candidate for the leader's place. Used by one thread.

    The lock belongs to a connection of its own: when the process or its machine goes, so does the connection, and the
    lock is free for another. On SQLite there is nobody else: one server is the rule, and works stand being done twice.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._conn: Connection | None = None
        self._is_leader = False

    def hold(self) -> bool:
        """Whether this process leads, now that it has asked for the place, or has seen that it still has it.

        Raises:
            the driver's errors: the database cannot be reached, so nobody leads from here.
        """
        if self._engine.dialect.name != "postgresql":
            return True
        try:
            if self._conn is None:
                self._conn = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            self._is_leader = bool(self._conn.scalar(_STILL_THERE if self._is_leader else _TRY))
        except Exception:
            self.give_up()
            raise
        return self._is_leader

    def give_up(self) -> None:
        """Lets another lead."""
        self._is_leader = False
        if self._conn is not None:
            with contextlib.suppress(Exception):  # it is lost already, and the lock with it
                self._conn.invalidate()
            self._conn.close()
            self._conn = None
