"""A training log as the diagnosis takes it: JSON lines or CSV with `step`, `loss`, `grad_norm` and our own columns.

Every other format is for the importers. A `grad_norm` is taken as before clipping, an empty cell as not recorded.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gradsight import wire
from gradsight_server.diagnosis import Context, MetricSeries, StreamSteps
from gradsight_server.errors import NothingToReadError
from gradsight_server.log_rows import Row, read_rows

ALIASES = {"grad_norm": "grad_norm_before_clip"}
NUMBERS = (*wire.FLOAT_COLUMNS, "skipped", *wire.INTEGER_COLUMNS)
KNOWN = (*NUMBERS, *wire.TEXT_COLUMNS)
MAX_METRICS = 32
NOT_RECORDED = frozenset({"", "-", "null", "none", "n/a"})
YES_AND_NO = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
MAX_SHOWN = 8

_WRAPPED = re.compile(r"(?:tensor|(?:np|numpy)\.\w+)\((.+?)(?:, .*)?\)")
_THOUSANDS = re.compile(r"([\d.]+)([kKmM])")


@dataclass(frozen=True, slots=True)
class Log:
    """A log's steps in the order of the file, and what of it could not be read, in a sentence each."""

    steps: StreamSteps
    context: Context
    notes: tuple[str, ...]


def read_log(path: Path, *, max_norm: float | None = None) -> Log:
    """The steps in a file.

    Args:
        max_norm: The threshold that was in force, for a log that does not tell.

    Raises:
        NothingToReadError: there is no such file, or no step in it.
    """
    rows, notes = read_rows(path)
    rows = [{ALIASES.get(name, name): value for name, value in row.items() if not _is_twice(name, row)} for row in rows]
    rows = [row for row in rows if any(_is_recorded(row.get(name)) for name in KNOWN)] or _refuse(path, rows)
    ranks = [int(number(row.get("rank")) or 0) for row in rows]
    lowest = min(ranks)
    mine = list(_joined([row for row, rank in zip(rows, ranks, strict=True) if rank == lowest]))
    step = _steps(mine)
    columns: dict[str, Any] = {name: values for name in KNOWN if (values := _column(name, mine)) is not None}
    if max_norm is not None:
        columns["max_norm"] = [max_norm] * len(mine)
    others = [(rank, row) for row, rank in zip(rows, ranks, strict=True) if rank != lowest]
    context = Context(metrics=_metrics(mine, step), rank_norms=_rank_norms(others, step))
    return Log(StreamSteps.of(step, **columns), context, (*notes, *_odd_cells(mine)))


def number(value: Any) -> float | None:
    """A cell's number; None where nothing was recorded, or nothing that is a number."""
    if value is None or isinstance(value, list | dict):
        return None
    if isinstance(value, str):
        text = value.strip().lower()
        wrapped = _WRAPPED.fullmatch(text)
        text = wrapped[1] if wrapped else text
        if text in NOT_RECORDED:
            return None
        value = YES_AND_NO.get(text, text)
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:  # an integer beyond all floats
        return np.inf if value > 0 else -np.inf


def _is_twice(name: str, row: Row) -> bool:
    """Another's name for a column that the row has by our own."""
    return name in ALIASES and ALIASES[name] in row


def _is_recorded(value: Any) -> bool:
    return not (value is None or (isinstance(value, str) and value.strip().lower() in NOT_RECORDED))


def _refuse(path: Path, rows: Sequence[Row]) -> list[Row]:
    names = list(dict.fromkeys(name for row in rows for name in row if isinstance(name, str)))
    shown = ", ".join(names[:MAX_SHOWN]) + (", …" if len(names) > MAX_SHOWN else "")
    raise NothingToReadError(
        f"{str(path)!r} has no step with a loss, a grad_norm or another column we know; "
        f"it has {shown or 'no columns at all'}."
    )


def _joined(rows: Sequence[Row]) -> Iterator[Row]:
    """Neighbours of one step that tell different things of it become one: some logs put the loss on a row of its own.

    Two rows of one step that tell the same are two steps of a log that rounds.
    """
    open_row: Row | None = None
    for row in rows:
        told = {name for name in row if name != "step" and _is_recorded(row[name])}
        if open_row is not None:
            before = {name for name in open_row if name != "step" and _is_recorded(open_row[name])}
            if "step" in row and row["step"] == open_row.get("step") and not told & before & set(KNOWN):
                open_row = open_row | {name: row[name] for name in told}
                continue
            yield open_row
        open_row = row
    if open_row is not None:
        yield open_row


def _steps(rows: Sequence[Row]) -> list[int]:
    """Step numbers as they stand there; a row without one comes one after the row before."""
    steps: list[int] = []
    for row in rows:
        value = row.get("step")
        match = _THOUSANDS.fullmatch(value.strip()) if isinstance(value, str) else None
        found = number(match[1]) if match else number(value)
        if match and found is not None:
            found *= 1e3 if match[2] in "kK" else 1e6
        is_step = found is not None and 0 <= found <= wire.MAX_STEP
        steps.append(int(found) if is_step and found is not None else (steps[-1] + 1 if steps else 0))
    return steps


def _column(name: str, rows: Sequence[Row]) -> list[Any] | None:
    cells = [row.get(name) for row in rows]
    if not any(_is_recorded(cell) for cell in cells):
        return None
    if name in wire.TEXT_COLUMNS:
        return [str(cell) if _is_recorded(cell) else None for cell in cells]
    return [number(cell) for cell in cells]


def _odd_cells(rows: Sequence[Row]) -> Iterator[str]:
    for name in NUMBERS:
        odd = [cell for row in rows if _is_recorded(cell := row.get(name)) and number(cell) is None]
        if odd:
            shown = repr(odd[0])
            shown = shown if len(shown) <= 60 else shown[:57] + "…"
            yield f"{len(odd)} values of {name} are not numbers and count as not recorded, the first is {shown}."


def _metrics(rows: Sequence[Row], step: Sequence[int]) -> dict[str, MetricSeries]:
    """Columns that aren't ours: one of them may be a validation loss."""
    names = [
        name for name in dict.fromkeys(name for row in rows for name in row) if name not in (*KNOWN, "step", "rank")
    ]
    found = {}
    for name in names[:MAX_METRICS]:
        pairs = [
            (at, value) for at, row in zip(step, rows, strict=True) if (value := number(row.get(name))) is not None
        ]
        if pairs:
            found[str(name)] = MetricSeries(np.array([at for at, _ in pairs]), np.array([value for _, value in pairs]))
    return found


def _rank_norms(others: Sequence[tuple[int, Row]], step: Sequence[int]) -> dict[int, Any]:
    place = {number_of_step: i for i, number_of_step in enumerate(step)}
    found: dict[int, Any] = {}
    for rank, row in others:
        at, norm = number(row.get("step")), number(row.get("grad_norm_before_clip"))
        if at is not None and norm is not None and at in place:
            found.setdefault(rank, np.full(len(step), np.nan))[place[int(at)]] = norm
    return found
