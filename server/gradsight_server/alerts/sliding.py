"""What the rules remember of a stream between two batches: small, exact, and kept with the stream. Pure."""

import math
from array import array
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from gradsight_server.alerts.rules import Kind

FORMAT = 1
"""Raised where the layout changes: what an older version remembered is then forgotten."""
SIGMAS_PER_QUARTILE = 1.4826
"""A normal distribution has its quartiles so much closer than a standard deviation."""


class Mark(NamedTuple):
    """A step that counts for a rule. Rows count recorded steps, so that windows work where not every step is."""

    row: int
    step: int
    layer: str | None = None


class Remembered(Struct, array_like=True):
    """An alert, as far as its further life depends on it."""

    alert_id: int
    first_step: int
    last_step: int
    last_row: int
    told_at_s: float
    is_open: bool = True
    num_repeats: int = 0
    num_steps: int = 0
    """How many steps the condition was seen at."""
    value: float = 0.0
    layer: str | None = None
    evidence: dict[str, float] = {}
    folded: list[Kind] = []


class Condition(Struct, array_like=True):
    """One rule's condition: since when it holds, and the alert it has opened last."""

    since_row: int | None = None
    has_begun: bool = False
    """It has held for as long as the rule wants: an alert is open, or it was folded into another."""
    alert: Remembered | None = None

    @property
    def is_active(self) -> bool:
        return self.since_row is not None or self.has_open_alert

    @property
    def has_open_alert(self) -> bool:
        return self.alert is not None and self.alert.is_open


class Search(Struct, array_like=True):
    """The first burst of skips, by which a dynamic loss scale finds its place: nothing is wrong with those."""

    is_on: bool = True
    num_quiet: int = 0
    """Steps since the last skip."""
    num_below: int = 0
    """Skips at a scale that is already low, or that nobody knows."""


class Level(Struct, array_like=True):
    """The usual norm: the median of its logarithm, and the deviation that its quartiles tell of."""

    log_median: float
    log_deviation: float

    @property
    def median(self) -> float:
        return math.exp(self.log_median)

    def border(self, ratio: float, sigmas: float) -> float:
        """Norms above it stand out: by a ratio, and by so many deviations, for a heavy tail is no spike."""
        return math.exp(min(self.log_median + max(math.log(ratio), sigmas * self.log_deviation), 700.0))


class Clips(Struct, array_like=True):
    """Figures of the clipping of some neighbouring steps."""

    num_steps: int = 0
    num_clipped: int = 0
    sum_coef: float = 0.0
    sum_squares: float = 0.0


class State(Struct, array_like=True):
    """All that is remembered of the newest attempt at a stream."""

    attempt_key: int
    last_step: int = -1
    """Steps up to here have been judged; what comes again, or late, is not judged twice."""
    num_rows: int = 0
    search: Search = field(default_factory=Search)
    scale: float | None = None
    scales: list[tuple[int, float]] = []
    """(row, scale) from which on it held: at the beginning of the window and wherever it changed since."""
    odd: list[Mark] = []
    """Recent steps whose norm was not finite, beyond loss scaling's routine."""
    odd_losses: list[Mark] = []
    skips: list[int] = []
    """Rows of recent skips."""
    odd_streak_from: Mark | None = None
    """Where norms or losses that were not finite began, without a break since."""
    num_odd_in_a_row: int = 0
    skip_streak_from: int = 0
    num_skips_in_a_row: int = 0
    norms: bytes = b""
    """The newest finite norms, float32."""
    level: Level | None = None
    num_since_level: int = 0
    clips: list[Clips] = []
    max_norm: float | None = None
    """The threshold that `clips` are about."""
    num_lost: int = 0
    """Lost rows that have been told of."""
    last_time_s: float | None = None
    longest_pause_s: float = 0.0
    conditions: dict[Kind, Condition] = {}


class _Kept(Struct, array_like=True):
    format: int
    state: State


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Kept)


def encode(state: State) -> bytes:
    """The state as it is kept."""
    return _encoder.encode(_Kept(FORMAT, state))


def decode(kept: bytes) -> State | None:
    """The state; None where another version has kept it."""
    try:
        found = _decoder.decode(kept)
    except msgspec.DecodeError:
        return None
    return found.state if found.format == FORMAT else None


def level_of(norms: bytes, *, at_least: int) -> Level | None:
    """The level of float32 norms; None where too few of them are positive and finite."""
    ordered = sorted(array("f", norms))
    if ordered and not 0.0 < ordered[0] <= ordered[-1] < math.inf:
        ordered = [norm for norm in ordered if 0.0 < norm < math.inf]
    num = len(ordered)
    if num < at_least:
        return None
    spread = math.log(ordered[3 * num // 4] / ordered[num // 4])
    return Level(math.log(ordered[num // 2]), SIGMAS_PER_QUARTILE * spread / 2)
