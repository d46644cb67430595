"""The map of all layers' norms by step, and the chart of a single layer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gradsight_server.diagnosis import borders
from gradsight_server.figures.traces import AT_THE_TOP, MARKS_AXIS, Figure, Trace, curve, framed, top_marks, typed

if TYPE_CHECKING:
    from gradsight_server.store.layers import LayerMatrix

MAX_MARKED_CELLS = 4_000


def display_name(names: Sequence[str]) -> str:
    """One label for a layer; tied weights show all their names."""
    return " = ".join(names)


def find_layer(layers: Sequence[Sequence[str]], name: str) -> int | None:
    """Where the layer of this label, or of this name among its own, stands; None where there is none."""
    return next((i for i, names in enumerate(layers) if name == display_name(names) or name in names), None)


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
        "x": typed(matrix.step),
        "y": names,
        "z": typed(z, "f4") | {"shape": f"{z.shape[0]}, {z.shape[1]}"},
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
        "x": typed(matrix.step[columns]),
        "y": [names[row] for row in rows],
        "role": "nonfinite",
        "key": "layers.nonfinite",
        "live": {"layers": True},
    }
    layout = {"yaxis": {"type": "category", "autorange": "reversed"}}
    data = [heat, _dominant(matrix, names), marks]
    return _framed("layers", matrix, data, layout, position, first_step, last_step)


def layer_figure(
    matrix: "LayerMatrix", layer: int, *, position: int, first_step: int | None, last_step: int | None
) -> Figure:
    """One layer's norm by step: the largest of each bucket."""
    norm = matrix.max[layer].astype(np.float64)
    live = {"layers": True, "layer": layer}
    odd = top_marks("layer", "nonfinite", matrix.step[matrix.num_nonfinite[layer] > 0], AT_THE_TOP)
    data = [curve(matrix.step, norm, "layer.norm", role="series", live=live), odd | {"live": live}]
    layout = {"yaxis": {"type": "log"}, "yaxis2": MARKS_AXIS}
    figure = _framed("layer", matrix, data, layout, position, first_step, last_step)
    return figure | {"layer": display_name(matrix.layers[layer])}


def _dominant(matrix: "LayerMatrix", names: list[str]) -> Trace:
    """The layer that makes up more than half of the squared norm, where one does; null where none does."""
    norms = np.nan_to_num(matrix.max.astype(np.float64))
    largest = norms.max(axis=0, initial=0.0)
    squares = (norms / np.where(largest > 0, largest, 1.0)) ** 2  # scaled, so that no square overflows
    total = squares.sum(axis=0)
    is_dominant = (total > 0) & (borders.DOMINANT_SHARE * total < 1.0) & (len(names) >= borders.MIN_DOMINANT_LAYERS)
    rows = norms.argmax(axis=0) if len(names) else np.empty(0, np.int64)
    if not is_dominant.any():
        rows, is_dominant = rows[:0], is_dominant[:0]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": typed(matrix.step[: len(rows)]),
        "y": [names[row] if shown else None for row, shown in zip(rows.tolist(), is_dominant.tolist(), strict=True)],
        "connectgaps": False,
        "line": {"shape": "hv"},
        "role": "dominant",
        "key": "layers.dominant",
        "live": None,
    }


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


def _framed(
    name: str,
    matrix: "LayerMatrix",
    data: list[Trace],
    layout: dict[str, Any],
    position: int,
    first_step: int | None,
    last_step: int | None,
) -> Figure:
    return framed(
        name,
        data,
        layout,
        stream=matrix.stream,
        attempt=matrix.attempt,
        position=position,
        first_step=first_step,
        last_step=last_step,
        bucket_steps=matrix.bucket_steps,
    )
