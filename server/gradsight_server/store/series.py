"""Series of a stream's columns: exact steps, or buckets in which no spike, NaN, skip or clip disappears."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, func, select

from gradsight import wire
from gradsight_server.errors import InvalidRequestError
from gradsight_server.store import views
from gradsight_server.store.expressions import IS_CLIPPED, IS_SKIPPED, bound_segment, how_many, is_nonfinite
from gradsight_server.store.models import steps

NUMERIC_COLUMNS = (*wire.FLOAT_COLUMNS, *wire.INTEGER_COLUMNS)
DOWN = 2.0**-60  # means are taken of scaled values: PostgreSQL refuses a sum that overflows
COUNTS = ("num_steps", "num_skipped", "num_clipped")

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
    for name in columns:
        if name not in NUMERIC_COLUMNS:
            raise InvalidRequestError(f"columns must be among {', '.join(NUMERIC_COLUMNS)}, got {name!r}.")
    view = views.choose(
        conn, steps, run_id, stream, attempt=attempt, first_step=first_step, last_step=last_step, points=points
    )
    table = _merged(_buckets(conn, view, columns), view.bucket_steps)
    return Series(
        stream=stream,
        attempt=attempt,
        bucket_steps=view.bucket_steps,
        columns={name: _column(table, name) for name in columns},
        **{name: table[name].astype(np.int64) for name in ("step", "last_step", *COUNTS)},
    )


def _buckets(conn: Connection, view: views.View, columns: Sequence[str]) -> dict[str, Floats]:
    """A row per segment and bucket, by rising step: the one place that decides where buckets are read from."""
    selected: dict[str, ColumnElement[Any]] = {
        "step": func.min(steps.c.step),
        "last_step": func.max(steps.c.step),
        "num_steps": func.count(),
        "num_skipped": how_many(IS_SKIPPED),
        "num_clipped": how_many(IS_CLIPPED),
    }
    for name in columns:
        selected[f"{name}.count"] = func.count(steps.c[name])
        selected[f"{name}.min"] = func.min(steps.c[name])
        selected[f"{name}.max"] = func.max(steps.c[name])
        selected[f"{name}.mean"] = func.avg(steps.c[name] * DOWN)
        selected[f"{name}.num_nonfinite"] = how_many(is_nonfinite(name))
    bucket = steps.c.step if view.bucket_steps == 1 else steps.c.step // view.bucket_steps
    query = select(*selected.values()).where(bound_segment(steps)).group_by(bucket).order_by(selected["step"])
    rows = [tuple(row) for segment in view.segments for row in conn.execute(query, segment.parameters)]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(selected))  # NULL becomes NaN
    return dict(zip(selected, table.T, strict=True))


def _merged(table: dict[str, Floats], bucket_steps: int) -> dict[str, Floats]:
    """One row per bucket, where two attempts share one."""
    starts = np.flatnonzero(np.diff(table["step"] // bucket_steps, prepend=-1))
    if len(starts) == len(table["step"]):
        return table
    merged = {}
    for name, values in table.items():
        kind = name.rpartition(".")[2]
        if kind == "mean":
            count = table[name.replace(".mean", ".count")]
            total = np.add.reduceat(np.where(count > 0, values * count, 0.0), starts)
            with np.errstate(invalid="ignore"):
                merged[name] = total / np.add.reduceat(count, starts)
        else:
            merge = {"step": np.fmin, "min": np.fmin, "last_step": np.fmax, "max": np.fmax}.get(kind, np.add)
            merged[name] = merge.reduceat(values, starts)
    return merged


def _column(table: dict[str, Floats], name: str) -> ColumnSeries:
    low, high = table[f"{name}.min"], table[f"{name}.max"]
    with np.errstate(over="ignore"):
        mean = table[f"{name}.mean"] / DOWN
    return ColumnSeries(
        min=low,
        max=high,
        mean=np.clip(mean, low, high),  # rounding strays
        num_nonfinite=table[f"{name}.num_nonfinite"].astype(np.int64),
    )
