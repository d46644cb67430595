"""What a diagnosis is made from: a stream's steps as columns, what else is known of it, facts of a longer range."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gradsight import wire

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]
Texts = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One quantity by step, shape [S]. A NaN that was recorded is not the same as a value that was not.

    Where `recorded` is False the value is NaN and says nothing. Yes and no are 1.0 and 0.0.
    """

    values: Floats
    recorded: Bools

    @classmethod
    def of(cls, values: Sequence[Any] | ArrayLike) -> Self:
        """From numbers as the wire has them: None is "not recorded", "NaN" and "Infinity" are what they say."""
        if isinstance(values, np.ndarray) and values.dtype != object:
            return cls(values.astype(np.float64), np.ones(values.shape, dtype=np.bool_))
        given = list(values)  # type: ignore[arg-type]  # of ArrayLike only lists and tuples are left
        recorded = np.array([value is not None for value in given], dtype=np.bool_)
        numbers = np.array([np.nan if value is None else float(value) for value in given], dtype=np.float64)
        return cls(numbers, recorded)

    @property
    def finite(self) -> Bools:
        return self.recorded & np.isfinite(self.values)

    @property
    def nonfinite(self) -> Bools:
        return self.recorded & ~np.isfinite(self.values)


@dataclass(frozen=True, slots=True)
class LayerNorms:
    """Norms of single layers, before clipping: rows are some of the stream's steps.

    As on the wire: `norms[row, layer]` is −1 where the layer had no gradient; NaN and Inf are themselves.
    """

    step: Integers  # [R]
    names: tuple[str, ...]  # [L]
    norms: NDArray[np.floating[Any]]  # [R, L]

    def __post_init__(self) -> None:
        if self.norms.shape != (len(self.step), len(self.names)):
            wanted = (len(self.step), len(self.names))
            raise ValueError(f"norms must have the shape {wanted} of step and names, got {self.norms.shape}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSteps:
    """Consecutive steps of one stream, rank 0, in the order they were taken; a column that is None is absent.

    Numbers of steps need not rise: a log that rounds them ("1K", "1K") is in order all the same.
    """

    step: Integers  # [S]
    loss: Column | None = None
    lr: Column | None = None
    grad_norm_before_clip: Column | None = None
    max_norm: Column | None = None
    clip_coef: Column | None = None
    clipped_layer_fraction: Column | None = None
    loss_scale: Column | None = None
    loss_scale_after: Column | None = None
    headroom_log2: Column | None = None
    underflow_fraction: Column | None = None
    update_ratio: Column | None = None
    step_time_s: Column | None = None
    hook_time_s: Column | None = None
    skipped: Column | None = None
    num_nonfinite_layers: Column | None = None
    num_layers_without_grad: Column | None = None
    skip_reason: Texts | None = None
    first_nonfinite_layer: Texts | None = None
    nonfinite_kind: Texts | None = None
    layers: LayerNorms | None = None

    def __post_init__(self) -> None:
        for name in wire.COLUMNS:
            column = getattr(self, name)
            if column is None:
                continue
            length = len(column.values) if isinstance(column, Column) else len(column)
            if length != len(self.step):
                raise ValueError(f"{name} must have as many values as step ({len(self.step)}), got {length}.")

    @classmethod
    def of(cls, step: Sequence[int] | ArrayLike, *, layers: LayerNorms | None = None, **columns: Any) -> Self:
        """From plain sequences by column name, as in a wire batch; a column left out or None is absent."""
        known = {f.name for f in fields(cls)}
        for name in columns:
            if name not in known:
                raise ValueError(f"columns must be among {', '.join(wire.COLUMNS)}, got {name!r}.")
        made: dict[str, Any] = {
            name: None if values is None else tuple(values) if name in wire.TEXT_COLUMNS else _column(values)
            for name, values in columns.items()
        }
        return cls(step=np.asarray(step, dtype=np.int64).reshape(-1), layers=layers, **made)


def _column(values: Any) -> Column:
    return values if isinstance(values, Column) else Column.of(values)


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One of the user's own metrics, a validation loss say, by rising step."""

    step: Integers
    values: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What is known of a stream beside its steps. Everything is optional."""

    record: wire.StreamRecord = field(default_factory=wire.StreamRecord)
    """Optimizer, policy, precision, scaler. Policy or scaler None: said to be off; UNSET: nobody knows."""
    growth_interval: int | None = None
    """Of the loss scaler, in steps; None takes the one in the scaler's text."""
    metrics: Mapping[str, MetricSeries] = field(default_factory=dict)
    rank_norms: Mapping[int, Floats] = field(default_factory=dict)
    """Norms before clipping that other ranks recorded of the same steps [S], NaN where they did not."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows the training process lost on the way, by reason."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of finite norms: `counts[i]` of them lie above edges[i] and not above edges[i + 1].

    A first bin that begins at 0 holds zeros and nothing else.
    """

    edges: Floats  # [B + 1], rising
    counts: Integers  # [B]

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError(f"edges must be one more than counts ({len(self.counts)}), got {len(self.edges)}.")

    def without(self, norms: Floats) -> "Histogram":
        """What is left when these norms, which are among those counted, are taken out."""
        if len(self.counts) == 0:
            return self
        bins = np.clip(np.searchsorted(self.edges, norms, side="left") - 1, 0, len(self.counts) - 1)
        taken = np.bincount(bins, minlength=len(self.counts))
        return Histogram(self.edges, np.maximum(self.counts - taken, 0))

    def median(self, above: float = -np.inf) -> float | None:
        """The middle (of the logs) of the bin that holds the median of all norms above an edge; None without any."""
        counts = np.where(self.edges[:-1] >= above, self.counts, 0)
        if counts.sum() == 0:
            return None
        at = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
        return 0.0 if self.edges[at] == 0 else float(np.sqrt(self.edges[at]) * np.sqrt(self.edges[at + 1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeFacts:
    """What rollups know of a range too long to hand over step by step; the steps handed over are its newest.

    Verdicts are made from the newest steps; counts and extremes in the answer are those of the whole range.
    """

    first_step: int
    last_step: int
    num_steps: int
    num_finite: int
    """Steps whose norm before clipping is a finite number."""
    num_nonfinite: int
    num_skipped: int
    num_clipped: int
    largest_norm: float | None = None
    smallest_scale: float | None = None
    histogram: Histogram | None = None
