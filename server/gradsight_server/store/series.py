"""Series of a stream's columns: exact steps, or buckets in which no spike, NaN, skip or clip disappears.

Buckets are read from the coarsest level of the pyramid that they are made of, the range's ends from finer ones: what a
chart costs does not grow with the length of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import BigInteger, ColumnElement, Connection, Double, bindparam, case, cast, func, literal, select

from gradsight_server.errors import InvalidRequestError
from gradsight_server.store import rollup, views
from gradsight_server.store.expressions import (
    IS_CLIPPED,
    IS_SKIPPED,
    bound_segment,
    how_many,
    is_nonfinite,
    segment_parameters,
)
from gradsight_server.store.extents import AttemptKey
from gradsight_server.store.models import NUMERIC_COLUMNS, buckets, steps
from gradsight_server.store.prepared import Prepared
from gradsight_server.store.rollup import Piece
from gradsight_server.store.views import View

COUNTS = ("num_steps", "num_skipped", "num_clipped")
TINY = 1e-290
"""Taken for zero in means: PostgreSQL refuses a product that underflows, and a sum that overflows. So every part of a
mean is weighted before it is added up."""

_BUCKET_STEPS = bindparam("bucket_steps", type_=BigInteger)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ColumnSeries:
    """A column over its finite values, NaN where there are none; and how many values were not finite."""

    min: Floats
    max: Floats
    mean: Floats
    num_nonfinite: Integers


@dataclass(frozen=True, slots=True)
class Series:
    """Columns of a stream by step; `bucket_steps` 1 means exact steps."""

    stream: str
    attempt: int | None
    bucket_steps: int
    step: Integers
    last_step: Integers
    columns: dict[str, ColumnSeries]
    num_steps: Integers
    num_skipped: Integers
    num_clipped: Integers


def series(
    conn: Connection,
    run_id: str,
    *,
    columns: Sequence[str],
    stream: str = "main",
    attempt: int | None = None,
    first_step: int | None = None,
    last_step: int | None = None,
    points: int = 1000,
) -> Series:
    """The columns between two steps, both included, in at most `points` points.

    Args:
        attempt: the number of one attempt, shown whole; None shows at each step the attempt that started last.

    Raises:
        RunNotFoundError, StreamNotFoundError, InvalidRequestError
    """
    check_columns(columns)
    views.check_points(points)
    shown = views.show(conn, run_id, stream, attempt=attempt, first_step=first_step, last_step=last_step)
    return read(conn, views.choose(conn, shown, points=points), columns, stream=stream, attempt=attempt)


def check_columns(columns: Sequence[str]) -> None:
    """
    Raises:
        InvalidRequestError: lists the columns there are.
    """
    for name in columns:
        if name not in NUMERIC_COLUMNS:
            raise InvalidRequestError(f"columns must be among {', '.join(NUMERIC_COLUMNS)}, got {name!r}.")


def read(conn: Connection, view: View, columns: Sequence[str], *, stream: str, attempt: int | None) -> Series:
    """The columns as the view shows them."""
    asked = tuple(dict.fromkeys(columns))
    rows = [row for key, piece in view.pieces() for row in _read_piece(conn, key, piece, view, asked)]
    names = _names(asked)
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(names))  # NULL becomes NaN
    found = _merged(dict(zip(names, table.T, strict=True)), view.bucket_steps)
    return Series(
        stream=stream,
        attempt=attempt,
        bucket_steps=view.bucket_steps,
        columns={name: _column(found, name, view.bucket_steps) for name in asked},
        **{name: found[name].astype(np.int64) for name in ("step", "last_step", *COUNTS)},
    )


def _names(columns: Sequence[str]) -> list[str]:
    kinds = ("count", "min", "max", "part", "num_nonfinite")
    return ["step", "last_step", *COUNTS, *(f"{name}.{kind}" for name in columns for kind in kinds)]


def _read_piece(
    conn: Connection, key: AttemptKey, piece: Piece, view: View, columns: tuple[str, ...]
) -> list[tuple[Any, ...]]:
    """A row for each of the view's buckets, by rising step."""
    size = view.bucket_steps
    if piece.level == 0:
        asked = segment_parameters(*key, piece.first, piece.last) | {"bucket_steps": size}
        return _of_steps(columns).rows(conn, asked)
    run_id, stream_key, attempt_key = key
    asked = {
        "of_run": run_id,
        "of_stream": stream_key,
        "of_attempt": attempt_key,
        "at_level": piece.level,
        "first_bucket": piece.first,
        "last_bucket": piece.last,
        "bucket_steps": size,
        "factor": size // rollup.bucket_size(piece.level),
    }
    return _of_buckets(columns).rows(conn, asked)


@lru_cache(maxsize=256)
def _of_steps(columns: tuple[str, ...]) -> Prepared:
    selected: list[ColumnElement[Any]] = [
        func.min(steps.c.step),
        func.max(steps.c.step),
        func.count(),
        how_many(IS_SKIPPED),
        how_many(IS_CLIPPED),
    ]
    for name in columns:
        column = steps.c[name]
        selected += [
            func.count(column),
            func.min(column),
            func.max(column),
            _part(column, 1),
            how_many(is_nonfinite(name)),
        ]
    bucket = steps.c.step // _BUCKET_STEPS
    return Prepared(select(*selected).where(bound_segment(steps)).group_by(bucket))


@lru_cache(maxsize=256)
def _of_buckets(columns: tuple[str, ...]) -> Prepared:
    selected: list[ColumnElement[Any]] = [
        func.min(buckets.c.first_step),
        func.max(buckets.c.last_step),
        *(func.sum(buckets.c[name]) for name in COUNTS),
    ]
    for name in columns:
        of = {kind: buckets.c[f"{name}_{kind}"] for kind in ("count", "min", "max", "mean")}
        odd = buckets.c.get(f"{name}_num_nonfinite")
        selected += [func.sum(of["count"]), func.min(of["min"]), func.max(of["max"]), _part(of["mean"], of["count"])]
        selected.append(func.sum(odd) if odd is not None else literal(0))
    where = (
        buckets.c.run_id == bindparam("of_run"),
        buckets.c.stream_key == bindparam("of_stream"),
        buckets.c.attempt_key == bindparam("of_attempt"),
        buckets.c.level == bindparam("at_level"),
        buckets.c.bucket.between(bindparam("first_bucket"), bindparam("last_bucket")),
    )
    bucket = buckets.c.bucket // bindparam("factor", type_=BigInteger)
    return Prepared(select(*selected).where(*where).group_by(bucket))


def _part(mean: ColumnElement[float], count: Any) -> ColumnElement[float]:
    """What a bucket's values add to the mean of a whole one, were it full."""
    weight = cast(count, Double) / _BUCKET_STEPS
    return func.sum(case((func.abs(mean) < TINY, 0.0), else_=mean * weight))


def _merged(table: dict[str, Floats], bucket_steps: int) -> dict[str, Floats]:
    """One row per bucket by rising step, where pieces or attempts share one."""
    bucket = table["step"] // bucket_steps
    if (np.diff(bucket) < 0).any():  # an engine groups in any order it likes
        order = np.argsort(bucket, kind="stable")
        bucket, table = bucket[order], {name: values[order] for name, values in table.items()}
    starts = rollup.starts_of(bucket)
    if len(starts) == len(bucket):
        return table
    merge = {"step": np.fmin, "min": np.fmin, "last_step": np.fmax, "max": np.fmax}
    merged = {}
    for name, values in table.items():
        kind = name.rpartition(".")[2]
        whole = np.nan_to_num(values) if kind == "part" else values
        merged[name] = merge.get(kind, np.add).reduceat(whole, starts)
    return merged


def _column(table: dict[str, Floats], name: str, bucket_steps: int) -> ColumnSeries:
    low, high = table[f"{name}.min"], table[f"{name}.max"]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mean = table[f"{name}.part"] / (table[f"{name}.count"] / bucket_steps)
    return ColumnSeries(
        min=low,
        max=high,
        mean=np.clip(mean, low, high),  # rounding strays
        num_nonfinite=table[f"{name}.num_nonfinite"].astype(np.int64),
    )
