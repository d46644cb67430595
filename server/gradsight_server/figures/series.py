"""Charts of a stream's columns by step."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradsight_server.diagnosis import borders
from gradsight_server.diagnosis.levels import local_level, spikes
from gradsight_server.figures.traces import (
    AT_THE_TOP,
    BELOW_THE_TOP,
    MARKS_AXIS,
    Figure,
    Floats,
    Trace,
    band,
    curve,
    framed,
    line,
    marks,
    top_marks,
)

if TYPE_CHECKING:
    from gradsight_server.store.series import Series

COLUMNS = {
    "norm": ("grad_norm_before_clip", "max_norm"),
    "clip_coef": ("clip_coef",),
    "clip_fraction": ("grad_norm_before_clip", "max_norm", "clipped_layer_fraction"),
    "loss": ("loss", "lr"),
    "loss_scale": ("loss_scale", "headroom_log2"),
    "update_ratio": ("update_ratio",),
}
"""The columns each of these figures is drawn from."""

CLIP_FRACTION_STEPS = 100
"""The share of clipped steps is that of so many before each point, or of a bucket where that is longer."""
LOG10_OF_2 = 0.30102999566398120
ABOVE_THE_BOTTOM = 0.05

Drawn = tuple[list[Trace], dict[str, Any]]


def series_figure(
    name: str, series: "Series", *, position: int, first_step: int | None = None, last_step: int | None = None
) -> Figure:
    """The figure of that name; the steps asked for, where given, are its x axis."""
    if series.step.size:
        first_step = int(series.step[0]) if first_step is None else first_step
        last_step = int(series.last_step[-1]) if last_step is None else last_step
    data, layout = _DRAW[name](series)
    return framed(
        name,
        data,
        layout,
        stream=series.stream,
        attempt=series.attempt,
        position=position,
        first_step=first_step,
        last_step=last_step,
        bucket_steps=series.bucket_steps,
    )


def _norm(series: "Series") -> Drawn:
    norm = series.columns["grad_norm_before_clip"]
    clipped, spiked = series.num_clipped > 0, _has_spike(series)
    live = {"y": "grad_norm_before_clip", "where": "clipped"}
    data = [
        *band(series, "grad_norm_before_clip", "norm"),
        line(series, "grad_norm_before_clip", "norm.mean"),
        line(series, "max_norm", "norm.threshold", role="threshold", shape="hv"),
        marks("norm.clipped", "clipped", series.step[clipped], norm.max[clipped], live),
        marks("norm.spike", "spike", series.step[spiked], norm.max[spiked], None),
        top_marks("norm", "nonfinite", series.step[norm.num_nonfinite > 0], AT_THE_TOP),
        top_marks("norm", "skipped", series.step[series.num_skipped > 0], BELOW_THE_TOP),
    ]
    return data, {"yaxis": {"type": "log"}, "yaxis2": MARKS_AXIS}


def _has_spike(series: "Series") -> NDArray[np.bool_]:
    """Points whose largest norm stands out of those around, as the diagnosis has it. A tick cannot tell."""
    norm = series.columns["grad_norm_before_clip"]
    found = np.isfinite(norm.mean) & np.isfinite(norm.max)
    level = local_level(norm.mean[found], block=borders.LEVEL_BLOCK)
    found[found] = spikes(norm.max[found], level, ratio=borders.SPIKE_RATIO, sigmas=borders.SPIKE_SIGMAS)
    return found


def _clip_coef(series: "Series") -> Drawn:
    data = [*band(series, "clip_coef", "clip_coef"), line(series, "clip_coef", "clip_coef.mean")]
    return data, {"yaxis": {"type": "linear", "range": [0, 1.05]}}


def _clip_fraction(series: "Series") -> Drawn:
    live = {"y": "clipped", "window": max(CLIP_FRACTION_STEPS, series.bucket_steps)}
    share = curve(series.step, _share_clipped(series), "clip_fraction.share", role="series", live=live)
    ends = np.array([series.step[0], series.last_step[-1]]) if series.step.size else np.empty(0)
    lines = (("clip_fraction.firm", borders.FIRM_ABOVE), ("clip_fraction.too_tight", borders.TOO_TIGHT_ABOVE))
    edges = [curve(ends, np.full(ends.shape, height), key, role="border") for key, height in lines]
    return [*edges, share], {"yaxis": {"type": "linear", "range": [0, 1.02]}}


def _share_clipped(series: "Series") -> Floats:
    """Clipped ÷ finite norms over the newest steps at each point; NaN where none is known, or no threshold at all."""
    norm = series.columns["grad_norm_before_clip"]
    thresholds = (series.columns["max_norm"].mean, series.columns["clipped_layer_fraction"].mean)
    if not any(np.isfinite(column).any() for column in thresholds):
        return np.full(series.step.shape, np.nan)
    known = np.where(np.isfinite(norm.mean), series.num_steps - norm.num_nonfinite, 0)
    num_points = -(-CLIP_FRACTION_STEPS // series.bucket_steps)
    clipped, known = (_trailing_sum(counts, num_points) for counts in (series.num_clipped, known))
    share: Floats = np.divide(clipped, known, out=np.full(known.shape, np.nan), where=known > 0)
    return share


def _trailing_sum(counts: NDArray[np.int64], num_points: int) -> Floats:
    total = np.concatenate([[0.0], np.cumsum(counts)])
    first = np.maximum(np.arange(1, len(total)) - num_points, 0)
    sums: Floats = total[1:] - total[first]
    return sums


def _loss(series: "Series") -> Drawn:
    rate = line(series, "lr", "loss.lr", role="lr") | {"yaxis": "y2"}
    data = [*band(series, "loss", "loss"), line(series, "loss", "loss.mean"), rate]
    return data, {"yaxis": {"type": "linear"}, "yaxis2": {"overlaying": "y", "side": "right", "rangemode": "tozero"}}


def _loss_scale(series: "Series") -> Drawn:
    scale = series.columns["loss_scale"].mean
    data = [
        *band(series, "loss_scale", "loss_scale"),
        _headroom(series),
        line(series, "loss_scale", "loss_scale.mean", shape="hv"),
        top_marks("loss_scale", "skipped", series.step[series.num_skipped > 0], AT_THE_TOP),
        marks("loss_scale.zero", "zero", *_at_the_bottom(series), None) | {"yaxis": "y2"},
    ]
    return data, {"yaxis": {"type": "log", "dtick": _powers_of_two(scale)}, "yaxis2": MARKS_AXIS}


def _at_the_bottom(series: "Series") -> tuple[NDArray[np.int64], Floats]:
    """Where the scale was zero: no log axis goes down to it."""
    step = series.step[series.columns["loss_scale"].min <= 0]
    return step, np.full(step.shape, ABOVE_THE_BOTTOM)


def _headroom(series: "Series") -> Trace:
    """The scale at which the largest gradient would overflow: head-room is its distance from the scale.

    It is sampled on some steps only, and drawn through those; a tick does not extend it.
    """
    with np.errstate(over="ignore"):
        ceiling = series.columns["loss_scale"].mean * np.exp2(series.columns["headroom_log2"].min)
    there = np.isfinite(ceiling)
    return curve(series.step[there], ceiling[there], "loss_scale.headroom", role="headroom")


def _update_ratio(series: "Series") -> Drawn:
    """How far a step moves the weights, ‖update‖ ÷ ‖weights‖; sampled on some steps, and drawn through those."""
    ratio = series.columns["update_ratio"]
    there = np.isfinite(ratio.mean)
    live = {"y": "update_ratio", "sparse": True}
    data = [curve(series.step[there], ratio.mean[there], "update_ratio.mean", role="series", live=live)]
    if series.bucket_steps > 1:
        for role, values in (("band_low", ratio.min), ("band_high", ratio.max)):
            edge = curve(series.step[there], values[there], "update_ratio.range", role=role, live=live)
            data.append(edge | ({"fill": "tonexty"} if role == "band_high" else {}))
        data = [*data[1:], data[0]]
    return data, {"yaxis": {"type": "log"}}


def _powers_of_two(scale: Floats) -> float:
    """The distance between ticks of a log axis, at powers of two and at most about eight of them."""
    positive = scale[scale > 0]
    doublings = float(np.log2(positive.max() / positive.min())) if positive.size else 0.0
    return LOG10_OF_2 * max(1, int(np.ceil(doublings / 8)))


_DRAW = {
    "norm": _norm,
    "clip_coef": _clip_coef,
    "clip_fraction": _clip_fraction,
    "loss": _loss,
    "loss_scale": _loss_scale,
    "update_ratio": _update_ratio,
}
