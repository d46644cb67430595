"""The layer matrix: the greatest norm of each layer in each bucket of steps, and what had none."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from gradsight_server.store import layer_blocks, layer_rollup, pyramid, rollup, views
from gradsight_server.store.layer_rollup import Peaks
from gradsight_server.store.models import layer_sets

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LayerMatrix:
    """Layers by buckets; a layer is the list of its names."""

    stream: str
    attempt: int | None
    bucket_steps: int
    step: Integers
    last_step: Integers
    layers: list[list[str]]
    max: NDArray[np.float32]  # over finite norms, NaN where there are none
    num_nonfinite: Integers
    num_without_grad: Integers


def layer_matrix(
    conn: Connection,
    run_id: str,
    *,
    stream: str = "main",
    attempt: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = 500,
) -> LayerMatrix:
    """The layer norms between two steps, both included, in at most `points` columns.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    views.check_points(points)
    shown = views.show(conn, run_id, stream, attempt=attempt, first_step=first_step, last_step=last_step)
    view = views.choose(conn, shown, points=points, num_rows=layer_blocks.num_rows)
    pieces = list(_pieces(conn, view))
    in_order = sorted(pieces, key=lambda piece: int(piece[1].first_step[0]))
    layers, place_of = places_of(conn, run_id, list(dict.fromkeys(layers_id for layers_id, _ in in_order)))
    buckets = np.unique(np.concatenate([np.empty(0, np.int64), *(peaks.bucket for _, peaks in pieces)]))
    shape = (len(layers), len(buckets))
    matrix = LayerMatrix(
        stream=stream,
        attempt=attempt,
        bucket_steps=view.bucket_steps,
        step=np.full(len(buckets), np.iinfo(np.int64).max),
        last_step=np.full(len(buckets), -1),
        layers=layers,
        max=np.full(shape, np.nan, np.float32),
        num_nonfinite=np.zeros(shape, np.int64),
        num_without_grad=np.zeros(shape, np.int64),
    )
    for layers_id, peaks in pieces:
        _add(matrix, peaks, np.searchsorted(buckets, peaks.bucket), place_of[layers_id])
    return matrix


def _pieces(conn: Connection, view: views.View) -> Iterator[tuple[str, Peaks]]:
    """(layers_id, some of the view's buckets), by rising step; neighbours may share a bucket."""
    for key, piece in view.pieces():
        if piece.level == 0:
            for rows in layer_blocks.read(conn, key, piece.first, piece.last):
                yield rows.layers_id, layer_rollup.peaks_of_rows(rows.step, rows.norms, size=view.bucket_steps)
            continue
        factor = view.bucket_steps // rollup.bucket_size(piece.level)
        for layers_id, numbers, blobs in pyramid.read_layer_blobs(conn, key, *piece):
            yield layers_id, layer_rollup.peaks_of_blobs(piece.level, numbers, blobs).merged(factor)


def places_of(conn: Connection, run_id: str, layers_ids: list[str]) -> tuple[list[list[str]], dict[str, Integers]]:
    """All layers, those seen first first, and for each set where its layers are among them."""
    of_sets = (layer_sets.c.run_id == run_id, layer_sets.c.layers_id.in_(layers_ids))
    columns = (layer_sets.c.layers_id, layer_sets.c.num_layers, layer_sets.c.layers)
    known = {row.layers_id: row for row in conn.execute(select(*columns).where(*of_sets))}
    places: dict[tuple[str, ...], int] = {}
    place_of = {}
    for layers_id in layers_ids:
        row = known[layers_id]
        names = row.layers or [[f"layer {i}"] for i in range(row.num_layers)]
        place_of[layers_id] = np.array([places.setdefault(tuple(layer), len(places)) for layer in names])
    return [list(layer) for layer in places], place_of


def _add(matrix: LayerMatrix, peaks: Peaks, columns: Integers, places: Integers) -> None:
    matrix.step[columns] = np.minimum(matrix.step[columns], peaks.first_step)
    matrix.last_step[columns] = np.maximum(matrix.last_step[columns], peaks.last_step)
    rows, neighbours = _as_slice(places), _as_slice(columns)
    cells: Any = np.ix_(places, columns) if rows is None or neighbours is None else (rows, neighbours)
    matrix.max[cells] = np.fmax(matrix.max[cells], peaks.max.T)
    matrix.num_nonfinite[cells] += peaks.num_nonfinite.T
    matrix.num_without_grad[cells] += peaks.num_without_grad.T


def _as_slice(indexes: Integers) -> slice | None:
    """Neighbours as a slice, by which numpy is several times faster; None where they are none."""
    first, last = int(indexes[0]), int(indexes[-1])
    is_run = last - first + 1 == len(indexes) and bool((np.diff(indexes) == 1).all())
    return slice(first, last + 1) if is_run else None
