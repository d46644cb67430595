"""What alerts need: who and why, rules by scope, the rules' memory, messages and how far each target has come.

Nothing has written to the tables of the first version yet, so they are made anew. So are the ticks, which keep theirs:
a column added to a table is not where `create_all` would put it.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TICKS = "position, run_id, kind, stream_key, attempt_key, first_step, last_step, created_at_s"


def upgrade() -> None:
    _remake_ticks(
        sa.Column("alert_id", sa.Integer),
        sa.Column("change", sa.String(16)),
    )
    for table in ("outbox", "alert_rules", "alerts"):
        op.drop_table(table)
    _create_alerts()
    _create_rules()
    _create_outbox()


def downgrade() -> None:
    for table in ("notification_targets", "outbox", "alert_rules", "alert_states", "alerts"):
        op.drop_table(table)
    _create_first_version()
    op.execute("DELETE FROM ticks WHERE kind = 'alert'")
    _remake_ticks()


def _remake_ticks(*more: sa.Column[object]) -> None:
    """Positions stay, and go on from the newest."""
    op.execute(f"CREATE TABLE ticks_before AS SELECT {TICKS} FROM ticks")
    op.drop_table("ticks")
    op.create_table(
        "ticks",
        sa.Column("position", _big(), primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("stream_key", sa.Integer),
        sa.Column("attempt_key", sa.Integer),
        sa.Column("first_step", sa.BigInteger),
        sa.Column("last_step", sa.BigInteger),
        sa.Column("created_at_s", sa.Double, nullable=False),
        *more,
        sqlite_autoincrement=True,
    )
    op.execute(f"INSERT INTO ticks ({TICKS}) SELECT {TICKS} FROM ticks_before")
    op.drop_table("ticks_before")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "SELECT setval(pg_get_serial_sequence('ticks', 'position'), coalesce(max(position), 1),"
            " max(position) IS NOT NULL) FROM ticks"
        )


def _create_alerts() -> None:
    op.create_table(
        "alerts",
        _run_id(),
        sa.Column("alert_id", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("stream_key", sa.Integer),
        sa.Column("attempt_key", sa.Integer),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("opened_at_s", sa.Double, nullable=False),
        sa.Column("updated_at_s", sa.Double, nullable=False),
        sa.Column("told_at_s", sa.Double),
        sa.Column("acknowledged_at_s", sa.Double),
        sa.Column("acknowledged_by", sa.String(256)),
        sa.Column("resolved_at_s", sa.Double),
        sa.Column("first_step", sa.BigInteger),
        sa.Column("last_step", sa.BigInteger),
        sa.Column("num_repeats", sa.Integer, nullable=False, server_default="0"),
        sa.Column("value", sa.Double),
        sa.Column("layer", sa.Text),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("evidence", sa.JSON, nullable=False),
        sa.Column("folded", sa.JSON, nullable=False),
        sa.Column("folded_into", sa.Integer),
        sa.PrimaryKeyConstraint("run_id", "alert_id"),
        _of_run(),
    )
    is_open = sa.text("state = 'open'")
    op.create_index("alerts_by_time", "alerts", ["opened_at_s", "run_id", "alert_id"])
    op.create_index("alerts_by_change", "alerts", ["run_id", "updated_at_s"])
    op.create_index("alerts_open", "alerts", ["run_id", "severity"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_table(
        "alert_states",
        _run_id(),
        sa.Column("stream_key", sa.Integer, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stream_key"),
        _of_run(),
    )


def _create_rules() -> None:
    op.create_table(
        "alert_rules",
        sa.Column("scope", sa.String(16), nullable=False, server_default="global"),
        sa.Column("scope_id", sa.String(256), nullable=False, server_default=""),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("enabled", sa.Boolean),
        sa.Column("severity", sa.String(16)),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("updated_at_s", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("scope", "scope_id", "kind"),
    )


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("outbox_id", _big(), primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(32), nullable=False),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("created_at_s", sa.Double, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "notification_targets",
        sa.Column("target_id", sa.String(16), primary_key=True),
        sa.Column("delivered_up_to", sa.BigInteger, nullable=False),
        sa.Column("num_sent", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("num_given_up", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("num_failures", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_try_at_s", sa.Double),
        sa.Column("failing_since_s", sa.Double),
        sa.Column("last_sent_at_s", sa.Double),
        sa.Column("last_error", sa.Text),
    )


def _create_first_version() -> None:
    op.create_table(
        "alerts",
        _run_id(),
        sa.Column("alert_id", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("stream_key", sa.Integer),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("opened_at_s", sa.Double, nullable=False),
        sa.Column("updated_at_s", sa.Double, nullable=False),
        sa.Column("acknowledged_at_s", sa.Double),
        sa.Column("resolved_at_s", sa.Double),
        sa.Column("first_step", sa.BigInteger),
        sa.Column("last_step", sa.BigInteger),
        sa.Column("num_repeats", sa.Integer, nullable=False, server_default="0"),
        sa.Column("value", sa.Double),
        sa.Column("title", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "alert_id"),
        _of_run(),
    )
    op.create_index("alerts_by_time", "alerts", ["opened_at_s", "run_id", "alert_id"])
    op.create_table(
        "alert_rules",
        sa.Column("kind", sa.String(32), primary_key=True),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("settings", sa.JSON, nullable=False),
        sa.Column("updated_at_s", sa.Double, nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("outbox_id", _big(), primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(32), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("num_tries", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_try_at_s", sa.Double, nullable=False),
        sa.Column("delivered_at_s", sa.Double),
        sa.Column("last_error", sa.Text),
    )
    op.create_index("outbox_due", "outbox", ["delivered_at_s", "next_try_at_s"])


def _run_id() -> sa.Column[str]:
    return sa.Column("run_id", sa.String(32), nullable=False)


def _of_run() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE")


def _big() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer, "sqlite")
