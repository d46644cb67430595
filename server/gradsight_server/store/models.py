"""The tables. Every big table's key begins with `run_id`, so that a distributed PostgreSQL can shard by it.

A non-finite value is NULL plus two bits in the row's `nonfinite` (see `nonfinite_shift`), the same on both engines:
"not recorded", NaN, +Inf and −Inf stay four different things.
"""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from gradsight import wire

metadata = MetaData()

NUMERIC_COLUMNS = (*wire.FLOAT_COLUMNS, *wire.INTEGER_COLUMNS)
"""The columns of a step that charts can show."""

NAN, POSITIVE_INFINITY, NEGATIVE_INFINITY = 1, 2, 3
"""What the two bits of a column in `nonfinite` say; 0 is a finite or absent value."""


def nonfinite_shift(column: str) -> int:
    """Where a float column's two bits stand in `nonfinite`."""
    return 2 * wire.FLOAT_COLUMNS.index(column)


def _run_id() -> Column[str]:
    return Column("run_id", String(32), nullable=False)


def _stream_key() -> tuple[Column[str], Column[int], Column[int]]:
    """A stream's attempt: (run_id, stream_key, attempt_key), small integers within the run."""
    return (
        _run_id(),
        Column("stream_key", Integer, nullable=False),
        Column("attempt_key", Integer, nullable=False),
    )


def _big(name: str) -> Column[int]:
    """A 64-bit integer that SQLite still takes as its row id."""
    return Column(name, BigInteger().with_variant(Integer, "sqlite"), nullable=False)


runs = Table(
    "runs",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("project", String(256), nullable=False),
    Column("name", String(256), nullable=False),
    Column("status", String(16), nullable=False),  # running, finished, failed; how alive it is follows from last_seen_s
    Column("tags", JSON, nullable=False),
    Column("total_steps", BigInteger),
    Column("world_size", Integer),
    Column("started_at_s", Double, nullable=False),
    Column("updated_at_s", Double, nullable=False),  # newest change of the record
    Column("last_seen_s", Double, nullable=False),  # newest batch or heartbeat, by the server's clock
    Column("last_step_at_s", Double),  # newest batch with a step, by the server's clock
    Column("archived_at_s", Double),
    Column("verdict", JSON(none_as_null=True)),  # newest verdicts, by the diagnosis
    Column("severity", SmallInteger),  # of the worst verdict: 0 ok … 3 critical
    Index("runs_by_start", "started_at_s", "run_id"),
    Index("runs_by_project", "project", "started_at_s", "run_id"),
)

run_details = Table(
    "run_details",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("config", JSON, nullable=False),
    Column("frameworks", JSON, nullable=False),
    Column("notes", Text, nullable=False, server_default=""),
    ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
)
"""What may be large, apart from `runs`: a list reads thousands of those rows, and every batch writes one."""

deletions = Table(
    "deletions",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("deleted_at_s", Double, nullable=False),
)
"""Runs that are gone from `runs` and everything that hangs on it, while their rows in the big tables go in slices."""

sparklines = Table(
    "sparklines",
    metadata,
    Column("run_id", String(32), primary_key=True),
    Column("points", JSON, nullable=False),  # the norm and its threshold, see sparklines.py
    Column("updated_at_s", Double, nullable=False),
    ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
)
"""What lists draw of a run, kept here because fifty rows of it cannot be computed while somebody waits."""

streams = Table(
    "streams",
    metadata,
    _run_id(),
    Column("stream_key", Integer, nullable=False),
    Column("stream", String(256), nullable=False),
    Column("record", JSON, nullable=False),  # wire.StreamRecord
    Column("num_steps", BigInteger, nullable=False, server_default="0"),  # rows of rank 0, all attempts
    Column("num_skipped", BigInteger, nullable=False, server_default="0"),
    Column("num_clipped", BigInteger, nullable=False, server_default="0"),
    Column("num_nonfinite", BigInteger, nullable=False, server_default="0"),  # steps whose norm before clip was
    Column("last_step", BigInteger),  # of the newest attempt
    Column(
        "control", JSON(none_as_null=True)
    ),  # what the person at the screen asked for: {"max_norm": …, "pattern": …}
    Column("last", JSON, nullable=False),  # newest values: {"grad_norm_before_clip": …, "max_norm": …, …}
    PrimaryKeyConstraint("run_id", "stream_key"),
    UniqueConstraint("run_id", "stream", name="streams_by_name"),
    ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
)

attempts = Table(
    "attempts",
    metadata,
    _run_id(),
    Column("attempt_key", Integer, nullable=False),
    Column("attempt_id", String(64), nullable=False),
    Column("started_at_s", Double, nullable=False),
    Column("dropped", JSON, nullable=False),  # rank → reason → rows lost, running totals
    Column("sequences", JSON, nullable=False),  # what gaps are told by: stream_key → rank → next expected `sequence`
    PrimaryKeyConstraint("run_id", "attempt_key"),
    UniqueConstraint("run_id", "attempt_id", name="attempts_by_id"),
    ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
)

layer_sets = Table(
    "layer_sets",
    metadata,
    _run_id(),
    Column("layers_id", String(64), nullable=False),
    Column("layers", JSON(none_as_null=True)),  # [[name, …], …]; NULL until a client has sent the names
    Column("num_layers", Integer, nullable=False),
    PrimaryKeyConstraint("run_id", "layers_id"),
    ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
)

steps = Table(
    "steps",
    metadata,
    *_stream_key(),
    _big("step"),
    Column("rank", Integer, nullable=False),
    Column("wall_time_s", Double),
    *(Column(name, Double) for name in wire.FLOAT_COLUMNS),
    Column("skipped", Boolean),
    *(Column(name, Integer) for name in wire.INTEGER_COLUMNS),
    *(Column(name, Text) for name in wire.TEXT_COLUMNS),
    Column("nonfinite", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "step", "rank"),
    sqlite_with_rowid=False,
)

extents = Table(
    "extents",
    metadata,
    *_stream_key(),
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("sealed_before", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("run_id", "stream_key", "attempt_key"),
    sqlite_with_rowid=False,
)
"""From where to where rank 0 of an attempt has steps or layer norms. Of the steps before `sealed_before` only the
rollups are left: retention has removed the rest, and nothing changes them any more."""

layer_blocks = Table(
    "layer_blocks",
    metadata,
    *_stream_key(),
    _big("block"),  # step // 16
    Column("rank", Integer, nullable=False),
    Column("layers_id", String(64), nullable=False),
    Column("part", SmallInteger, nullable=False),  # PostgreSQL keeps a block that still grows in several rows
    Column("num_layers", Integer, nullable=False),
    Column("present", Integer, nullable=False),  # bit i: the block's step i has a row
    Column("norms", LargeBinary, nullable=False),  # rows by step, float32 little-endian, −1 = no gradient; then room
    PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "block", "rank", "layers_id", "part"),
)
"""Layer norms, sixteen steps to a row: a row for each step would spend a tenth of the file on keys, and on half-empty
pages far more. NaN and Inf are in the norms as themselves. With a row id, because SQLite spills what is larger than a
quarter page out of tables without."""

buckets = Table(
    "buckets",
    metadata,
    *_stream_key(),
    Column("level", SmallInteger, nullable=False),  # 1, 2, 3 …: buckets of 16, 256, 4096 … steps
    _big("bucket"),  # step // bucket size
    Column("first_step", BigInteger, nullable=False),
    Column("last_step", BigInteger, nullable=False),
    Column("num_steps", BigInteger, nullable=False),
    Column("num_skipped", BigInteger, nullable=False),
    Column("num_clipped", BigInteger, nullable=False),
    Column("first_time_s", Double),
    Column("last_time_s", Double),
    *(Column(f"{name}_count", BigInteger, nullable=False) for name in NUMERIC_COLUMNS),  # finite values
    *(Column(f"{name}_num_nonfinite", BigInteger, nullable=False) for name in wire.FLOAT_COLUMNS),
    *(Column(f"{name}_{kind}", Double) for kind in ("min", "max", "mean") for name in NUMERIC_COLUMNS),
    PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "level", "bucket"),
    sqlite_with_rowid=False,
)
"""Rollups of rank 0. A bucket is there once its attempt has a step at or behind the bucket's end, so that a bucket is
written once and not with every batch; what is newer is read from finer levels and from the steps."""

bucket_blobs = Table(
    "bucket_blobs",
    metadata,
    *_stream_key(),
    Column("kind", String(16), nullable=False),  # histogram, layers
    Column("level", SmallInteger, nullable=False),
    _big("bucket"),
    Column("layers_id", String(64), nullable=False, server_default=""),
    Column("blob", LargeBinary, nullable=False),
    PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "kind", "level", "bucket", "layers_id"),
)

metrics = Table(
    "metrics",
    metadata,
    *_stream_key(),
    Column("name", String(256), nullable=False),
    _big("step"),
    Column("value", Double),
    Column("nonfinite", SmallInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("run_id", "stream_key", "attempt_key", "name", "step"),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    _run_id(),
    Column("event_id", String(16), nullable=False),  # hash of what was sent: re-sending changes nothing
    Column("stream_key", Integer, nullable=False),
    Column("attempt_key", Integer, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("step", BigInteger),
    Column("wall_time_s", Double, nullable=False),
    Column("message", Text, nullable=False),
    PrimaryKeyConstraint("run_id", "event_id"),
    ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
    Index("events_by_time", "run_id", "wall_time_s", "event_id"),
)

ticks = Table(
    "ticks",
    metadata,
    Column("position", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("run_id", String(32), nullable=False),
    Column("kind", String(16), nullable=False),  # steps, run, deleted, alert
    Column("stream_key", Integer),
    Column("attempt_key", Integer),
    Column("first_step", BigInteger),
    Column("last_step", BigInteger),
    Column("created_at_s", Double, nullable=False),
    Column("alert_id", Integer),
    Column("change", String(16)),  # of the alert: opened, reminded, repeated, acknowledged, resolved
    sqlite_autoincrement=True,
)
"""What changed, in the order it was committed: positions are taken under one lock, so any replica can resume a live
stream. Only the newest stay; who asks for an older position is told to read afresh."""

alerts = Table(
    "alerts",
    metadata,
    _run_id(),
    Column("alert_id", Integer, nullable=False),  # counted within the run
    Column("kind", String(32), nullable=False),
    Column("stream_key", Integer),  # NULL: of the whole run
    Column("attempt_key", Integer),
    Column("severity", String(16), nullable=False),
    Column("state", String(16), nullable=False),  # open, acknowledged, resolved
    Column("opened_at_s", Double, nullable=False),
    Column("updated_at_s", Double, nullable=False),
    Column("told_at_s", Double),  # newest message about it, sent or waiting in the outbox
    Column("acknowledged_at_s", Double),
    Column("acknowledged_by", String(256)),
    Column("resolved_at_s", Double),
    Column("first_step", BigInteger),
    Column("last_step", BigInteger),
    Column("num_repeats", Integer, nullable=False, server_default="0"),
    Column("value", Double),
    Column("layer", Text),  # in which the first non-finite value was
    Column("title", Text, nullable=False),
    Column("evidence", JSON, nullable=False),  # name → number
    Column("folded", JSON, nullable=False),  # kinds that this alert explains
    Column("folded_into", Integer),  # the alert that explains this one
    PrimaryKeyConstraint("run_id", "alert_id"),
    ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
    Index("alerts_by_time", "opened_at_s", "run_id", "alert_id"),
    Index("alerts_by_change", "run_id", "updated_at_s"),
    Index(
        "alerts_open",
        "run_id",
        "severity",
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
)

alert_states = Table(
    "alert_states",
    metadata,
    _run_id(),
    Column("stream_key", Integer, nullable=False),
    Column("state", LargeBinary, nullable=False),  # alerts.sliding.State
    PrimaryKeyConstraint("run_id", "stream_key"),
    ForeignKeyConstraint(["run_id"], ["runs.run_id"], ondelete="CASCADE"),
)
"""What the alert rules remember of a stream's newest steps: kept in the transaction of the steps, so that it is exact
whichever server took them and whenever it was killed."""

alert_rules = Table(
    "alert_rules",
    metadata,
    Column("scope", String(16), nullable=False, server_default="global"),  # global, project, run
    Column("scope_id", String(256), nullable=False, server_default=""),  # the project's name, the run's id
    Column("kind", String(32), nullable=False),
    Column("enabled", Boolean),
    Column("severity", String(16)),
    Column("settings", JSON, nullable=False),  # threshold, window, …
    Column("updated_at_s", Double, nullable=False),
    PrimaryKeyConstraint("scope", "scope_id", "kind"),
)
"""What people have changed of the default rules. What a row leaves open is as the wider scope has it."""

outbox = Table(
    "outbox",
    metadata,
    Column("outbox_id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("run_id", String(32), nullable=False),
    Column("project", String(256), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("payload", JSON, nullable=False),  # what the message says, as it was when the alert was opened
    Column("created_at_s", Double, nullable=False),
    sqlite_autoincrement=True,
)
"""Messages, in the order their alerts were committed: their ids are taken under the lock of the ticks' positions. How
far each target has come is in `notification_targets`, so a message is one row however many targets there are."""

notification_targets = Table(
    "notification_targets",
    metadata,
    Column("target_id", String(16), primary_key=True),  # hash of its URL and of what it asks for
    Column("delivered_up_to", BigInteger, nullable=False),  # an outbox_id
    Column("num_sent", BigInteger, nullable=False, server_default="0"),
    Column("num_given_up", BigInteger, nullable=False, server_default="0"),
    Column("num_failures", Integer, nullable=False, server_default="0"),  # in a row
    Column("next_try_at_s", Double),
    Column("failing_since_s", Double),
    Column("last_sent_at_s", Double),
    Column("last_error", Text),
)
