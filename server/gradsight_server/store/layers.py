"""The layer matrix: the greatest norm of each layer in each bucket of steps, and what had none."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, select

from gradsight_server.store import views
from gradsight_server.store.expressions import bound_segment
from gradsight_server.store.models import layer_rows, layer_sets

CHUNK_ROWS = 1024

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


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some buckets, by rows, of one set of layers, by columns."""

    layers_id: str
    bucket: Integers
    step: Integers
    last_step: Integers
    max: NDArray[np.float32]
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
    view = views.choose(
        conn, layer_rows, run_id, stream, attempt=attempt, first_step=first_step, last_step=last_step, points=points
    )
    pieces = [piece for segment in view.segments for piece in _pieces(conn, segment, view.bucket_steps)]
    layers, place_of = _layers(conn, run_id, list(dict.fromkeys(piece.layers_id for piece in pieces)))
    buckets = np.unique(np.concatenate([np.empty(0, np.int64), *(piece.bucket for piece in pieces)]))
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
    for piece in pieces:
        _add(matrix, piece, np.searchsorted(buckets, piece.bucket), place_of[piece.layers_id])
    return matrix


def _pieces(conn: Connection, segment: views.Segment, bucket_steps: int) -> Iterator[_Piece]:
    """The segment's rows, chunk by chunk: rollups will take the place of this reading of everything."""
    query = select(layer_rows.c.step, layer_rows.c.layers_id, layer_rows.c.norms).where(bound_segment(layer_rows))
    result = conn.execution_options(yield_per=CHUNK_ROWS).execute(query.order_by(layer_rows.c.step), segment.parameters)
    for chunk in result.partitions():
        for layers_id, rows in groupby(chunk, key=lambda row: row.layers_id):
            yield _piece(layers_id, list(rows), bucket_steps)


def _piece(layers_id: str, rows: list[Row[*tuple[Any, ...]]], bucket_steps: int) -> _Piece:
    step = np.array([row.step for row in rows], dtype=np.int64)
    norms = np.frombuffer(b"".join(row.norms for row in rows), dtype="<f4").reshape(len(rows), -1)
    finite = np.isfinite(norms)
    without_grad = finite & (norms < 0)
    bucket = step // bucket_steps
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    return _Piece(
        layers_id,
        bucket=bucket[starts],
        step=step[starts],
        last_step=step[np.append(starts[1:], len(step)) - 1],
        max=np.fmax.reduceat(np.where(finite & ~without_grad, norms, np.float32(np.nan)), starts),
        num_nonfinite=np.add.reduceat(~finite, starts, dtype=np.int64),
        num_without_grad=np.add.reduceat(without_grad, starts, dtype=np.int64),
    )


def _layers(conn: Connection, run_id: str, layers_ids: list[str]) -> tuple[list[list[str]], dict[str, Integers]]:
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


def _add(matrix: LayerMatrix, piece: _Piece, columns: Integers, places: Integers) -> None:
    matrix.step[columns] = np.minimum(matrix.step[columns], piece.step)
    matrix.last_step[columns] = np.maximum(matrix.last_step[columns], piece.last_step)
    cells = np.ix_(places, columns)
    matrix.max[cells] = np.fmax(matrix.max[cells], piece.max.T)
    matrix.num_nonfinite[cells] += piece.num_nonfinite.T
    matrix.num_without_grad[cells] += piece.num_without_grad.T
