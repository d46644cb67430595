"""Figures are kept while their run does not change, and not more of them than there is room for."""

from collections.abc import Callable
from typing import Any

import pytest

from gradsight_server.api import figure_cache
from gradsight_server.api.figure_cache import FigureCache


class Pen:
    """Draws figures of some size, and counts them."""

    num_drawn = 0

    def draws(self, num_bytes: int) -> Callable[[], dict[str, Any]]:
        def draw() -> dict[str, Any]:
            self.num_drawn += 1
            return {
                "data": [{"x": {"dtype": "f8", "bdata": "x" * num_bytes}, "name": "norm"}],
                "number": self.num_drawn,
            }

        return draw


def number(cache: FigureCache, key: str, pen: Pen, *, version: int = 1, num_bytes: int = 10) -> int:
    figure = cache.get(key, position=7, version=version, draw=pen.draws(num_bytes))
    assert figure["position"] == 7
    found: int = figure["number"]
    return found


def test_a_figure_is_drawn_once_for_each_version_of_its_run() -> None:
    cache, pen = FigureCache(), Pen()
    assert [number(cache, "a", pen) for _ in range(3)] == [1, 1, 1]
    assert number(cache, "a", pen, version=2) == 2
    assert number(cache, "b", pen, version=2) == 3


def test_the_figures_asked_for_last_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_cache, "MAX_FIGURES", 2)
    cache, pen = FigureCache(), Pen()
    assert [number(cache, key, pen) for key in "abac"] == [1, 2, 1, 3]
    assert [number(cache, key, pen) for key in "acb"] == [1, 3, 4]


def test_large_figures_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_cache, "MAX_BYTES", 100)
    cache, pen = FigureCache(), Pen()
    for key in "abc":
        number(cache, key, pen, num_bytes=40)
    assert number(cache, "c", pen) == 3
    assert number(cache, "b", pen) == 2
    assert number(cache, "a", pen, num_bytes=40) == 4
    assert number(cache, "a", pen, version=2, num_bytes=90) == 5, "in place of the older one"
    assert number(cache, "huge", pen, num_bytes=1_000) == 6
    assert number(cache, "huge", pen, num_bytes=1_000) == 7, "what is larger than all room is not kept"
    assert number(cache, "small", pen) == 8
    assert number(cache, "small", pen) == 8
