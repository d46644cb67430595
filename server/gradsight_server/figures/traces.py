"""What figures are made of: traces with roles and keys, arrays as Plotly decodes them, the frame around them."""

import base64
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gradsight_server.store.series import Series

Trace = dict[str, Any]
Figure = dict[str, Any]
Floats = NDArray[np.float64]
Mark = Literal["clipped", "skipped", "nonfinite"]

AT_THE_TOP, BELOW_THE_TOP = 1.0, 0.94
"""Where marks without a value of their own stand, on an axis from 0 to 1 over the chart."""
MARKS_AXIS = {"overlaying": "y", "range": [0, 1], "side": "right", "fixedrange": True, "visible": False}


def line(series: "Series", column: str, key: str, *, role: str = "series", shape: str = "linear") -> Trace:
    """A column's mean by step."""
    return curve(series.step, series.columns[column].mean, key, role=role, shape=shape, live={"y": column})


def curve(
    x: NDArray[Any],
    y: NDArray[Any],
    key: str,
    *,
    role: str,
    shape: str = "linear",
    live: dict[str, Any] | None = None,
) -> Trace:
    """A line with a gap at each NaN; without `live` no tick extends it."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": typed(x),
        "y": typed(y),
        "connectgaps": False,
        "line": {"shape": shape},
        "role": role,
        "key": key,
        "live": live,
    }


def band(series: "Series", column: str, name: str) -> list[Trace]:
    """Smallest and largest value of each bucket, the second filled down to the first; exact steps have no band."""
    if series.bucket_steps == 1:
        return []
    values = series.columns[column]
    low = line(series, column, f"{name}.range", role="band_low") | {"y": typed(values.min)}
    high = line(series, column, f"{name}.range", role="band_high") | {"y": typed(values.max), "fill": "tonexty"}
    return [low, high]


def marks(key: str, role: str, x: NDArray[Any], y: NDArray[Any], live: dict[str, Any] | None) -> Trace:
    """A mark at each point."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": typed(x),
        "y": typed(y),
        "role": role,
        "key": key,
        "live": live,
    }


def top_marks(name: str, what: Mark, x: NDArray[Any], height: float) -> Trace:
    """A mark near the top edge for steps that have no value to stand at."""
    live = {"y": None, "top": True, "where": what}
    return marks(f"{name}.{what}", what, x, np.full(x.shape, height), live) | {"yaxis": "y2"}


def typed(values: NDArray[Any], dtype: Literal["f4", "f8"] = "f8") -> dict[str, str]:
    """An array as Plotly decodes it without parsing numbers; NaN is a gap."""
    raw = np.ascontiguousarray(values, dtype=f"<{dtype}").tobytes()
    return {"dtype": dtype, "bdata": base64.b64encode(raw).decode()}


def framed(
    name: str,
    data: list[Trace],
    layout: dict[str, Any],
    *,
    stream: str,
    attempt: int | None,
    position: int,
    first_step: int | None,
    last_step: int | None,
    bucket_steps: int = 1,
) -> Figure:
    """The figure as REST gives it; its x axis is the steps unless the layout has another."""
    return {
        "name": name,
        "stream": stream,
        "attempt": attempt,
        "position": position,
        "bucket_steps": bucket_steps,
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
