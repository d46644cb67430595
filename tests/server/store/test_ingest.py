"""A batch is stored once, column by column, whatever is sent late, twice or again."""

import math
from typing import Any

import numpy as np
import pytest

from gradsight import wire
from gradsight.errors import WireError
from gradsight_server.errors import RunNotFoundError
from gradsight_server.store import layer_blocks, models
from gradsight_server.store.events import events
from gradsight_server.store.one_step import one_step
from tests.server.store.kit import RUN, Store

STORED = (
    models.streams,
    models.attempts,
    models.steps,
    models.extents,
    models.layer_blocks,
    models.layer_sets,
    models.metrics,
)
NAMES = ["a", ["b", "tied"], "c"]


def full_batch() -> dict[str, Any]:
    return {
        "attempt_id": "first",
        "attempt_started_at_s": 10.0,
        "sequence": 0,
        "step": [0, 1, 2, 3],
        "loss": [3.0, 2.0, "NaN", None],
        "grad_norm_before_clip": [0.5, 2.0, math.inf, None],
        "max_norm": [1.0, 1.0, 1.0, 1.0],
        "skipped": [False, False, True, True],
        "skip_reason": [None, None, "overflow", "no_gradient"],
        "layers": NAMES,
        "layer_step": [0, 1],
        "layer_norms": [[0.5, None, 0.25], ["NaN", 1.0, "Infinity"]],
        "metrics": [wire.Metric(step=1, name="val_loss", value=1.5), wire.Metric(step=2, name="val_loss", value="NaN")],
        "events": [wire.Event(kind="note", step=1, message="hello"), wire.Event(kind="finished")],
        "dropped": {"queue": 3},
    }


def column(store: Store, name: str) -> dict[int, Any]:
    return {row["step"]: row[name] for row in store.rows(models.steps) if row["rank"] == 0}


def counters(store: Store) -> tuple[int, int, int, int]:
    run = store.run()
    return run["num_steps"], run["num_skipped"], run["num_clipped"], run["num_nonfinite"]


def test_a_batch_for_an_unknown_run_is_refused(store: Store) -> None:
    with pytest.raises(RunNotFoundError, match="PUT"):
        store.send([0], run_id="f" * 32, loss=[1.0])


def test_a_batch_moves_the_counters_and_is_answered(store: Store) -> None:
    answer = store.send(**full_batch())
    assert (answer.accepted_steps, answer.last_step, answer.layers_needed) == (4, 3, False)
    assert counters(store) == (4, 2, 1, 1)
    run = store.run()
    assert (run["num_applied"], run["last_step"], run["status"]) == (2, 3, "finished")
    assert run["attempts"] == [{"attempt_id": "first", "number": 1, "started_at_s": 10.0, "dropped": {"queue": 3}}]


def test_a_batch_sent_again_changes_nothing(store: Store) -> None:
    store.send(**full_batch())
    rows, run, said = [store.rows(table) for table in STORED], store.run(), store.read(events, RUN)
    store.now_s += 5
    again = store.send(**full_batch())
    assert again.last_step == 3
    assert [store.rows(table) for table in STORED] == rows
    assert store.read(events, RUN) == said
    newer = store.run()
    assert newer.pop("last_seen_s") == run.pop("last_seen_s") + 5
    assert newer.pop("position") == run.pop("position") + 1
    assert newer == run


def test_present_columns_overwrite_also_with_null_and_absent_ones_stay(store: Store) -> None:
    store.send([0, 1], loss=[1.0, 2.0], lr=[0.1, 0.1], skipped=[True, False], skip_reason=["user", None])
    store.send([0, 1], loss=[None, 5.0], skipped=[None, True])
    assert column(store, "loss") == {0: None, 1: 5.0}
    assert column(store, "lr") == {0: 0.1, 1: 0.1}
    assert column(store, "skipped") == {0: None, 1: True}
    assert column(store, "skip_reason") == {0: "user", 1: None}
    assert counters(store) == (2, 1, 0, 0)


def test_the_last_row_of_a_step_repeated_in_one_batch_wins(store: Store) -> None:
    answer = store.send([7, 7, 7], grad_norm_before_clip=[1.0, "NaN", 3.0], max_norm=[2.0, 2.0, 2.0])
    assert answer.accepted_steps == 3
    assert column(store, "grad_norm_before_clip") == {7: 3.0}
    assert counters(store) == (1, 0, 1, 0)


def test_nan_infinities_and_not_recorded_stay_different(store: Store) -> None:
    store.send([0, 1, 2, 3, 4], loss=["NaN", "Infinity", "-Infinity", None, 1.0], lr=[math.nan, 1.0, None, 1.0, 1.0])
    said = [store.read(one_step, RUN, step) for step in range(5)]
    assert [detail["loss"] for detail in said] == [None, None, None, None, 1.0]
    assert [detail["nonfinite"] for detail in said] == [
        {"loss": "NaN", "lr": "NaN"},
        {"loss": "Infinity"},
        {"loss": "-Infinity"},
        {},
        {},
    ]


def test_what_was_not_finite_is_replaced_only_with_its_own_column(store: Store) -> None:
    store.send([0], loss=["NaN"], hook_time_s=["Infinity"])
    store.send([0], lr=[0.5])
    assert store.read(one_step, RUN, 0)["nonfinite"] == {"loss": "NaN", "hook_time_s": "Infinity"}
    store.send([0], loss=[2.0], lr=["-Infinity"])
    assert store.read(one_step, RUN, 0)["nonfinite"] == {"lr": "-Infinity", "hook_time_s": "Infinity"}


def test_late_and_far_apart_steps_keep_the_counters_exact(store: Store) -> None:
    store.send([100, 5000, wire.MAX_STEP], skipped=[True, False, True], loss=[1.0, 2.0, 3.0])
    store.send([50, 4000, 100], skipped=[False, True, False])
    assert counters(store) == (5, 2, 0, 0)
    assert store.run()["last_step"] == wire.MAX_STEP
    assert store.run()["last"]["loss"] == 3.0


def test_a_step_without_a_time_is_of_now_and_keeps_that(store: Store) -> None:
    store.send([0, 1], wall_time_s=[500.0, None])
    store.send([2])
    store.now_s = 2000.0
    store.send([0, 1, 2], wall_time_s=[None, None, 700.0])
    store.send([1])
    assert column(store, "wall_time_s") == {0: 500.0, 1: 1000.0, 2: 700.0}


def test_the_pace_is_told_from_the_newest_steps(store: Store) -> None:
    store.send([0], wall_time_s=[100.0])
    assert store.run()["steps_per_s"] is None
    store.send(list(range(1, 101)), wall_time_s=[100.0 + step / 4 for step in range(1, 101)])
    assert store.run()["steps_per_s"] == pytest.approx(4.0)


def test_other_ranks_are_kept_but_not_counted(store: Store) -> None:
    store.send([0, 0, 1, 1], rank=[0, 1, 0, 1], loss=[1.0, 2.0, 3.0, 4.0], skipped=[True] * 4)
    assert counters(store) == (2, 2, 0, 0)
    assert [(row["step"], row["rank"], row["loss"]) for row in store.rows(models.steps)] == [
        (0, 0, 1.0),
        (0, 1, 2.0),
        (1, 0, 3.0),
        (1, 1, 4.0),
    ]
    store.send([9], rank=[3], layers=["a"], layer_step=[9], layer_norms=[[1.0]])
    assert [row["rank"] for row in store.rows(models.layer_blocks)] == [3]
    assert store.run()["last_step"] == 1


def test_streams_and_attempts_get_small_keys_at_first_sight(store: Store) -> None:
    for stream, attempt in (("generator", "x"), ("critic", "x"), ("generator", "y")):
        store.send([0], stream=stream, attempt_id=attempt, loss=[1.0])
    assert [(row["stream_key"], row["stream"]) for row in store.rows(models.streams)] == [
        (1, "generator"),
        (2, "critic"),
    ]
    assert [(row["attempt_key"], row["attempt_id"]) for row in store.rows(models.attempts)] == [(1, "x"), (2, "y")]
    assert store.run()["num_steps"] == 3


def test_a_heartbeat_only_shows_that_the_run_lives(store: Store) -> None:
    store.send([0], loss=[1.0])
    before = store.run()
    store.now_s += 3
    assert store.send().last_step == 0
    assert store.run() == before | {"last_seen_s": store.now_s}


def test_losses_keep_their_greatest_count_per_rank(store: Store) -> None:
    store.send([0], rank=[0], dropped={"queue": 5, "disk": 1})
    store.send([1], rank=[0], dropped={"queue": 3})
    store.send([0], rank=[2], dropped={"queue": 4})
    assert store.run()["attempts"][0]["dropped"] == {"queue": 9, "disk": 1}


def test_layer_norms_are_stored_as_they_came(store: Store) -> None:
    norms = np.array([[1.0, -1.0], [np.nan, np.inf]], dtype="<f4")
    names = ["a", "b"]
    store.send(layers=names, layers_id=wire.layers_id(names), layer_step=[4, 5], layer_norms=norms.tobytes())
    (rows,) = store.read(lambda conn: list(layer_blocks.read(conn, (RUN, 1, 1), 0, 100)))
    assert (rows.step.tolist(), rows.norms.tobytes()) == ([4, 5], norms.tobytes())


def test_unknown_layers_are_stored_and_asked_for(store: Store) -> None:
    batch: dict[str, Any] = {"layers_id": "abc", "layer_norms": np.zeros(3, "<f4").tobytes()}
    assert store.send([0], **batch, layer_step=[0]).layers_needed
    assert store.send(**batch, layer_step=[1]).layers_needed
    assert not store.send(layers_id="abc", layers=NAMES).layers_needed
    assert not store.send(**batch, layer_step=[2]).layers_needed
    assert [layer["names"] for layer in store.read(one_step, RUN, 0)["layers"]] == [["a"], ["b", "tied"], ["c"]]


@pytest.mark.parametrize("num_layers", [2, 4])
def test_rows_of_the_wrong_width_are_refused_and_nothing_is_stored(store: Store, num_layers: int) -> None:
    store.send(layers_id="abc", layers=NAMES, layer_step=[0], layer_norms=[[1.0, 1.0, 1.0]])
    rows, run = [store.rows(table) for table in STORED], store.run()
    norms = np.zeros(num_layers, "<f4").tobytes()
    with pytest.raises(WireError, match=f"{num_layers} layers.* stands for 3") as caught:
        store.send([1], loss=[1.0], attempt_id="new", layers_id="abc", layer_step=[1], layer_norms=norms)
    assert caught.value.field == "layer_norms"
    assert [store.rows(table) for table in STORED] == rows
    assert store.run() == run


def test_rows_of_no_layer_are_refused(store: Store) -> None:
    with pytest.raises(WireError, match="layer_norms"):
        store.send(layers_id="abc", layer_step=[0, 1], layer_norms=b"")


@pytest.mark.parametrize(
    ("field", "batch"),
    [
        ("grad_norm_before_clip", {"grad_norm_before_clip": [0.5, -0.25]}),
        ("grad_norm_before_clip", {"grad_norm_before_clip": [0.5, "-Infinity"]}),
        ("layer_norms", {"layers": ["a"], "layer_step": [0, 1], "layer_norms": [[0.5], [-0.25]]}),
        ("layer_norms", {"layers": ["a"], "layer_step": [0], "layer_norms": np.array([-np.inf], "<f4").tobytes()}),
    ],
)
def test_a_negative_norm_is_refused_by_its_name_and_nothing_is_stored(
    store: Store, field: str, batch: dict[str, Any]
) -> None:
    with pytest.raises(WireError, match="negative") as caught:
        store.send([0, 1], loss=[1.0, 2.0], **batch)
    assert caught.value.field == field
    assert store.rows(models.steps) == []
    assert store.run()["attempts"] == []
    store.send([0], grad_norm_before_clip=[0.0], layers=["a"], layer_step=[0], layer_norms=[[-1.0]])
    assert store.run()["num_steps"] == 1


def test_metrics_are_upserted_by_name_and_step(store: Store) -> None:
    store.send(metrics=[wire.Metric(step=1, name="val", value="Infinity"), wire.Metric(step=1, name="acc", value=0.5)])
    store.send(metrics=[wire.Metric(step=1, name="val", value=2.0)])
    assert [(row["name"], row["value"], row["nonfinite"]) for row in store.rows(models.metrics)] == [
        ("acc", 0.5, 0),
        ("val", 2.0, 0),
    ]


def test_a_run_ends_by_its_event_and_lives_again_by_a_newer_attempt(store: Store) -> None:
    def status() -> str:
        return str(store.run()["status"])

    store.send([0], attempt_id="a", attempt_started_at_s=1.0)
    store.send(attempt_id="a", events=[wire.Event(kind="failed", wall_time_s=5.0)])
    assert status() == "failed"
    store.send([1], attempt_id="a")
    assert status() == "failed", "a late batch of the same attempt changes nothing"
    store.send([1], attempt_id="b", attempt_started_at_s=2.0)
    assert status() == "running"
    store.send(attempt_id="a", events=[wire.Event(kind="failed", wall_time_s=5.0)])
    store.send(attempt_id="a", events=[wire.Event(kind="finished", wall_time_s=6.0)])
    assert status() == "running", "the older attempt's end is no news to the newer one"
    store.send(attempt_id="b", events=[wire.Event(kind="finished", wall_time_s=9.0)])
    assert status() == "finished"
