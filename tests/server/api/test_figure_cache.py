"""A figure is drawn once while its run does not change, however many ask, and always says where ticks go on."""

import threading
from typing import Any

from gradsight_server.api.figure_cache import MAX_FIGURES, FigureCache
from tests.server.api.kit import RUN, Running, wait_until


class Drawing:
    """A drawing that counts how often it was asked for, and waits until it may end."""

    def __init__(self) -> None:
        self.num_drawn = 0
        self.may_end = threading.Event()
        self.may_end.set()

    def __call__(self) -> dict[str, Any]:
        self.may_end.wait(10)
        self.num_drawn += 1
        return {"position": -1, "drawn": self.num_drawn}


def test_a_figure_is_drawn_again_only_when_its_run_has_changed() -> None:
    cache, draw = FigureCache(), Drawing()
    assert cache.get("a", position=5, version=3, draw=draw) == {"position": 5, "drawn": 1}
    assert cache.get("a", position=9, version=3, draw=draw) == {"position": 9, "drawn": 1}
    assert cache.get("a", position=9, version=8, draw=draw) == {"position": 9, "drawn": 2}
    assert cache.get("b", position=9, version=8, draw=draw)["drawn"] == 3


def test_many_who_ask_at_once_cost_one() -> None:
    cache, draw = FigureCache(), Drawing()
    draw.may_end.clear()
    viewers = [
        threading.Thread(target=cache.get, args=("a",), kwargs={"position": 1, "version": 1, "draw": draw})
        for _ in range(20)
    ]
    for viewer in viewers:
        viewer.start()
    draw.may_end.set()
    for viewer in viewers:
        viewer.join(10)
    assert draw.num_drawn == 1


def test_what_was_not_asked_for_lately_is_let_go() -> None:
    cache, draw = FigureCache(), Drawing()
    for key in range(MAX_FIGURES + 1):
        cache.get(key, position=1, version=1, draw=draw)
        cache.get(0, position=1, version=1, draw=draw)
    assert draw.num_drawn == MAX_FIGURES + 1
    cache.get(1, position=1, version=1, draw=draw)
    assert draw.num_drawn == MAX_FIGURES + 2


def test_over_http_a_figure_follows_its_run_and_its_position_all_others(run_server: Running) -> None:
    def norm() -> dict[str, Any]:
        figure: dict[str, Any] = run_server.get(f"runs/{RUN}/figures/norm")
        return figure

    run_server.send({"step": [0], "grad_norm_before_clip": [1.0]})
    wait_until(lambda: norm()["last_step"] == 0)
    before = norm()
    run_server.put("f" * 32)
    wait_until(lambda: norm()["position"] > before["position"])
    assert norm() | {"position": 0} == before | {"position": 0}
    run_server.send({"step": [1], "grad_norm_before_clip": [2.0]})
    wait_until(lambda: norm()["last_step"] == 1)
    run_server.client.delete(f"/api/v1/runs/{'f' * 32}")
    run_server.client.delete(f"/api/v1/runs/{RUN}")
    wait_until(lambda: run_server.client.get(f"/api/v1/runs/{RUN}/figures/norm").status_code == 404)
