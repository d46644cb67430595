"""Figures, and diagnoses, kept while their run does not change, so that fifty viewers cost one."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

Figure = dict[str, Any]

MAX_FIGURES = 32
NUM_LOCKS = 16


class FigureCache:
    """The newest figures by what was asked for; a figure is as old as its run's newest change."""

    def __init__(self) -> None:
        self._figures: OrderedDict[Hashable, tuple[Hashable, Figure]] = OrderedDict()
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
            self._figures[key] = (version, figure)
            self._figures.move_to_end(key)
            while len(self._figures) > MAX_FIGURES:
                self._figures.popitem(last=False)
