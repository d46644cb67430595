"""Plotly figures as plain dicts: layout and traces with roles in place of colours and keys in place of texts.

Pure: arrays in, a dict out. The page, the report and notebooks resolve roles and keys each in their own way. Every
trace also says how a live tick extends it. No `*gl` traces: they need eval, which the page's policy forbids.
"""

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gradsight_server.store.layers import LayerMatrix
    from gradsight_server.store.series import Series

Trace = dict[str, Any]
Figure = dict[str, Any]
Floats = NDArray[np.float64]
Mark = Literal["clipped", "skipped", "nonfinite"]

COLUMNS = {
    "norm": ("grad_norm_before_clip", "max_norm"),
    "clip_coef": ("clip_coef",),
    "loss": ("loss", "lr"),
    "loss_scale": ("loss_scale",),
}
"""The columns each series figure is drawn from; `layers` is drawn from the layer matrix."""
NAMES = (*COLUMNS, "layers")

AT_THE_TOP, BELOW_THE_TOP = 1.0, 0.94
"""Where marks without a value of their own stand, on an axis from 0 to 1 over the chart."""
MAX_MARKED_CELLS = 4_000
LOG10_OF_2 = 0.30102999566398120


def series_figure(
    name: str, series: "Series", *, position: int, first_step: int | None = None, last_step: int | None = None
) -> Figure:
    """The figure of that name; the steps asked for, where given, are its x axis."""
    draw = {"norm": _norm, "clip_coef": _clip_coef, "loss": _loss, "loss_scale": _loss_scale}[name]
    data, layout = draw(series)
    if series.step.size:
        first_step = int(series.step[0]) if first_step is None else first_step
        last_step = int(series.last_step[-1]) if last_step is None else last_step
    return _figure(name, series, data, layout, position, first_step, last_step)


def layers_figure(matrix: "LayerMatrix", *, position: int, first_step: int | None, last_step: int | None) -> Figure:
    """The layers' norms as a heat-map of log10, with a mark where values were not finite.

    The steps are those of the other charts of the run: layer norms may be recorded more seldom.
    """
    names = [display_name(layer) for layer in matrix.layers]
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.log10(matrix.max.astype(np.float64))
    shown = z[np.isfinite(z)]
    low, high = np.quantile(shown, (0.005, 0.995)).tolist() if shown.size else (-1.0, 1.0)
    z[np.isneginf(z)] = low  # a norm of zero is not "no gradient"
    heat: Trace = {
        "type": "heatmap",
        "x": _typed(matrix.step),
        "y": names,
        "z": _typed(z, "f4") | {"shape": f"{z.shape[0]}, {z.shape[1]}"},
        "zmin": low,
        "zmax": max(high, low + 1e-3),
        "role": "heat",
        "key": "layers.norm",
        "live": {"layers": True},
    }
    rows, columns = _marked_cells(matrix.num_nonfinite > 0, np.isfinite(matrix.max))
    marks: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": _typed(matrix.step[columns]),
        "y": [names[row] for row in rows],
        "role": "nonfinite",
        "key": "layers.nonfinite",
        "live": {"layers": True},
    }
    layout = {"yaxis": {"type": "category", "autorange": "reversed"}}
    return _figure("layers", matrix, [heat, marks], layout, position, first_step, last_step)


def display_name(names: Sequence[str]) -> str:
    """One label for a layer; tied weights show all their names."""
    return " = ".join(names)


def _norm(series: "Series") -> tuple[list[Trace], dict[str, Any]]:
    norm = series.columns["grad_norm_before_clip"]
    clipped = series.num_clipped > 0
    data = [
        *_band(series, "grad_norm_before_clip", "norm"),
        _line(series, "grad_norm_before_clip", "norm.mean"),
        _line(series, "max_norm", "norm.threshold", role="threshold", shape="hv"),
        _marks("norm", "clipped", series.step[clipped], norm.max[clipped], {"y": "grad_norm_before_clip"}),
        _top_marks("norm", "nonfinite", series.step[norm.num_nonfinite > 0], AT_THE_TOP),
        _top_marks("norm", "skipped", series.step[series.num_skipped > 0], BELOW_THE_TOP),
    ]
    return data, {"yaxis": {"type": "log"}, "yaxis2": _MARKS_AXIS}


def _clip_coef(series: "Series") -> tuple[list[Trace], dict[str, Any]]:
    data = [*_band(series, "clip_coef", "clip_coef"), _line(series, "clip_coef", "clip_coef.mean")]
    return data, {"yaxis": {"type": "linear", "range": [0, 1.05]}}


def _loss(series: "Series") -> tuple[list[Trace], dict[str, Any]]:
    rate = _line(series, "lr", "loss.lr", role="lr") | {"yaxis": "y2"}
    data = [*_band(series, "loss", "loss"), _line(series, "loss", "loss.mean"), rate]
    return data, {"yaxis": {"type": "linear"}, "yaxis2": {"overlaying": "y", "side": "right", "rangemode": "tozero"}}


def _loss_scale(series: "Series") -> tuple[list[Trace], dict[str, Any]]:
    scale = series.columns["loss_scale"].mean
    data = [
        *_band(series, "loss_scale", "loss_scale"),
        _line(series, "loss_scale", "loss_scale.mean", shape="hv"),
        _top_marks("loss_scale", "skipped", series.step[series.num_skipped > 0], AT_THE_TOP),
    ]
    return data, {"yaxis": {"type": "log", "dtick": _powers_of_two(scale)}, "yaxis2": _MARKS_AXIS}


_MARKS_AXIS = {"overlaying": "y", "range": [0, 1], "side": "right", "fixedrange": True, "visible": False}


def _line(series: "Series", column: str, key: str, *, role: str = "series", shape: str = "linear") -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": _typed(series.step),
        "y": _typed(series.columns[column].mean),
        "connectgaps": False,
        "line": {"shape": shape},
        "role": role,
        "key": key,
        "live": {"y": column},
    }


def _band(series: "Series", column: str, name: str) -> list[Trace]:
    """Smallest and largest value of each bucket, the second filled down to the first; exact steps have no band."""
    if series.bucket_steps == 1:
        return []
    values = series.columns[column]
    low = _line(series, column, f"{name}.range", role="band_low") | {"y": _typed(values.min)}
    high = _line(series, column, f"{name}.range", role="band_high") | {"y": _typed(values.max), "fill": "tonexty"}
    return [low, high]


def _marks(name: str, what: Mark, x: NDArray[Any], y: NDArray[Any], live: dict[str, Any]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": _typed(x),
        "y": _typed(y),
        "role": what,
        "key": f"{name}.{what}",
        "live": live | {"where": what},
    }


def _top_marks(name: str, what: Mark, x: NDArray[Any], height: float) -> Trace:
    marks = _marks(name, what, x, np.full(x.shape, height), {"y": None, "top": True})
    return marks | {"yaxis": "y2"}


def _marked_cells(nonfinite: NDArray[np.bool_], has_finite: NDArray[np.bool_]) -> tuple[list[int], list[int]]:
    """Rows and columns to mark. Where a layer goes on without a finite norm its cells are empty and say so: marked is
    where that began, and every cell that would else show a colour."""
    goes_on = np.zeros_like(nonfinite)
    goes_on[:, 1:] = nonfinite[:, 1:] & nonfinite[:, :-1] & ~has_finite[:, 1:]
    nonfinite = nonfinite & ~goes_on
    if np.count_nonzero(nonfinite) > MAX_MARKED_CELLS:  # then the first in each layer and in each bucket
        first = np.zeros_like(nonfinite)
        rows, columns = np.flatnonzero(nonfinite.any(axis=1)), np.flatnonzero(nonfinite.any(axis=0))
        first[rows, nonfinite[rows].argmax(axis=1)] = True
        first[nonfinite[:, columns].argmax(axis=0), columns] = True
        nonfinite = first
    columns, rows = np.nonzero(nonfinite.T)  # by step: a live tick adds its own at the end
    return rows.tolist(), columns.tolist()


def _powers_of_two(scale: Floats) -> float:
    """The distance between ticks of a log axis, at powers of two and at most about eight of them."""
    positive = scale[scale > 0]
    doublings = float(np.log2(positive.max() / positive.min())) if positive.size else 0.0
    return LOG10_OF_2 * max(1, int(np.ceil(doublings / 8)))


def _typed(values: NDArray[Any], dtype: Literal["f4", "f8"] = "f8") -> dict[str, str]:
    """An array as Plotly decodes it without parsing numbers; NaN is a gap."""
    raw = np.ascontiguousarray(values, dtype=f"<{dtype}").tobytes()
    return {"dtype": dtype, "bdata": base64.b64encode(raw).decode()}


def _figure(
    name: str,
    shown: "Series | LayerMatrix",
    data: list[Trace],
    layout: dict[str, Any],
    position: int,
    first_step: int | None,
    last_step: int | None,
) -> Figure:
    return {
        "name": name,
        "stream": shown.stream,
        "attempt": shown.attempt,
        "position": position,
        "bucket_steps": shown.bucket_steps,
        "first_step": first_step,
        "last_step": last_step,
        "data": data,
        "layout": {"xaxis": _x_axis(first_step, last_step), **layout},
    }


def _x_axis(first_step: int | None, last_step: int | None) -> dict[str, Any]:
    """The same range for every chart of a run, so that one vertical line is one step everywhere."""
    if first_step is None or last_step is None:
        return {}
    if first_step == last_step:
        return {"range": [first_step - 0.5, last_step + 0.5]}
    return {"range": [first_step, last_step]}
