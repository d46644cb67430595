"""Layers that dominate, vanish, explode, die or change of a sudden; and whether they add up to the total norm."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.answer import LayerLists, Severity
from gradsight_server.diagnosis.inputs import Bools, Floats, Integers
from gradsight_server.diagnosis.levels import trailing_streak
from gradsight_server.diagnosis.observed import Observed
from gradsight_server.diagnosis.rule import Found

ROUTED = "expert"
"""In the name of a layer that not every step reaches: without gradient it is idle, not dead."""


@dataclass(frozen=True)
class JudgedLayers:
    """Layer norms of the judged rows [R, L]: NaN = no gradient or not finite. Rows and layers of the record."""

    observed: Observed

    @cached_property
    def names(self) -> tuple[str, ...]:
        layers = self.observed.steps.layers
        return () if layers is None else layers.names

    @cached_property
    def _rows(self) -> Integers:
        """The newest rows after warm-up whose norms are all finite: an overflow says nothing of a layer."""
        layers = self.observed.steps.layers
        if layers is None or not len(layers.names):
            return np.empty(0, dtype=np.int64)
        num_warmup = int(borders.WARMUP_FRACTION * len(layers.step)) if self.observed.is_from_start else 0
        rows = np.arange(num_warmup, len(layers.step))[-borders.NEWEST_JUDGED :]
        kept: Integers = rows[np.isfinite(layers.norms[rows]).all(axis=1)]
        return kept

    @cached_property
    def step(self) -> Integers:
        layers = self.observed.steps.layers
        return np.empty(0, dtype=np.int64) if layers is None else layers.step[self._rows]

    @cached_property
    def norms(self) -> Floats:
        layers = self.observed.steps.layers
        if layers is None:
            return np.empty((0, 0))
        norms = layers.norms[self._rows].astype(np.float64)
        return np.where(norms < 0, np.nan, norms)

    @property
    def has_enough(self) -> bool:
        return len(self.step) >= borders.LAYER_ROWS

    @cached_property
    def has_gradient(self) -> Bools:
        """Layers [L] that had a gradient on most of these rows."""
        return np.mean(np.isfinite(self.norms), axis=0) > 0.5 if len(self.norms) else np.zeros(0, dtype=np.bool_)

    @cached_property
    def filled(self) -> Floats:
        """Norms with 0 where there was no gradient, scaled so that no square overflows."""
        norms = np.nan_to_num(self.norms)
        largest = norms.max(initial=0.0)
        return norms / largest if largest > 0 else norms

    @cached_property
    def relative(self) -> Floats:
        """Norm ÷ median norm of the step's layers [R, L]; NaN where either is missing."""
        return self._over_percentile(50.0)

    @cached_property
    def relative_to_large(self) -> Floats:
        """Norm ÷ that of a large layer: where gradients vanish layer by layer, the median layer's has vanished too."""
        return self._over_percentile(90.0)

    @cached_property
    def relative_to_most(self) -> Floats:
        """Norm ÷ that of a rather large layer: a layer explodes against all others, not against those that vanish."""
        return self._over_percentile(75.0)

    @cached_property
    def _ordered(self) -> Floats:
        """The norms of each row's layers that have a gradient, in order; the rest NaN, last."""
        ordered: Floats = np.sort(np.where((self.norms > 0) & self.has_gradient, self.norms, np.nan), axis=1)
        return ordered

    def _over_percentile(self, q: float) -> Floats:
        """Norm ÷ a percentile (the lower neighbour) of those of the step's layers that have one."""
        if not self.norms.size:
            return self.norms
        rank = np.maximum(0, np.isfinite(self._ordered).sum(axis=1) - 1) * q / 100
        ratio: Floats = self.norms / np.take_along_axis(self._ordered, rank.astype(np.int64)[:, None], axis=1)
        return ratio

    def named(self, flags: Bools) -> tuple[str, ...]:
        return tuple(name for name, flag in zip(self.names, flags.tolist(), strict=True) if flag)


def layer_findings(observed: Observed) -> tuple[LayerLists, list[Found]]:
    """The lists of section 8, and a finding for each that isn't empty."""
    judged = JudgedLayers(observed)
    if not judged.has_enough:
        return LayerLists(), []
    found = [
        *dominant(judged),
        *(list(vanishing(judged)) or exploding(judged)),  # both at once is one thing seen from two sides
        *dead(judged),
        *sudden_change(judged),
        *without_gradient(judged),
        *not_adding_up(judged),
    ]
    names = {finding.code: list(finding.names) for finding in found}
    lists = LayerLists(
        dominant=names.get("layers_dominant", []),
        vanishing=names.get("layers_vanishing", []),
        exploding=names.get("layers_exploding", []),
        dead=names.get("layers_dead", []),
    )
    return lists, found


def dominant(judged: JudgedLayers) -> Iterator[Found]:
    """One layer makes up most of the norm, so clipping is about that layer alone."""
    squares = judged.filled**2
    total = squares.sum(axis=1)
    if not np.any(total > 0) or len(judged.names) < borders.MIN_DOMINANT_LAYERS:
        return
    shares = np.median(squares[total > 0] / total[total > 0, None], axis=0)
    flags: Bools = shares > borders.DOMINANT_SHARE
    if flags.any():
        yield _found("layers_dominant", "info", judged, flags, share=float(shares.max()))


def vanishing(judged: JudgedLayers) -> Iterator[Found]:
    """Gradients of a layer are thousands of times smaller than the others', all the time."""
    with np.errstate(invalid="ignore"):
        low = (judged.relative_to_large < borders.VANISHING_RATIO) & (judged.norms > 0)
    candidates = judged.has_gradient & ~_is_bias(judged)
    flags = _sustained(low) & candidates
    if not flags.any():
        return
    fraction = float(np.mean(flags[candidates]))
    severity: Severity = "warning" if fraction > borders.WARN_VANISHING_FRACTION else "info"
    yield _found("layers_vanishing", severity, judged, flags, fraction=fraction)


def exploding(judged: JudgedLayers) -> Iterator[Found]:
    """A layer's gradients are thousands of times larger than the others', all the time."""
    with np.errstate(invalid="ignore"):
        high = judged.relative_to_most > borders.EXPLODING_LAYER_RATIO
    flags = _sustained(high) & judged.has_gradient
    if flags.any() and np.count_nonzero(judged.has_gradient) >= borders.MIN_DOMINANT_LAYERS:
        yield _found("layers_exploding", "warning", judged, flags)


def dead(judged: JudgedLayers) -> Iterator[Found]:
    """A layer's gradient is exactly zero while the others' are not."""
    zero = judged.norms == 0
    alive = (judged.norms > 0).any(axis=1)
    if not alive.any():
        return
    streak = np.array([trailing_streak(column) for column in zero[alive].T])
    routed = np.array([ROUTED in name.lower() for name in judged.names])
    flags: Bools = np.where(routed, False, streak >= borders.LAYER_ROWS)
    if flags.any():
        yield _found("layers_dead", "warning", judged, flags, num_rows=int(streak[flags].min()))


def sudden_change(judged: JudgedLayers) -> Iterator[Found]:
    """A layer's norm has jumped while the layers on the whole have not."""
    if len(judged.step) < 3 * borders.SUDDEN_ROWS:
        return
    ratio = np.log(np.where(judged.relative > 0, judged.relative, np.nan))
    newest, before = _Quantiles(ratio[-borders.SUDDEN_ROWS :]), _Quantiles(ratio[: -borders.SUDDEN_ROWS])
    there = (np.isfinite(ratio).mean(axis=0) > borders.SUSTAINED) & (newest.count > 0) & (before.count > 0)
    change = newest.at(0.5) - before.at(0.5)
    # The ten-percent quantile must have moved too, or a layer that always jumps about would count.
    is_clear = np.where(change > 0, newest.at(0.1) > before.at(0.9), newest.at(0.9) < before.at(0.1))
    flags: Bools = there & is_clear & (np.abs(change) > np.log(borders.SUDDEN_RATIO))
    if flags.any():
        largest = float(np.exp(np.abs(change[flags]).max()))
        yield _found("layers_sudden_change", "warning", judged, flags, ratio=largest)


def without_gradient(judged: JudgedLayers) -> Iterator[Found]:
    """Layers that never had a gradient: frozen, or not part of the loss."""
    flags: Bools = np.all(~np.isfinite(judged.norms), axis=0)
    if flags.any():
        yield _found("layers_without_gradient", "info", judged, flags, num_layers_in_all=len(judged.names))


def not_adding_up(judged: JudgedLayers) -> Iterator[Found]:
    """The total norm is not the root of the layers' sum of squares."""
    observed = judged.observed
    policy = observed.context.record.policy
    if isinstance(policy, str) and "norm_type" in policy:
        return
    near = np.flatnonzero((observed.step >= judged.step.min()) & (observed.norm > 0))
    total = dict(zip(observed.step[near].tolist(), observed.norm[near].tolist(), strict=True))
    pairs = [(row, total[int(step)]) for row, step in enumerate(judged.step) if int(step) in total]
    if len(pairs) < borders.LAYER_ROWS:
        return
    rows, norms = np.array([row for row, _ in pairs]), np.array([norm for _, norm in pairs])
    largest = np.nan_to_num(judged.norms).max()
    sums = np.sqrt((judged.filled[rows] ** 2).sum(axis=1)) * largest
    ratio = float(np.median(sums / norms))
    if np.isfinite(ratio) and abs(ratio - 1) > borders.ADD_UP_TOLERANCE:
        everything = np.zeros(len(judged.names), dtype=np.bool_)
        yield _found("layers_do_not_add_up", "warning", judged, everything, ratio=ratio)


class _Quantiles:
    """Quantiles of each column [R, L], of what is not NaN, to the lower neighbour: one sort for all of them."""

    def __init__(self, values: Floats) -> None:
        self._ordered = np.sort(values, axis=0)  # NaN last
        self.count = np.isfinite(values).sum(axis=0)

    def at(self, q: float) -> Floats:
        rank = (np.maximum(0, self.count - 1) * q).astype(np.int64)
        found: Floats = np.take_along_axis(self._ordered, rank[None, :], axis=0)[0]
        return found


def _sustained(flags: Bools) -> Bools:
    sustained: Bools = flags.mean(axis=0) >= borders.SUSTAINED
    return sustained


def _is_bias(judged: JudgedLayers) -> Bools:
    """A bias before a normalisation, or of attention keys, has no gradient to speak of, by its nature."""
    return np.array([name.rsplit(".", 1)[-1] in ("bias", "b", "beta") for name in judged.names], dtype=np.bool_)


def _found(code: str, severity: Severity, judged: JudgedLayers, flags: Bools, **evidence: float) -> Found:
    names = judged.named(flags)
    return Found(
        code=code,
        severity=severity,
        evidence={"num_layers": len(names), **evidence},
        names=names,
        steps=(int(judged.step[0]), int(judged.step[-1])),
    )
