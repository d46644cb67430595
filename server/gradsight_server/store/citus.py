"""Spreads the tables over a Citus cluster: the rows of a run on one node, the runs over all of them.

Servers keep asking the coordinator only. What they do with a run is a statement about that run alone, which Citus hands
to the node that has it; only lists look at all nodes. Done step by step, each committed by itself and only where it is
still to do, so that it can be called again after it was broken off, and after a newer version has added tables.

Source: Citus documentation, "Creating and Modifying Distributed Objects" and "SQL Support and Workarounds".
"""

import re
from collections.abc import Callable
from typing import Any, Literal

from sqlalchemy import Connection, ForeignKeyConstraint, Table, text

from gradsight_server.errors import SettingsError
from gradsight_server.store.models import metadata, notification_targets, outbox, runs, ticks

MIN_VERSION = 11
"""The first whose documentation promises all that is relied on here; older ones are no longer supported."""
ON_COORDINATOR = (ticks, outbox, notification_targets)
"""Queues in the order of their commits, over all runs, and how far they have been read: they have no place in a run's
shard, and as reference tables every commit would be written on every node."""

Kind = Literal["distributed", "reference", "local"]


def plan() -> dict[Table, Kind]:
    """What becomes of each table; `runs` first, beside which all others of a run are put."""
    return {table: _kind(table) for table in (runs, *(table for table in metadata.sorted_tables if table is not runs))}


def _kind(table: Table) -> Kind:
    if table in ON_COORDINATOR:
        return "local"
    return "distributed" if "run_id" in table.primary_key.columns else "reference"


def distribute(conn: Connection, say: Callable[[str], None]) -> None:
    """Distributes what is not yet distributed.

    Args:
        conn: in autocommit.
        say: is told what has been done.

    Raises:
        SettingsError: there is no Citus, or it cannot be done; says what is missing.
    """
    say(f"Citus {check(conn)}")
    there = _kinds(conn)
    todo = [(table, kind) for table, kind in plan().items() if kind not in (there.get(table.name), "local")]
    for table, kind in todo:
        if table.name in there:
            raise SettingsError(f"table {table.name} is {there[table.name]} already, but has to be {kind}.")
    for table, _ in todo:
        for name in _foreign_keys(conn, table).values():  # Citus wants both ends distributed, and rows moved without
            conn.execute(text(f"ALTER TABLE {table.name} DROP CONSTRAINT {name}"))
    for table, kind in todo:
        _move(conn, table, kind)
        say(f"{table.name}: {kind}")
    for table in metadata.sorted_tables:
        there_already = _foreign_keys(conn, table)
        for key in sorted(table.foreign_key_constraints, key=lambda key: tuple(key.column_keys)):
            if tuple(key.column_keys) not in there_already:
                conn.execute(text(_add(table, key)))
    say("nothing was left to do" if not todo else f"{len(todo)} tables are distributed by now")


def check(conn: Connection) -> str:
    """The version of Citus in this database.

    Raises:
        SettingsError: it is not there, or too old.
    """
    if conn.dialect.name != "postgresql":
        raise SettingsError("only PostgreSQL with the Citus extension can be distributed; this database is SQLite.")
    version = conn.scalar(text("SELECT extversion FROM pg_extension WHERE extname = 'citus'"))
    if version is None:
        available = conn.scalar(text("SELECT default_version FROM pg_available_extensions WHERE name = 'citus'"))
        server = conn.scalar(text("SHOW server_version"))
        if available is None:
            raise SettingsError(
                f"this PostgreSQL ({server}) has no Citus extension: install it on every node (version {MIN_VERSION} "
                "or newer), put it first in shared_preload_libraries, and say CREATE EXTENSION citus in this database. "
                "Nothing was changed; Gradsight works on plain PostgreSQL as it is."
            )
        raise SettingsError(
            f"Citus {available} is on this PostgreSQL ({server}), but not in this database: say CREATE EXTENSION citus "
            "in it. Nothing was changed."
        )
    major = re.match(r"\d+", version)
    if major is None or int(major[0]) < MIN_VERSION:
        raise SettingsError(f"Citus {version} is too old: {MIN_VERSION} or newer is needed. Nothing was changed.")
    return str(version)


def _kinds(conn: Connection) -> dict[str, str]:
    """What Citus says of tables that it knows."""
    rows = conn.execute(text("SELECT table_name::text AS name, citus_table_type AS kind FROM citus_tables")).all()
    return {row.name.rpartition(".")[2]: row.kind for row in rows}


def _move(conn: Connection, table: Table, kind: Kind) -> None:
    parameters: dict[str, Any] = {"name": table.name}
    if kind == "reference":
        conn.execute(text("SELECT create_reference_table(CAST(:name AS regclass))"), parameters)
    else:
        beside = "default" if table is runs else runs.name
        call = "SELECT create_distributed_table(CAST(:name AS regclass), 'run_id', colocate_with => :beside)"
        conn.execute(text(call), parameters | {"beside": beside})
    # Rows that were there have been copied to the nodes; what is left of them here only takes room.
    conn.execute(text("SELECT truncate_local_data_after_distributing_table(CAST(:name AS regclass))"), parameters)


def _foreign_keys(conn: Connection, table: Table) -> dict[tuple[str, ...], str]:
    """Columns → the name of the foreign key on them, as the database has it."""
    query = """
        SELECT conname AS name, ARRAY(
            SELECT attname::text FROM unnest(conkey) WITH ORDINALITY AS key(number, place)
            JOIN pg_attribute ON attrelid = conrelid AND attnum = number ORDER BY place
        ) AS columns
        FROM pg_constraint WHERE contype = 'f' AND conrelid = CAST(:name AS regclass)
    """
    return {tuple(row.columns): row.name for row in conn.execute(text(query), {"name": table.name})}


def _add(table: Table, key: ForeignKeyConstraint) -> str:
    columns = ", ".join(key.column_keys)
    targets = ", ".join(element.column.name for element in key.elements)
    name = f"{table.name}_{'_'.join(key.column_keys)}_fkey"
    on_delete = f" ON DELETE {key.ondelete}" if key.ondelete else ""
    return (
        f"ALTER TABLE {table.name} ADD CONSTRAINT {name} FOREIGN KEY ({columns}) "
        f"REFERENCES {key.referred_table.name} ({targets}){on_delete}"
    )
