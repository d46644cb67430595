"""What a report is made from, asked of a server as the page asks it."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Get = Callable[[str, Mapping[str, Any]], Any]
"""The answer to GET /api/v1/{path}, with a query."""

CHARTS = ("norm", "histogram", "clip_fraction", "clip_coef", "loss", "loss_scale", "update_ratio", "metrics", "layers")
MAX_STREAMS = 4
"""With charts; of more streams only the verdicts are told."""
POINTS = 1000
MAX_CELLS = 100_000
"""Of a layer map: a file of more would no longer open at once."""
MAX_EVENTS = 200
FRAME = ("ghost", "threshold", "border", "recommended")
"""Roles of traces that are drawn beside the data, not without it."""


@dataclass(frozen=True, slots=True)
class StreamContents:
    diagnosis: dict[str, Any]
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name; one with nothing in it is left out."""


@dataclass(frozen=True, slots=True)
class Contents:
    run: dict[str, Any]
    streams: dict[str, StreamContents]
    events: Sequence[dict[str, Any]]
    """Newest first."""
    notes: Sequence[str] = ()
    """What could not be read of a log, and what its numbers mean."""

    def to_json(self) -> dict[str, Any]:
        streams = {name: stream.diagnosis for name, stream in self.streams.items()}
        return {"run": self.run, "diagnosis": streams, "events": list(self.events), "notes": list(self.notes)}


def gather(get: Get, run_id: str, *, with_figures: bool, notes: Sequence[str] = ()) -> Contents:
    """Everything a report tells of a run."""
    run = get(f"runs/{run_id}", {})
    events = get(f"runs/{run_id}/events", {"limit": MAX_EVENTS})["items"]
    streams = {}
    for i, name in enumerate(run["streams"]):
        diagnosis = get(f"runs/{run_id}/diagnosis", {"stream": name})
        wanted = with_figures and i < MAX_STREAMS
        streams[name] = StreamContents(diagnosis, dict(_figures(get, run_id, name)) if wanted else {})
    return Contents(run, streams, events, notes)


def _figures(get: Get, run_id: str, stream: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in CHARTS:
        figure = get(f"runs/{run_id}/figures/{name}", {"stream": stream, "points": _points(get, run_id, stream, name)})
        if any(_has_points(trace) for trace in figure["data"] if trace["role"] not in FRAME):
            yield name, figure


def _points(get: Get, run_id: str, stream: str, name: str) -> int:
    if name != "layers":
        return POINTS
    num_layers = len(get(f"runs/{run_id}/layers", {"stream": stream, "points": 1})["layers"])
    return max(1, min(POINTS, MAX_CELLS // max(1, num_layers)))


def _has_points(trace: dict[str, Any]) -> bool:
    """Whether anything is drawn: an axis without a value says nothing."""
    values = trace.get("z", trace.get("y", ()))
    if isinstance(values, dict):
        return bool(np.isfinite(np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])).any())
    return any(value is not None for value in values)
