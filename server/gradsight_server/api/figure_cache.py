"""Figures, and diagnoses, kept while their run does not change, so that fifty viewers cost one."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

Figure = dict[str, Any]

MAX_FIGURES = 32
MAX_BYTES = 32 * 2**20
"""Of all figures' arrays together: a heat-map of thousands of layers has millions of cells."""
NUM_LOCKS = 16


class FigureCache:
    """The newest figures by what was asked for; a figure is as old as its run's newest change."""

    def __init__(self) -> None:
        self._figures: OrderedDict[Hashable, tuple[Hashable, Figure]] = OrderedDict()
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._drawing = [threading.Lock() for _ in range(NUM_LOCKS)]

    def get(self, key: Hashable, *, position: int, version: Hashable, draw: Callable[[], Figure]) -> Figure:
        """The figure at this position, drawn only if its run has changed since; by one of those who ask at once.

        Args:
            key: The run, the figure and how it was asked for.
            position: The live position from which on ticks carry what the figure lacks.
            version: Changes with the run.
        """
        with self._drawing[hash(key) % NUM_LOCKS]:
            figure = self._known(key, version)
            if figure is None:
                figure = draw()
                self._keep(key, version, figure)
        return figure | {"position": position}

    def _known(self, key: Hashable, version: Hashable) -> Figure | None:
        with self._lock:
            known_version, figure = self._figures.get(key, (None, None))
            if known_version != version:
                return None
            self._figures.move_to_end(key)
            return figure

    def _keep(self, key: Hashable, version: Hashable, figure: Figure) -> None:
        with self._lock:
            _, older = self._figures.pop(key, (0, None))
            self._figures[key] = (version, figure)
            self._num_bytes += _num_bytes(figure) - _num_bytes(older)
            while len(self._figures) > MAX_FIGURES or self._num_bytes > MAX_BYTES:
                _, (_, oldest) = self._figures.popitem(last=False)
                self._num_bytes -= _num_bytes(oldest)


def _num_bytes(figure: Figure | None) -> int:
    """How much room a figure's arrays take."""
    traces = figure.get("data", ()) if figure else ()
    return sum(
        len(part["bdata"]) for trace in traces for part in trace.values() if isinstance(part, dict) and "bdata" in part
    )
