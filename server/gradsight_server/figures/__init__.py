"""Plotly figures as plain dicts: layout and traces with roles in place of colours and keys in place of texts.

Pure: arrays in, a dict out. The page resolves roles and keys by its theme and language, `resolved` does for a notebook
or a file. Every trace also says how a live tick extends it. No `*gl` traces: they need eval, which the page's policy
forbids.
"""

from gradsight_server.figures.beside import GHOST_OF, ghost, metrics_figure
from gradsight_server.figures.histogram import histogram_figure
from gradsight_server.figures.layers import MAX_MARKED_CELLS, display_name, find_layer, layer_figure, layers_figure
from gradsight_server.figures.resolving import DARK, LIGHT, Theme, resolved
from gradsight_server.figures.series import CLIP_FRACTION_STEPS, COLUMNS, series_figure
from gradsight_server.figures.traces import Figure, Trace

NAMES = (*COLUMNS, "metrics", "histogram", "layers", "layer")
"""Every figure: those of a stream's columns, the user's metrics, how norms are distributed, all layers, one layer."""

__all__ = [
    "CLIP_FRACTION_STEPS",
    "COLUMNS",
    "DARK",
    "GHOST_OF",
    "LIGHT",
    "MAX_MARKED_CELLS",
    "NAMES",
    "Figure",
    "Theme",
    "Trace",
    "display_name",
    "find_layer",
    "ghost",
    "histogram_figure",
    "layer_figure",
    "layers_figure",
    "metrics_figure",
    "resolved",
    "series_figure",
]
