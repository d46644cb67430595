"""A figure resolved for a notebook or a file: roles become colours, keys become texts; what is left is plain Plotly."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gradsight_server.figures.texts import ENGLISH
from gradsight_server.figures.traces import Figure, Trace

OURS = ("role", "key", "live", "share", "attempt", "metric", "bucket_steps")
"""What Plotly does not know of a trace."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by what they stand for; those of the page."""

    surface: str
    grid: str
    text: str
    muted: str
    series: str
    warning: str
    critical: str
    ok: str
    heat: tuple[str, ...]


LIGHT = Theme(
    surface="#ffffff",
    grid="#eceef2",
    text="#1b2330",
    muted="#667085",
    series="#3456d1",
    warning="#b25e09",
    critical="#c0272d",
    ok="#1a7f4b",
    heat=("#eef1fb", "#c8d2f6", "#9db0ee", "#5f7adb", "#24378f"),
)
DARK = Theme(
    surface="#161b22",
    grid="#222933",
    text="#e6eaf0",
    muted="#93a0b2",
    series="#7d9bff",
    warning="#f0a04b",
    critical="#ff6b6b",
    ok="#4cc38a",
    heat=("#1b2333", "#28376b", "#4059ab", "#6a88ee", "#b4c4ff"),
)


def resolved(figure: Figure, theme: Theme = LIGHT, texts: Mapping[str, str] = ENGLISH) -> dict[str, Any]:
    """`{"data", "layout"}` as `plotly.graph_objects.Figure` and `Plotly.newPlot` take them.

    Args:
        texts: By key; a key without a text shows itself.
    """
    named: set[str] = set()
    data = []
    for trace in figure["data"]:
        name = texts.get(trace["key"]) or trace.get("metric") or trace["key"]
        plain = {key: value for key, value in trace.items() if key not in OURS}
        data.append(plain | {"name": name, "showlegend": name not in named} | _style(trace, theme))
        named.add(name)
    axis = {"gridcolor": theme.grid, "zeroline": False}
    layout = {name: value | axis if "axis" in name else value for name, value in figure["layout"].items()}
    x, y = (texts.get(f"{figure['name']}.{end}", "") for end in ("x", "y"))
    return {
        "data": data,
        "layout": layout
        | {
            "xaxis": layout["xaxis"] | {"title": {"text": x or texts.get("x", "")}},
            "yaxis": layout["yaxis"] | {"title": {"text": figure.get("layer") or y}},
            "paper_bgcolor": theme.surface,
            "plot_bgcolor": theme.surface,
            "font": {"color": theme.text},
        },
    }


def _style(trace: Trace, theme: Theme) -> dict[str, Any]:
    line = trace.get("line", {})
    match trace["role"]:
        case "heat":
            steps = len(theme.heat) - 1
            scale = [[i / steps, colour] for i, colour in enumerate(theme.heat)]
            return {"colorscale": scale, "showlegend": False}
        case "band_low" | "band_high":
            return {"line": line | {"width": 0}, "fillcolor": _faint(theme.series), "hoverinfo": "skip"}
        case "below" | "norms":
            return {"line": line | {"color": theme.series, "width": 1}, "fillcolor": _faint(theme.series)}
        case "above":
            return {"line": line | {"color": theme.warning, "width": 1}, "fillcolor": _faint(theme.warning)}
        case "recommended":
            return {"line": line | {"width": 0}, "fillcolor": _faint(theme.ok)}
        case "threshold":
            return {"line": line | {"color": theme.warning, "width": 1.5}}
        case "border" | "lr" | "headroom" | "ghost":
            return {"line": line | {"color": theme.muted, "width": 1, "dash": "dot"}}
        case "clipped":
            return {"marker": {"color": theme.warning, "size": 5}}
        case "spike":
            return {"marker": {"color": theme.warning, "size": 9, "symbol": "circle-open"}}
        case "skipped":
            return {"marker": {"color": theme.text, "size": 8, "symbol": "triangle-down"}, "cliponaxis": False}
        case "nonfinite" | "zero":
            return {"marker": {"color": theme.critical, "size": 8, "symbol": "x"}, "cliponaxis": False}
        case "dominant":
            return {"line": line | {"color": theme.text, "width": 1}}
        case _:
            return {"line": line | {"color": theme.series, "width": 1.5}}


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.2)"
