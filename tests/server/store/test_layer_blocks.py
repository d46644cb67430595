"""Sixteen steps share a row of layer norms, and nobody notices."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from gradsight_server.store import layer_blocks, models
from gradsight_server.store.layer_blocks import LayerRows
from tests.server.store.kit import RUN, Store

KEY = (RUN, 1, 1)
ATTEMPT_KEYS = itertools.count(100)
WIDTH = {"x": 1, "y": 3}

Rows = dict[int, tuple[str, float]]
"""step → (layers_id, every norm of the row)"""


def norms_of(values: list[float], layers_id: str) -> bytes:
    return np.repeat(np.array(values, "<f4"), WIDTH[layers_id]).tobytes()


def read(store: Store, key: tuple[str, int, int], first: int = 0, last: int = 10_000) -> Rows:
    found: Rows = {}
    for rows in store.read(lambda conn: list(layer_blocks.read(conn, key, first, last))):
        assert rows.norms.shape == (len(rows.step), WIDTH[rows.layers_id])
        found |= {
            step: (rows.layers_id, norm)
            for step, norm in zip(rows.step.tolist(), rows.norms[:, 0].tolist(), strict=True)
        }
    return found


Batch = tuple[str, list[int]]
BATCHES = st.lists(
    st.tuples(st.sampled_from(sorted(WIDTH)), st.lists(st.integers(0, 50), min_size=1, max_size=20)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(BATCHES, st.integers(0, 50), st.integers(0, 50))
def test_each_step_has_the_row_that_came_last(store: Store, batches: list[Batch], one: int, other: int) -> None:
    key = (RUN, 1, next(ATTEMPT_KEYS))
    numbers = itertools.count()
    expected: Rows = {}
    known_step = -1
    for layers_id, steps in batches:
        values = [float(next(numbers)) for _ in steps]
        norms = norms_of(values, layers_id)

        def work(conn: Connection) -> None:
            layer_blocks.write(conn, key, layers_id, steps, [0] * len(steps), norms, known_step=known_step)  # noqa: B023

        store.write(work)
        expected |= {step: (layers_id, value) for step, value in zip(steps, values, strict=True)}
        known_step = max(known_step, *steps)
    assert read(store, key) == expected
    first, last = min(one, other), max(one, other)
    inside = {step: row for step, row in expected.items() if first <= step <= last}
    assert read(store, key, first, last) == inside
    assert store.read(layer_blocks.num_rows, key, first, last, 1000) == len(inside)
    newest = store.read(layer_blocks.newest, key, first, last)
    assert (newest and (int(newest.step[0]), (newest.layers_id, float(newest.norms[0, 0])))) == max(
        inside.items(), default=None
    )
    store.write(lambda conn: layer_blocks.trim(conn, key, 0, 10))
    assert read(store, key) == expected


def sizes(store: Store) -> list[int]:
    return [len(row["norms"]) for row in store.rows(models.layer_blocks)]


def test_the_newest_block_keeps_its_size_while_its_steps_come(store: Store) -> None:
    for step in range(16):
        store.send(layers_id="y", layer_step=[step], layer_norms=[[1.0, 2.0, 3.0]])
        assert sizes(store) == [16 * 12]


def test_room_for_steps_that_did_not_come_is_taken_back(store: Store) -> None:
    for step in range(0, 41, 10):
        store.send(layers_id="y", layer_step=[step], layer_norms=[[1.0, 2.0, 3.0]])
    assert sizes(store) == [2 * 12, 2 * 12, 8 * 12]
    store.send([100], loss=[1.0])
    assert sizes(store) == [2 * 12, 2 * 12, 12]


def test_ranks_have_blocks_of_their_own_and_rank_0_is_read(store: Store) -> None:
    for rank, norm in ((1, 2.0), (0, 1.0), (2, 3.0)):
        store.send([5], rank=[rank], layers_id="x", layer_step=[5], layer_norms=[[norm]])
    assert read(store, KEY) == {5: ("x", 1.0)}
    assert [row["rank"] for row in store.rows(models.layer_blocks)] == [0, 1, 2]


def test_counting_stops_soon_after_what_was_asked(store: Store) -> None:
    store.send(layers_id="x", layer_step=list(range(640)), layer_norms=np.ones(640, "<f4").tobytes())
    assert store.read(layer_blocks.num_rows, KEY, 0, 10_000, 10_000) == 640
    assert 10 < store.read(layer_blocks.num_rows, KEY, 3, 10_000, 10) < 640


def test_much_is_read_in_chunks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_blocks, "CHUNK_BYTES", 100)
    store.send(layers_id="x", layer_step=list(range(160)), layer_norms=np.arange(160, dtype="<f4").tobytes())
    chunks: list[LayerRows] = store.read(lambda conn: list(layer_blocks.read(conn, KEY, 2, 150)))
    assert len(chunks) > 3
    assert np.concatenate([rows.step for rows in chunks]).tolist() == list(range(2, 151))
