"""What many runs need: deletion in slices, and a sparkline for each row of a list."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
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
