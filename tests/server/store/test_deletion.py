"""A deleted run is gone at once, and all of it in the end, in slices that others can write between."""

from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from gradsight_server.errors import RunNotFoundError, ServerBusyError
from gradsight_server.store import deletion, models
from gradsight_server.store.rule_changes import put_rules
from gradsight_server.store.runs import list_runs
from gradsight_server.store.ticks import ticks_after
from tests.server.store.kit import RUN, Store

OTHER = "e" * 32
BIG = [table for table, _ in deletion.BIG_TABLES]


@pytest.fixture
def large(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Two runs of many slices each."""
    monkeypatch.setattr(deletion, "SLICE_ROWS", 20)
    monkeypatch.setattr(deletion, "SLICE_BYTES", 1000)
    store.put(OTHER)
    for run_id in (RUN, OTHER):
        for first in range(0, 200, 50):
            steps = list(range(first, first + 50))
            norms: dict[str, Any] = {"layers": ["a"], "layer_step": steps, "layer_norms": [[1.0]] * 50}
            store.send(steps, run_id=run_id, grad_norm_before_clip=[1.0] * 50, **norms)
    return store


def num_rows(store: Store, run_id: str) -> dict[str, int]:
    return {table.name: sum(row["run_id"] == run_id for row in store.rows(table)) for table in BIG}


def delete(store: Store) -> None:
    store.write(lambda conn: deletion.delete_run(conn, RUN, now_s=store.now_s))


def test_a_deleted_run_is_gone_at_once_and_its_rows_little_by_little(large: Store) -> None:
    delete(large)
    assert [item["id"] for item in large.read(list_runs, now_s=0.0)["items"]] == [OTHER]
    with pytest.raises(RunNotFoundError):
        large.run()
    with pytest.raises(RunNotFoundError):
        large.send([1000], loss=[1.0])
    assert large.read(ticks_after, 0, limit=1000)[-1].kind == "deleted"
    num_left = [sum(num_rows(large, RUN).values())]
    assert num_left[0] > 100
    while large.write(lambda conn: deletion.remove_slice(conn, RUN)):
        num_left.append(sum(num_rows(large, RUN).values()))
    assert max(before - after for before, after in pairwise(num_left)) <= 60, "a slice, and small tables whole"
    assert sum(num_rows(large, RUN).values()) == 0


def test_a_runs_own_alert_rules_go_with_it(store: Store) -> None:
    store.put(OTHER)
    changes = [("dead_run", {"enabled": False})]
    for run_id in (RUN, OTHER):
        store.write(partial(put_rules, given=changes, run_id=run_id, now_s=0.0))
    delete(store)
    assert [row["scope_id"] for row in store.rows(models.alert_rules)] == [OTHER]


def test_the_sweep_ends_what_was_begun_and_touches_no_other_run(large: Store) -> None:
    before = num_rows(large, OTHER)
    delete(large)
    assert deletion.sweep(large.db) == 1
    assert sum(num_rows(large, RUN).values()) == 0
    assert num_rows(large, OTHER) == before
    assert large.rows(models.deletions) == []
    assert deletion.sweep(large.db) == 0


def test_a_run_can_be_created_again_once_the_old_one_is_all_gone(large: Store) -> None:
    delete(large)
    with pytest.raises(ServerBusyError, match="not all gone yet"):
        large.put()
    deletion.finish(large.db, RUN, deadline_s=0.0)
    with pytest.raises(ServerBusyError, match="not all gone yet"):
        large.put()
    deletion.finish(large.db, RUN, deadline_s=60.0)
    large.put()
    assert large.run()["num_steps"] == 0


def test_a_slice_asked_for_too_late_takes_nothing_of_a_new_run_of_the_same_id(large: Store) -> None:
    """The sweep knows from before which runs are going; meanwhile one can be all gone and made again."""
    delete(large)
    late = partial(deletion.remove_slice, run_id=RUN)
    deletion.finish(large.db, RUN, deadline_s=60.0)
    large.put()
    large.send(list(range(50)), loss=[1.0] * 50)
    assert not large.write(late)
    assert num_rows(large, RUN)["steps"] == large.run()["num_steps"] == 50


def test_others_write_while_a_run_is_deleted(large: Store) -> None:
    delete(large)
    taken = [large.db.write(lambda conn: deletion.remove_slice(conn, RUN)) for _ in range(3)]
    answer = large.send([500], run_id=OTHER, loss=[1.0])
    assert answer.last_step == 500
    assert all(more.result(10) for more in taken), "there was still much to delete"
