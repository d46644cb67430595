"""Hugging Face `trainer_state.json`, and the checkpoint or output folder that holds it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.format import FileFormat, Options
from gradsight_server.importers.formats._tables import whole_objects
from gradsight_server.importers.items import Happened, Item, Meaning, Point, Setting, Unread
from gradsight_server.importers.names import column_of
from gradsight_server.importers.numbers import number
from gradsight_server.importers.opening import decoded, read_whole

STATE = "trainer_state.json"
NO_METRICS = frozenset({"step", "epoch", "num_input_tokens_seen", "total_flos"})
_HISTORY = re.compile(r'"log_history"\s*:\s*\[\s*')
_NUMBERS = re.compile(r'"(logging_steps|max_steps)"\s*:\s*(\d{1,15})\s*,')
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def _recognise(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return _state_in(path) is not None
    return head.lstrip()[:1] == b"{" and b'"log_history"' in head


def _state_in(folder: Path) -> Path | None:
    """The newest state: a checkpoint's is cut at its step, an output folder's own is written at the end."""
    if (folder / STATE).is_file():
        return folder / STATE
    checkpoints = [
        (int(match[1]), entry / STATE)
        for entry in folder.iterdir()
        if (match := _CHECKPOINT.fullmatch(entry.name)) and (entry / STATE).is_file()
    ]
    return max(checkpoints)[1] if checkpoints else None


def _read(path: Path, options: Options) -> Iterator[Item]:
    found = _state_in(path) if path.is_dir() else path
    assert found is not None, "recognised"
    text = decoded(read_whole(found))
    broken: Unread | None = None
    try:
        state = json.loads(text)
    except (ValueError, RecursionError) as error:
        state, broken = _of_cut(text, error)
        if not state["log_history"]:
            raise NothingToReadError(f"{str(found)!r} is no whole JSON: {error}.") from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise NothingToReadError(f"{str(found)!r}: log_history must be a list, got {type(history).__name__}.")
    yield from _meanings(state)
    for place, row in enumerate(history, 1):
        if not isinstance(row, dict):
            yield Unread(place, f"an entry of log_history must be an object, got {type(row).__name__}")
        else:
            yield from _items_of(place, row, options)
    if broken is not None:
        yield broken


def _of_cut(text: str, error: Exception) -> tuple[dict[str, Any], Unread]:
    """What is whole of a state that breaks off, and where it does."""
    state: dict[str, Any] = {"log_history": []}
    begin = _HISTORY.search(text)
    rows, at = whole_objects(text, begin.end()) if begin is not None else ([], 0)
    state["log_history"] = rows
    for name, value in _NUMBERS.findall(text[: begin.start()] + text[at:] if begin is not None else ""):
        state.setdefault(name, float(value))
    return state, Unread(text.count("\n", 0, at) + 1, f"the JSON breaks off after record {len(rows):,}: {error}")


def _meanings(state: dict[str, Any]) -> Iterator[Item]:
    every = number(state.get("logging_steps"))
    if every is not None and every > 1:
        yield Meaning("loss", "loss", averaged_over_steps=every)
    remark = "The Trainer leaves NaN and Inf out of the losses it logs unless logging_nan_inf_filter is off."
    yield Meaning("loss", "loss", averaged_over_steps=every if every and every > 1 else None, remark=remark)
    total = number(state.get("max_steps"))
    if total is not None and total > 0:
        yield Setting(0, "total_steps", total, "max_steps")


def _items_of(place: int, row: dict[str, Any], options: Options) -> Iterator[Item]:
    """A training row is a point; a row of an evaluation has metrics only; the row at the end sums the training up."""
    if "train_runtime" in row:
        return
    own = dict((theirs, ours) for ours, theirs in options.columns)
    point = Point(place, number(row.get("step")), epoch=number(row.get("epoch")))
    is_evaluation = any(name.startswith(("eval_", "test_")) for name in row)
    for name, value in row.items():
        found = number(value)
        if found is None or name in NO_METRICS:
            continue
        column = own.get(name) or (None if is_evaluation else column_of(name))
        if column is not None and column != "step":
            point.values[column] = found
        else:
            point.metrics[name] = found
    if point.values or point.metrics:
        yield point
    elif row.get("step") is None:
        yield Unread(place, "an entry of log_history without a number")
    else:
        message = ", ".join(f"{name}: {value}" for name, value in row.items() if name not in NO_METRICS)
        if message:
            yield Happened(place, "log", message[:200], step=point.step)


FORMAT = FileFormat(
    name="trainer_state",
    title="Hugging Face trainer_state.json",
    source="transformers 4.57, trainer_callback.py: TrainerState.save_to_json; trainer.py: _maybe_log_save_evaluate",
    recognise=_recognise,
    read=_read,
)
