"""The shapes REST answers in, as the API's documentation shows them, and the one a person's changes come in.

What a client sends is defined in `gradsight.wire`. Answers are built by the store and leave unchecked; a test holds
them against these shapes.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from pydantic import BaseModel, ConfigDict

from gradsight import wire

Values = list[float | None]
SeverityName = Literal["ok", "info", "warning", "critical"]


class Shape(BaseModel):
    """Base of every documented answer: a field that isn't named here is a mistake."""

    model_config = ConfigDict(extra="forbid")


class ErrorAnswer(Shape):
    """What every refused or failed request is answered with."""

    error: str
    """The kind of error, `RunNotFound`."""
    detail: str
    """What is wrong, the value, and what would be right."""


class Counts(Shape):
    num_steps: int
    num_applied: int
    num_skipped: int
    num_clipped: int
    num_nonfinite: int
    """Steps whose norm before clipping was NaN or infinite."""


class LastValues(Shape):
    """Values of the newest step; null where not recorded or not finite."""

    grad_norm_before_clip: float | None
    max_norm: float | None
    clip_coef: float | None
    loss: float | None
    loss_scale: float | None
    nonfinite: dict[str, wire.NonFinite]
    """Which of the nulls were recorded as NaN or infinite."""


class ClippingInBrief(Shape):
    verdict: Literal["off", "unknown", "inactive", "healthy", "firm", "too_tight", "too_loose"]
    severity: SeverityName
    stream: str
    """The stream this is said of: of several, the one that is worst off."""


class LossScalingInBrief(Shape):
    verdict: Literal[
        "not_used",
        "unknown",
        "static",
        "warming_up",
        "healthy",
        "thrashing",
        "collapsing",
        "collapsed",
        "model_nan",
    ]
    severity: SeverityName
    stream: str


class NonFiniteInBrief(Shape):
    num_steps: int
    severity: SeverityName


class WorstFinding(Shape):
    code: str
    severity: SeverityName
    stream: str


class RunVerdict(Shape):
    """What the diagnosis says of the newest steps, a moment ago."""

    clipping: ClippingInBrief
    loss_scaling: LossScalingInBrief
    nonfinite: NonFiniteInBrief
    worst: WorstFinding | None
    """The finding that makes the run's severity."""


class OpenAlerts(Shape):
    """How many alerts are open, by severity. Acknowledged ones are not counted."""

    info: int
    warning: int
    critical: int


class StreamCounts(Shape):
    num_steps: int
    num_clipped: int


class RunSummary(Counts):
    """A run in brief. Counts are over all streams; the last step and its values are of `main`, or the first stream."""

    id: str
    project: str
    name: str
    tags: list[str]
    status: Literal["running", "finished", "failed"]
    state: Literal["running", "stalled", "silent", "finished", "failed"]
    """Stalled: alive, but no step for long. Silent: nothing was heard of it for 30 s."""
    started_at_s: float
    last_seen_s: float
    archived: bool
    total_steps: int | None
    world_size: int | None
    streams: list[str]
    of_stream: StreamCounts
    """Of `main`, or the first stream, over all attempts."""
    last_step: int | None
    steps_per_s: float | None
    last: LastValues
    verdict: RunVerdict | None
    """None until the run was first judged."""
    severity: SeverityName | None
    """Of the worst that was found."""
    open_alerts: OpenAlerts


class StreamDetail(Counts):
    record: dict[str, Any]
    """What the client said of the optimizer: its class, the clipping policy, precision, loss scaling."""
    last_step: int | None
    last: LastValues


class Attempt(Shape):
    """One launch of the run."""

    attempt_id: str
    number: int
    """1 for the first launch."""
    started_at_s: float
    dropped: dict[str, int]
    """Rows the client lost, by reason."""


class RunDetail(RunSummary):
    config: dict[str, Any]
    frameworks: dict[str, str]
    notes: str
    streams_detail: dict[str, StreamDetail]
    attempts: list[Attempt]
    position: int
    """The live position this was read at."""


class Sparkline(Shape):
    """A whole run in at most 64 points."""

    step: list[int]
    """The first step of each point."""
    norm: Values
    """The largest finite norm before clipping; null where none was recorded or finite."""
    max_norm: Values
    num_nonfinite: list[int]
    num_replaced: int = 0
    """Of the steps counted in `of_stream`, those that a later attempt has taken the place of."""
    num_replaced_clipped: int = 0


class RunRow(RunSummary):
    sparkline: Sparkline | None
    """Null where it has not been drawn yet; it is some seconds behind the run."""


class RunPage(Shape):
    items: list[RunRow]
    next_cursor: str | None
    num_runs: int | None
    """How many there are on all pages; null on any but the first."""


class ProjectCount(Shape):
    project: str
    num_runs: int
    num_steps: int


class ProjectList(Shape):
    items: list[ProjectCount]


class TagCount(Shape):
    tag: str
    num_runs: int


class TagList(Shape):
    items: list[TagCount]


class StorageUse(Shape):
    engine: str
    url: str
    """Without the password."""
    num_bytes: int
    num_runs: int
    num_archived: int
    num_steps: int


class Retention(Shape):
    """What is kept of raw steps; null keeps all. Rollups stay."""

    keep_raw_days: float | None
    keep_raw_steps: int | None


class ServerAnswer(Shape):
    """How the server is."""

    version: str
    started_at_s: float
    now_s: float
    needs_token: bool
    is_leader: bool
    """Whether this server, of several on one database, does what only one may do."""
    num_viewers: int
    """Open live streams."""
    num_waiting: int
    """Works that wait for the writer."""
    database: StorageUse
    retention: Retention


class BucketedColumn(Shape):
    min: Values
    max: Values
    mean: Values
    num_nonfinite: list[int]


class SeriesAnswer(Shape):
    """A stream's columns: exact steps where they fit, else buckets in which no spike, NaN, skip or clip is lost."""

    stream: str
    attempt: int | None
    bucket_steps: int
    step: list[int]
    """First step of each bucket."""
    last_step: list[int]
    columns: dict[str, BucketedColumn]
    num_skipped: list[int]
    num_clipped: list[int]


class RunSeries(SeriesAnswer):
    run_id: str
    wall_time_s: Values
    """When the first step of each point was made, in UTC seconds; null where nobody said."""


class ComparedSeries(Shape):
    """A series for each run, in the order asked for; all with the same `bucket_steps`."""

    items: list[RunSeries]


class ClipFraction(Shape):
    """The part of the finite norms above a threshold: the truth lies between the two."""

    max_norm: float
    low: float
    high: float


class DistributionAnswer(Shape):
    """The norms before clipping of a range of steps."""

    num_steps: int
    num_finite: int
    num_nonfinite: int
    num_skipped: int
    num_clipped: int
    """By the thresholds that were in force."""
    min: float | None
    max: float | None
    quantiles: dict[str, float | None]
    """`p50` is the median; each within 2 %."""
    clip_fraction: ClipFraction | None
    """Null where no threshold was asked for, or where there are no finite norms."""


class LayersAnswer(Shape):
    """The layers' norms: for each layer a list with one entry per bucket."""

    stream: str
    attempt: int | None
    bucket_steps: int
    step: list[int]
    last_step: list[int]
    layers: list[list[str]]
    """Each layer with all its names: tied weights have several."""
    max: list[Values]
    """Largest finite norm; null without a gradient."""
    num_nonfinite: list[list[int]]
    num_without_grad: list[list[int]]


class LayerAtStep(Shape):
    names: list[str]
    norm: float | None
    nonfinite: wire.NonFinite | None


class StepAnswer(BaseModel):
    """One step with every recorded column."""

    model_config = ConfigDict(extra="allow")

    step: int
    attempt: int
    nonfinite: dict[str, wire.NonFinite]
    layers: list[LayerAtStep]


class EventShape(Shape):
    id: str
    kind: str
    stream: str
    attempt: int
    step: int | None
    wall_time_s: float
    message: str


class EventPage(Shape):
    items: list[EventShape]
    next_cursor: str | None


class FigureAnswer(Shape):
    """A Plotly figure with roles in place of colours and keys in place of texts."""

    name: str
    stream: str
    attempt: int | None
    position: int
    """The live position: ticks after it carry what this figure lacks."""
    bucket_steps: int
    first_step: int | None
    last_step: int | None
    data: list[dict[str, Any]]
    layout: dict[str, Any]
    layer: str | None = None
    """The label of the one layer that `layer` shows."""
    num_norms: int | None = None
    """How many norms the `histogram` is of."""
    launches: list[dict[str, Any]] = []
    """Of `norm` and `loss`: which attempt is shown from which step to which."""


class LogFormat(Shape):
    """What a log was read as."""

    name: str
    """As in `--format`: `megatron`."""
    title: str
    """What a person calls it: "Megatron-LM console"."""


class LogPart(Shape):
    """One stream of one run in a log, and what the diagnosis says of it."""

    name: str
    """The run's: as the log has it, else the log's name."""
    run: int
    """1 for the first run in the log."""
    stream: str
    num_attempts: int
    """Launches of the run in this log."""
    num_steps: int
    run_id: str | None
    """The run on this server; null where the log was not kept."""
    url: str | None
    """The run's page, `/runs/…`."""
    sparkline: Sparkline
    diagnosis: dict[str, Any]
    """A `Diagnosis`."""


class ImportAnswer(Shape):
    """What a log says, and the runs that were made of it if it was to be kept."""

    format: LogFormat
    notes: list[str]
    """Where thresholds come from, what numbers are, what could not be read: a sentence each."""
    kept: bool
    runs: list[LogPart]
    """At least one. A run with several streams is there once for each."""


class RunPatch(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a person changes of a run; absent or null leaves it."""

    name: wire.Name | None = None
    tags: Annotated[list[wire.Name], Meta(max_length=64)] | None = None
    notes: Annotated[str, Meta(max_length=65_536, pattern=wire.NO_NUL)] | None = None
    archived: bool | None = None
