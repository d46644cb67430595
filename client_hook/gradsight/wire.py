"""The wire: run, batch, event and answer records, defined once for both sides.

A batch is columnar: `step[i]`, `loss[i]`, … describe the same optimizer step. JSON and MessagePack carry the same
schema. In JSON a non-finite number is `"NaN"`, `"Infinity"` or `"-Infinity"`; MessagePack carries it as a float too.
A null is "not recorded". This file needs neither torch nor numpy.
"""

import hashlib
import math
import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET as UNSET
from msgspec import Meta, Struct, UnsetType

from gradsight.errors import WireError

SCHEMA = 1
MAX_STEP = 2**53 - 1
MAX_STEPS_PER_BATCH = 20_000
MAX_LAYERS = 100_000
MAX_METRIC_NAMES = 32
NO_GRADIENT = -1.0
"""A layer without a gradient, in `layer_norms`; a norm cannot be negative."""

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
TEXT_COLUMNS = ("skip_reason", "first_nonfinite_layer", "nonfinite_kind")
COLUMNS = (*FLOAT_COLUMNS, "skipped", *INTEGER_COLUMNS, *TEXT_COLUMNS)
"""Every scalar column of a step, beside its key (step, rank) and `wall_time_s`."""

AlertKind = Literal[
    "dead_run",
    "nonfinite_burst",
    "loss_nonfinite",
    "scale_below_one",
    "skip_streak",
    "scale_falling",
    "skip_rate",
    "norm_spike",
    "over_clipping",
    "silent_run",
    "telemetry_loss",
]
ALERT_KINDS: tuple[AlertKind, ...] = get_args(AlertKind)
"""In this order: where several begin at one step, an earlier one may explain a later one."""
SKIP_REASONS = ("overflow", "nonfinite", "no_gradient", "user")
CONTENT_TYPE_MSGPACK = "application/msgpack"
CONTENT_TYPE_JSON = "application/json"

NonFinite = Literal["NaN", "Infinity", "-Infinity"]
Number = float | NonFinite | None
NO_NUL = r"^[^\x00]*$"  # PostgreSQL has no NUL in a text
Name = Annotated[str, Meta(min_length=1, max_length=256, pattern=NO_NUL)]
STREAM = r"^(?![\s\S]*[\x00-\x1f\x7f-\x9f])(?!([\s\S]*/)?\.\.?(/|$))"
"""A stream's name stands in the path of an address: dots alone between slashes are taken for a way up by whoever is on
the way there, and a line's end by nobody's routes for a part of it."""
STREAM_RULE = "a text of 1 to 256 characters, none a control character, and no part between slashes '.' or '..'"
StreamName = Annotated[str, Meta(min_length=1, max_length=256, pattern=STREAM)]
LayerName = Annotated[str, Meta(min_length=1, max_length=1024, pattern=NO_NUL)]
Step = Annotated[int, Meta(ge=0, le=MAX_STEP)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Moment = Annotated[float, Meta(ge=0.0, le=1e11)]
"""UTC seconds since 1970."""
Numbers = Annotated[list[Number], Meta(max_length=MAX_STEPS_PER_BATCH)]
Counts = Annotated[list[Count | None], Meta(max_length=MAX_STEPS_PER_BATCH)]
LayerNames = LayerName | Annotated[list[LayerName], Meta(min_length=1, max_length=64)]
"""One layer: its name, or all its names where weights are tied."""


class Optimizer(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What diagnosis needs to know of an optimizer."""

    class_name: Name = msgspec.field(name="class")
    lr: float | None = None
    betas: list[float] | None = None
    momentum: float | None = None


class StreamRecord(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One optimizer's stream; absent fields leave what the server knows."""

    optimizer: Optimizer | UnsetType = UNSET
    policy: Annotated[str, Meta(max_length=4096)] | None | UnsetType = UNSET
    """The clipping policy's text form, `global_norm(1.0)`; None where clipping is said to be off."""
    precision: Literal["fp32", "bf16", "fp16"] | UnsetType = UNSET
    scaler: Annotated[str, Meta(max_length=256)] | None | UnsetType = UNSET
    """`dynamic(init_scale=65536.0, …)`, `static(1024.0)`; None without loss scaling."""
    num_parameters: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    allow_control: bool | UnsetType = UNSET


class RunRecord(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Body of `PUT /api/v1/runs/{run_id}`: keys merge, absent ones stay."""

    project: Name | UnsetType = UNSET
    name: Name | UnsetType = UNSET
    tags: Annotated[list[Name], Meta(max_length=64)] | UnsetType = UNSET
    config: dict[str, Any] | UnsetType = UNSET
    total_steps: Annotated[int, Meta(ge=1, le=MAX_STEP)] | None | UnsetType = UNSET
    world_size: Annotated[int, Meta(ge=1, le=10_000_000)] | UnsetType = UNSET
    frameworks: dict[Name, Name] | UnsetType = UNSET
    """Versions, `{"torch": "2.13.0"}`."""
    started_at_s: Moment | UnsetType = UNSET
    streams: Annotated[dict[StreamName, StreamRecord], Meta(max_length=256)] | UnsetType = UNSET


class Metric(Struct, kw_only=True, forbid_unknown_fields=True):
    """One value of the user's own, a validation loss say."""

    step: Step
    name: Name
    value: float | NonFinite


class Event(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that happened; the kinds `finished` and `failed` end a run."""

    kind: Annotated[str, Meta(min_length=1, max_length=64, pattern=NO_NUL)]
    step: Step | None = None
    message: Annotated[str, Meta(max_length=4096, pattern=NO_NUL)] = ""
    wall_time_s: Moment | None = None
    control_id: Count | None = None
    """Of `max_norm_changed` and `control_refused`: the wish (`Control.id`) that this is the end of."""


class Batch(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Body of `POST /api/v1/runs/{run_id}/streams/{stream}/batches`. An empty one is a heartbeat."""

    schema: Annotated[int, Meta(ge=1)] = SCHEMA
    attempt_id: Annotated[str, Meta(max_length=64, pattern=NO_NUL)] = ""
    attempt_started_at_s: Moment | None = None
    sequence: Annotated[int, Meta(ge=0, le=MAX_STEP)] | None = None
    """How many rows this process recorded on this stream before this batch: a jump is a gap."""

    step: Annotated[list[Step], Meta(max_length=MAX_STEPS_PER_BATCH)] = []
    wall_time_s: Annotated[list[Moment | None], Meta(max_length=MAX_STEPS_PER_BATCH)] | UnsetType = UNSET
    rank: Annotated[list[Count], Meta(max_length=MAX_STEPS_PER_BATCH)] | UnsetType = UNSET

    loss: Numbers | UnsetType = UNSET
    lr: Numbers | UnsetType = UNSET
    grad_norm_before_clip: Numbers | UnsetType = UNSET
    max_norm: Numbers | UnsetType = UNSET
    clip_coef: Numbers | UnsetType = UNSET
    clipped_layer_fraction: Numbers | UnsetType = UNSET
    loss_scale: Numbers | UnsetType = UNSET
    loss_scale_after: Numbers | UnsetType = UNSET
    headroom_log2: Numbers | UnsetType = UNSET
    underflow_fraction: Numbers | UnsetType = UNSET
    update_ratio: Numbers | UnsetType = UNSET
    step_time_s: Numbers | UnsetType = UNSET
    hook_time_s: Numbers | UnsetType = UNSET
    skipped: Annotated[list[bool | None], Meta(max_length=MAX_STEPS_PER_BATCH)] | UnsetType = UNSET
    num_nonfinite_layers: Counts | UnsetType = UNSET
    num_layers_without_grad: Counts | UnsetType = UNSET
    skip_reason: (
        Annotated[
            list[Literal["overflow", "nonfinite", "no_gradient", "user"] | None], Meta(max_length=MAX_STEPS_PER_BATCH)
        ]
        | UnsetType
    ) = UNSET
    first_nonfinite_layer: Annotated[list[LayerName | None], Meta(max_length=MAX_STEPS_PER_BATCH)] | UnsetType = UNSET
    nonfinite_kind: (
        Annotated[list[Literal["nan", "inf", "nan+inf"] | None], Meta(max_length=MAX_STEPS_PER_BATCH)] | UnsetType
    ) = UNSET

    layers_id: Annotated[str, Meta(min_length=1, max_length=64, pattern=NO_NUL)] | None = None
    layers: Annotated[list[LayerNames], Meta(max_length=MAX_LAYERS)] | None = None
    layer_step: Annotated[list[Step], Meta(max_length=MAX_STEPS_PER_BATCH)] = []
    layer_norms: bytes | list[list[Number]] | None = None
    """float32 little-endian, one row per `layer_step`, −1 = no gradient; in JSON nested lists with null."""

    metrics: Annotated[list[Metric], Meta(max_length=MAX_STEPS_PER_BATCH)] = []
    events: Annotated[list[Event], Meta(max_length=MAX_STEPS_PER_BATCH)] = []
    dropped: dict[Name, Annotated[int, Meta(ge=0, le=MAX_STEP)]] = {}
    """Reason → rows this process has lost so far in this attempt: totals, so that re-sending changes nothing."""

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The scalar columns that are there, by name."""
        return {name: values for name in COLUMNS if (values := getattr(self, name)) is not UNSET}

    def __post_init__(self) -> None:
        if self.schema > SCHEMA:
            raise ValueError(f"schema {self.schema} is newer than this side knows ({SCHEMA}): update it")
        for name in ("wall_time_s", "rank", *COLUMNS):
            values = getattr(self, name)
            if values is not UNSET and len(values) != len(self.step):
                raise ValueError(f"{name} has {len(values)} values, step has {len(self.step)}: they must be as many")
        if len({metric.name for metric in self.metrics}) > MAX_METRIC_NAMES:
            raise ValueError(f"metrics has more than {MAX_METRIC_NAMES} different names")
        _check_layers(self)


def _check_layers(batch: Batch) -> None:
    norms = batch.layer_norms
    if norms is None:
        if batch.layer_step:
            raise ValueError(f"layer_norms is missing for layer_step of {len(batch.layer_step)} steps")
        return
    if batch.layers is None and batch.layers_id is None:
        raise ValueError("layers or layers_id must say which layers layer_norms is about")
    num_rows = len(batch.layer_step)
    if isinstance(norms, bytes):
        num_layers = len(batch.layers) if batch.layers is not None else None
        row_bytes = 4 * num_layers if num_layers is not None else (len(norms) // num_rows if num_rows else 0)
        if len(norms) != num_rows * row_bytes or row_bytes % 4:
            expected = (
                f"{num_rows} rows of {num_layers} float32" if num_layers is not None else f"{num_rows} equal rows"
            )
            raise ValueError(f"layer_norms has {len(norms)} bytes, layer_step asks for {expected}")
        return
    if len(norms) != num_rows:
        raise ValueError(f"layer_norms has {len(norms)} rows, layer_step has {num_rows}")
    width = len(batch.layers) if batch.layers is not None else (len(norms[0]) if norms else 0)
    for i, row in enumerate(norms):
        if len(row) != width:
            raise ValueError(f"layer_norms[{i}] has {len(row)} values, expected one per layer ({width})")


class Control(Struct, kw_only=True):
    """A wish of the person at the screen, for a run that allows it.

    It comes with every answer until an event of the stream says what became of it: `max_norm_changed` (with the step
    it holds from) or `control_refused`, either with its id as `control_id`.
    """

    id: int = 0
    """Counted within the run: a higher one is newer."""
    max_norm: float
    stream: str = "main"
    pattern: str | None = None
    """Of a policy with groups: whose threshold."""


class AlertNotice(Struct, kw_only=True):
    """An alert, as the training process hears of it: with each answer for a minute after it has changed.

    So a lost answer loses nothing, and whoever calls back on alerts tells by id, state and num_repeats what is news.
    """

    id: int
    kind: str
    severity: Literal["info", "warning", "critical"]
    state: Literal["open", "acknowledged", "resolved"]
    title: str
    first_step: int | None = None
    last_step: int | None = None
    value: float | None = None
    num_repeats: int = 0
    stream: str | None = None
    """None: of the whole run."""
    layer: str | None = None
    """In which the first non-finite value was, where that is known."""


class Answer(Struct, kw_only=True):
    """What the server says to a batch: the channel back to the trainer."""

    accepted_steps: int
    last_step: int | None = None
    """The last step the server has of this stream and attempt."""
    control: list[Control] = []
    alerts: list[AlertNotice] = []
    flush_after_s: float = 0.25
    layers_needed: bool = False
    """The server does not know the names behind `layers_id`: send `layers` again."""


Record = TypeVar("Record", RunRecord, Batch, Answer)


def encode(record: Struct, content_type: str = CONTENT_TYPE_MSGPACK) -> bytes:
    """The record's bytes. Only MessagePack carries non-finite numbers; JSON makes them null."""
    return msgspec.msgpack.encode(record) if content_type == CONTENT_TYPE_MSGPACK else msgspec.json.encode(record)


def decode(body: bytes, kind: type[Record], content_type: str = CONTENT_TYPE_MSGPACK) -> Record:
    """The record in `body`.

    Raises:
        WireError: names the field and the value that break the contract.
    """
    decoder = _decoder(content_type)
    try:
        return decoder.decode(body, type=kind)  # type: ignore[no-any-return]  # two modules of one shape
    except msgspec.ValidationError as error:
        raise _explained(error, body, kind, decoder) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the body is not whole {content_type}: {error}", field="body") from None


def _decoder(content_type: str) -> Any:
    return msgspec.msgpack if content_type == CONTENT_TYPE_MSGPACK else msgspec.json


def _explained(error: msgspec.ValidationError, body: bytes, kind: type[Struct], decoder: Any) -> WireError:
    """Msgspec's message and path, with the offending value put beside them."""
    what, _, path = str(error).partition(" - at `")
    path = path.removeprefix("key` in `").rstrip("`").removeprefix("$").removeprefix(".")
    if what.endswith(f"matching regex {STREAM!r}"):
        what = f"a stream's name must be {STREAM_RULE}"
    if "unknown field" in what:
        name = what.split("`")[1]
        return WireError(f"unknown field {name!r}; known are {', '.join(kind.__struct_encode_fields__)}", field=name)
    if not path:
        field = what.split(" ", 1)[0].split("[", 1)[0]
        return WireError(what, field=field if field in kind.__struct_encode_fields__ else "body")
    if path.split("[", 1)[0] in FLOAT_COLUMNS:
        what = 'expected a number, null, "NaN", "Infinity" or "-Infinity"'
    try:
        value: Any = decoder.decode(body)
        for part in path.replace("[", ".[").split("."):
            value = value[int(part[1:-1])] if part.startswith("[") else value[part]
    except (msgspec.DecodeError, KeyError, IndexError, TypeError, ValueError, RecursionError):
        return WireError(f"{path}: {what}", field=path)
    shown = repr(value)
    return WireError(f"{path}: {what}, got {shown if len(shown) <= 80 else shown[:77] + '…'}", field=path)


def number(value: Number) -> float | None:
    """A wire number as a float: the words become NaN and infinities."""
    return float(value) if isinstance(value, str) else value


def word(value: float) -> float | NonFinite:
    """A float as JSON can carry it."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@lru_cache(maxsize=256)  # it is asked at every step
def is_stream_name(name: str) -> bool:
    """Whether a stream can be called so: every such name arrives as it is."""
    return 1 <= len(name) <= 256 and _STREAM.match(name) is not None


_STREAM = re.compile(STREAM)


def layer_names(layers: Sequence[LayerNames]) -> list[list[str]]:
    """Layers as lists of names, also where a layer has one name only."""
    return [[layer] if isinstance(layer, str) else list(layer) for layer in layers]


def layers_id(layers: Sequence[LayerNames]) -> str:
    """The hash (16 hex digits) that stands for these names on the wire."""
    text = "\n".join("\t".join(names) for names in layer_names(layers))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def pack_norms(rows: Iterable[Iterable[float | None]]) -> bytes:
    """Rows of layer norms as the wire's float32 little-endian bytes; None = no gradient."""
    packed = array("f")
    for row in map(list, rows):
        try:
            packed.extend(array("f", row))  # type: ignore[arg-type]  # a None raises
        except TypeError:
            packed.extend(array("f", [NO_GRADIENT if norm is None else norm for norm in row]))
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()
