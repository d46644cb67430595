"""A list shows each run's norm in a few points in which no spike and no NaN is lost."""

from typing import Any

import pytest

from gradsight_server.store import deletion, sparklines
from gradsight_server.store.runs import list_runs
from tests.server.store.kit import RUN, Store

NORM = "grad_norm_before_clip"


def shown(store: Store) -> Any:
    (row,) = store.read(list_runs, now_s=store.now_s)["items"]
    return row["sparkline"]


def refresh(store: Store) -> int:
    return sparklines.refresh(store.db, now_s=store.now_s)


def test_a_run_without_steps_has_none(store: Store) -> None:
    assert refresh(store) == 0
    assert shown(store) is None


def test_a_short_run_is_drawn_step_by_step(store: Store) -> None:
    store.send([0, 1, 2], grad_norm_before_clip=[1.23456, "NaN", None], max_norm=[1.0, 1.0, None])
    assert refresh(store) == 1
    assert shown(store) == {
        "step": [0, 1, 2],
        "norm": [1.235, None, None],
        "max_norm": [1.0, 1.0, None],
        "num_nonfinite": [0, 1, 0],
        "num_replaced": 0,
        "num_replaced_clipped": 0,
    }


def test_counts_in_lists_are_of_the_main_stream_and_leave_out_what_was_done_again(store: Store) -> None:
    def send(first: int, norm: float, attempt_id: str, stream: str = "main") -> None:
        norms, thresholds = [norm] * 6, [1.0] * 6
        steps = list(range(first, first + 6))
        store.send(steps, stream=stream, attempt_id=attempt_id, grad_norm_before_clip=norms, max_norm=thresholds)

    send(0, 2.0, "a")
    send(0, 2.0, "a", stream="main/head")
    store.now_s += 1
    send(4, 0.5, "b")
    refresh(store)
    (row,) = store.read(list_runs, now_s=store.now_s)["items"]
    assert row["of_stream"] == {"num_steps": 12, "num_clipped": 6}
    assert (row["sparkline"]["num_replaced"], row["sparkline"]["num_replaced_clipped"]) == (2, 2)


def test_a_long_run_fits_and_keeps_its_spikes(store: Store) -> None:
    norms: list[Any] = [0.5] * 5000
    norms[1234], norms[4321] = 1e6, "NaN"
    store.send(list(range(5000)), grad_norm_before_clip=norms)
    refresh(store)
    line = shown(store)
    assert len(line["step"]) <= sparklines.POINTS
    assert max(line["norm"]) == 1e6
    assert sum(line["num_nonfinite"]) == 1


def test_a_run_is_drawn_again_when_it_went_on_and_not_all_the_time(store: Store) -> None:
    store.send([0], grad_norm_before_clip=[1.0])
    assert (refresh(store), refresh(store)) == (1, 0)
    store.now_s += 1
    store.send([1], grad_norm_before_clip=[2.0])
    assert refresh(store) == 0, "a moment ago it was drawn"
    store.now_s += sparklines.MIN_AGE_S
    assert (refresh(store), refresh(store)) == (1, 0)
    assert shown(store)["norm"] == [1.0, 2.0]


def test_the_first_stream_is_drawn_where_there_is_no_main_one(store: Store) -> None:
    store.send([0], stream="critic", grad_norm_before_clip=[1.0])
    store.send([0], stream="actor", grad_norm_before_clip=[2.0])
    refresh(store)
    assert shown(store)["norm"] == [1.0]


def test_a_run_deleted_meanwhile_is_left_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.send([0], grad_norm_before_clip=[1.0])
    real = sparklines.draw

    def draw_and_delete(conn: Any, run_id: str) -> dict[str, list[Any]]:
        found = real(conn, run_id)
        store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=store.now_s))
        return found

    monkeypatch.setattr(sparklines, "draw", draw_and_delete)
    refresh(store)
    assert store.read(list_runs, now_s=store.now_s)["items"] == []
