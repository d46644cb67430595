"""Runs migrations on the connection that `Database.migrate` gives, inside its transaction and under its lock."""

from alembic import context
from sqlalchemy import Connection

from gradsight_server.store import models

connection = context.config.attributes.get("connection")
if not isinstance(connection, Connection):
    raise RuntimeError("Migrations need a connection: use `Database.migrate`, or `alembic_config` for other commands.")
context.configure(connection=connection, target_metadata=models.metadata)
with context.begin_transaction():
    context.run_migrations()
