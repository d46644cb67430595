"""What many runs need: small rows in `runs`, deletion in slices, and a sparkline for each row of a list."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "run_details",
        sa.Column("run_id", sa.String(32), primary_key=True),
        *_details(),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
    )
    names = ", ".join(column.name for column in _details())
    op.execute(f"INSERT INTO run_details (run_id, {names}) SELECT run_id, {names} FROM runs")
    for column in _details():
        op.drop_column("runs", column.name)
    op.create_table(
        "deletions",
        sa.Column("run_id", sa.String(32), primary_key=True),
        sa.Column("deleted_at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "sparklines",
        sa.Column("run_id", sa.String(32), primary_key=True),
        sa.Column("points", sa.JSON, nullable=False),
        sa.Column("updated_at_s", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("sparklines")
    op.drop_table("deletions")
    for column in _details():
        column.server_default = sa.DefaultClause("" if column.name == "notes" else "{}")
        op.add_column("runs", column)
        name = column.name
        op.execute(f"UPDATE runs SET {name} = (SELECT {name} FROM run_details WHERE run_details.run_id = runs.run_id)")
    op.drop_table("run_details")


def _details() -> tuple[sa.Column[Any], ...]:
    return (
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("frameworks", sa.JSON, nullable=False),
        sa.Column("notes", sa.Text, nullable=False, server_default=""),
    )
