"""What a row of `steps` says, as SQL and as numbers: clipped, skipped, and which values were not finite."""

import math
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, bindparam, case, func, or_

from gradsight import wire
from gradsight_server.store.models import (
    NAN,
    NEGATIVE_INFINITY,
    POSITIVE_INFINITY,
    nonfinite_shift,
    steps,
)

WORDS: dict[int, wire.NonFinite] = {NAN: "NaN", POSITIVE_INFINITY: "Infinity", NEGATIVE_INFINITY: "-Infinity"}

IS_CLIPPED = or_(steps.c.grad_norm_before_clip > steps.c.max_norm, steps.c.clipped_layer_fraction > 0)
IS_SKIPPED = steps.c.skipped.is_(True)


def nonfinite_bits(column: str) -> int:
    """The mask of a column's two bits in `nonfinite`; none for a column that is always finite."""
    return 3 << nonfinite_shift(column) if column in wire.FLOAT_COLUMNS else 0


def is_nonfinite(column: str) -> ColumnElement[bool]:
    """Whether the column's value was NaN or infinite."""
    return steps.c.nonfinite.bitwise_and(nonfinite_bits(column)) != 0


def how_many(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """How many rows of the group fulfil it; 0, not NULL, where there are none."""
    return func.coalesce(func.sum(as_int(condition)), 0)


def as_int(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """1 where it holds; 0 where it does not or nothing is known."""
    return case((condition, 1), else_=0)


def nonfinite_code(value: float) -> int:
    """The two bits that stand for a value; 0 for a finite one."""
    if math.isfinite(value):
        return 0
    return NAN if math.isnan(value) else POSITIVE_INFINITY if value > 0 else NEGATIVE_INFINITY


def nonfinite_words(mask: int) -> dict[str, wire.NonFinite]:
    """Column → its non-finite value, as a row's `nonfinite` has them."""
    codes = {name: mask >> nonfinite_shift(name) & 3 for name in wire.FLOAT_COLUMNS}
    return {name: WORDS[code] for name, code in codes.items() if code}


def bound_segment(table: Table, *, any_rank: bool = False) -> ColumnElement[bool]:
    """Rank 0's rows of one attempt at a stream, between two steps, both included.

    They are bound by `segment_parameters` when the statement runs, so that it is built once, not per call.
    """
    return and_(
        table.c.run_id == bindparam("segment_run_id"),
        table.c.stream_key == bindparam("segment_stream_key"),
        table.c.attempt_key == bindparam("segment_attempt_key"),
        table.c.step.between(bindparam("segment_first_step"), bindparam("segment_last_step")),
        *(() if any_rank else (table.c.rank == 0,)),
    )


def segment_parameters(
    run_id: str, stream_key: int, attempt_key: int, first_step: int = 0, last_step: int = wire.MAX_STEP
) -> dict[str, Any]:
    """What binds a `bound_segment`."""
    return {
        "segment_run_id": run_id,
        "segment_stream_key": stream_key,
        "segment_attempt_key": attempt_key,
        "segment_first_step": first_step,
        "segment_last_step": last_step,
    }
