"""The first tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Spelled out, not imported: what the columns were called at this revision never changes.
FLOAT_COLUMNS = (
    "loss",
    "lr",
    "grad_norm_before_clip",
    "max_norm",
    "clip_coef",
    "clipped_layer_fraction",
    "loss_scale",
    "loss_scale_after",
    "headroom_log2",
    "underflow_fraction",
    "update_ratio",
    "step_time_s",
    "hook_time_s",
)
INTEGER_COLUMNS = ("num_nonfinite_layers", "num_layers_without_grad")
NUMERIC_COLUMNS = (*FLOAT_COLUMNS, *INTEGER_COLUMNS)


def upgrade() -> None:
    _create_runs()
    _create_steps()
    _create_buckets()
    _create_metrics_and_events()
    _create_ticks()
    _create_alerts()


def downgrade() -> None:
    for table in (
        "outbox",
        "alert_rules",
        "alerts",
        "ticks",
        "events",
        "metrics",
        "bucket_blobs",
        "buckets",
        "layer_blocks",
        "extents",
        "steps",
        "layer_sets",
        "attempts",
        "streams",
        "runs",
    ):
        op.drop_table(table)


def _run_id() -> sa.Column[str]:
    return sa.Column("run_id", sa.String(32), nullable=False)


def _stream_key() -> tuple[sa.Column[Any], ...]:
    return (
        _run_id(),
        sa.Column("stream_key", sa.Integer, nullable=False),
        sa.Column("attempt_key", sa.Integer, nullable=False),
    )


def _of_run() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE")


def _big() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(32), primary_key=True),
        sa.Column("project", sa.String(256), nullable=False),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("frameworks", sa.JSON, nullable=False),
        sa.Column("notes", sa.Text, nullable=False, server_default=""),
        sa.Column("total_steps", sa.BigInteger),
        sa.Column("world_size", sa.Integer),
        sa.Column("started_at_s", sa.Double, nullable=False),
        sa.Column("updated_at_s", sa.Double, nullable=False),
        sa.Column("last_seen_s", sa.Double, nullable=False),
        sa.Column("last_step_at_s", sa.Double),
        sa.Column("archived_at_s", sa.Double),
        sa.Column("verdict", sa.JSON),
        sa.Column("severity", sa.SmallInteger),
    )
    op.create_index("runs_by_start", "runs", ["started_at_s", "run_id"])
    op.create_index("runs_by_project", "runs", ["project", "started_at_s", "run_id"])
    op.create_table(
        "streams",
        _run_id(),
        sa.Column("stream_key", sa.Integer, nullable=False),
        sa.Column("stream", sa.String(256), nullable=False),
        sa.Column("record", sa.JSON, nullable=False),
        sa.Column("num_steps", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("num_skipped", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("num_clipped", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("num_nonfinite", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("last_step", sa.BigInteger),
        sa.Column("control", sa.JSON),
        sa.Column("last", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stream_key"),
        sa.UniqueConstraint("run_id", "stream", name="streams_by_name"),
        _of_run(),
    )
    op.create_table(
        "attempts",
        _run_id(),
        sa.Column("attempt_key", sa.Integer, nullable=False),
        sa.Column("attempt_id", sa.String(64), nullable=False),
        sa.Column("started_at_s", sa.Double, nullable=False),
        sa.Column("dropped", sa.JSON, nullable=False),
        sa.Column("sequences", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "attempt_key"),
        sa.UniqueConstraint("run_id", "attempt_id", name="attempts_by_id"),
        _of_run(),
    )
    op.create_table(
        "layer_sets",
        _run_id(),
        sa.Column("layers_id", sa.String(64), nullable=False),
        sa.Column("layers", sa.JSON),
        sa.Column("num_layers", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "layers_id"),
        _of_run(),
    )


def _create_steps() -> None:
    op.create_table(
        "steps",
        *_stream_key(),
        sa.Column("step", _big(), nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("wall_time_s", sa.Double),
        *(sa.Column(name, sa.Double) for name in FLOAT_COLUMNS),
        sa.Column("skipped", sa.Boolean),
        *(sa.Column(name, sa.Integer) for name in INTEGER_COLUMNS),
        sa.Column("skip_reason", sa.Text),
        sa.Column("first_nonfinite_layer", sa.Text),
        sa.Column("nonfinite_kind", sa.Text),
        sa.Column("nonfinite", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "step", "rank"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "extents",
        *_stream_key(),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("last_step", sa.BigInteger, nullable=False),
        sa.Column("sealed_before", sa.BigInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("run_id", "stream_key", "attempt_key"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "layer_blocks",
        *_stream_key(),
        sa.Column("block", _big(), nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("layers_id", sa.String(64), nullable=False),
        sa.Column("num_layers", sa.Integer, nullable=False),
        sa.Column("present", sa.Integer, nullable=False),
        sa.Column("norms", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "block", "rank", "layers_id"),
    )


def _create_buckets() -> None:
    op.create_table(
        "buckets",
        *_stream_key(),
        sa.Column("level", sa.SmallInteger, nullable=False),
        sa.Column("bucket", _big(), nullable=False),
        sa.Column("first_step", sa.BigInteger, nullable=False),
        sa.Column("last_step", sa.BigInteger, nullable=False),
        sa.Column("num_steps", sa.BigInteger, nullable=False),
        sa.Column("num_skipped", sa.BigInteger, nullable=False),
        sa.Column("num_clipped", sa.BigInteger, nullable=False),
        sa.Column("first_time_s", sa.Double),
        sa.Column("last_time_s", sa.Double),
        *(sa.Column(f"{name}_count", sa.BigInteger, nullable=False) for name in NUMERIC_COLUMNS),
        *(sa.Column(f"{name}_num_nonfinite", sa.BigInteger, nullable=False) for name in FLOAT_COLUMNS),
        *(sa.Column(f"{name}_{kind}", sa.Double) for kind in ("min", "max", "mean") for name in NUMERIC_COLUMNS),
        sa.PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "level", "bucket"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "bucket_blobs",
        *_stream_key(),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("level", sa.SmallInteger, nullable=False),
        sa.Column("bucket", _big(), nullable=False),
        sa.Column("layers_id", sa.String(64), nullable=False, server_default=""),
        sa.Column("blob", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "kind", "level", "bucket", "layers_id"),
    )


def _create_metrics_and_events() -> None:
    op.create_table(
        "metrics",
        *_stream_key(),
        sa.Column("name", sa.String(256), nullable=False),
        sa.Column("step", _big(), nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("nonfinite", sa.SmallInteger, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "name", "step"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "events",
        _run_id(),
        sa.Column("event_id", sa.String(16), nullable=False),
        sa.Column("stream_key", sa.Integer, nullable=False),
        sa.Column("attempt_key", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("step", sa.BigInteger),
        sa.Column("wall_time_s", sa.Double, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "event_id"),
        _of_run(),
    )
    op.create_index("events_by_time", "events", ["run_id", "wall_time_s", "event_id"])


def _create_ticks() -> None:
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
        sqlite_autoincrement=True,
    )


def _create_alerts() -> None:
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
