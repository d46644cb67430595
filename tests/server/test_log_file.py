"""Logs in every odd shape: what is there is read, what isn't is not made up, and nothing raises but one clear error."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradsight_server.errors import NothingToReadError
from gradsight_server.log_file import Log, number, read_log


def read(folder: Path, content: str | bytes | Sequence[Any], *, max_norm: float | None = None) -> Log:
    path = folder / "log"
    if not isinstance(content, str | bytes):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_log(path, max_norm=max_norm)


def norms(log: Log) -> list[float | None]:
    """None where not recorded."""
    column = log.steps.grad_norm_before_clip
    assert column is not None
    return [value if there else None for value, there in zip(column.values.tolist(), column.recorded, strict=True)]


def test_json_lines_and_csv_say_the_same(tmp_path: Path) -> None:
    rows = [{"step": 5, "loss": 1.5, "grad_norm": 2.0}, {"step": 10, "loss": 1.25, "grad_norm": None}]
    table = "step,loss,grad_norm\n5,1.5,2.0\n10,1.25,\n"
    for content in (rows, table, "﻿" + table, table.replace(",", ";"), table.replace(",", "\t").replace("\n", "\r\n"),
                    json.dumps(rows), "\n\n" + table):  # fmt: skip
        log = read(tmp_path, content)
        assert log.steps.step.tolist() == [5, 10]
        assert norms(log) == [2.0, None], "an empty cell is not a zero"
        assert log.steps.loss is not None
        assert log.steps.loss.values.tolist() == [1.5, 1.25]
        assert log.notes == ()


def test_our_own_columns_are_taken_by_their_names(tmp_path: Path) -> None:
    row = {
        "step": 0,
        "grad_norm_before_clip": "Infinity",
        "grad_norm": 1.0,
        "max_norm": 1.0,
        "loss_scale": 1024,
        "skipped": "true",
        "skip_reason": "overflow",
        "first_nonfinite_layer": "head",
        "num_nonfinite_layers": 2,
    }
    steps = read(tmp_path, [row]).steps
    assert steps.grad_norm_before_clip is not None
    assert steps.grad_norm_before_clip.values.tolist() == [np.inf], "ours goes before another's"
    assert steps.skipped is not None
    assert steps.skipped.values.tolist() == [1.0]
    assert (steps.skip_reason, steps.first_nonfinite_layer) == (("overflow",), ("head",))


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        (1, 1.0), (" 2.5 ", 2.5), ("1e-3", 1e-3), (True, 1.0), ("False", 0.0), ("tensor(1091.0826)", 1091.0826),
        ("tensor(3.5, device='cuda:0')", 3.5), ("np.float64(2.0)", 2.0), (10**400, np.inf), (-(10**400), -np.inf),
        ("", None), (None, None), ("None", None), ("null", None), ("-", None), ("abc", None), ([1], None), ({}, None),
    ],
)  # fmt: skip
def test_cells(cell: Any, value: float | None) -> None:
    assert number(cell) == value


def test_nan_is_a_value(tmp_path: Path) -> None:
    assert np.isnan(number("nan") or 0.0)
    log = read(tmp_path, '{"step": 0, "grad_norm": NaN}\n{"step": 1, "grad_norm": "NaN"}\n{"step": 2, "loss": 1}\n')
    column = log.steps.grad_norm_before_clip
    assert column is not None
    assert column.nonfinite.tolist() == [True, True, False]


def test_loss_and_norm_on_rows_of_their_own_become_one_step(tmp_path: Path) -> None:
    rows = [{"step": 1, "loss": 2.0}, {"step": 1, "grad_norm": 3.0, "val_loss": 9.0}, {"step": 2, "loss": 1.0}]
    log = read(tmp_path, rows)
    assert log.steps.step.tolist() == [1, 2]
    assert norms(log) == [3.0, None]


def test_rounded_steps_stay_as_many_as_they_are(tmp_path: Path) -> None:
    rows = [{"step": text, "grad_norm": 1.0, "loss": 1.0} for text in ("800", "1K", "1K", "1K", "2.06e+04", 1.5)]
    assert read(tmp_path, rows).steps.step.tolist() == [800, 1000, 1000, 1000, 20600, 1]


def test_a_row_without_a_step_comes_after_the_one_before(tmp_path: Path) -> None:
    rows = [
        {"loss": 1.0},
        {"loss": 1.0},
        {"step": "x", "loss": 1.0},
        {"step": -4, "loss": 1},
        {"step": 2e300, "loss": 1},
    ]
    assert read(tmp_path, rows).steps.step.tolist() == [0, 1, 2, 3, 4]


def test_rows_that_say_nothing_are_no_steps(tmp_path: Path) -> None:
    rows = [
        {"step": 0, "loss": 1.0},
        {"step": 0, "eval_loss": 3.0},
        {"step": 1, "note": "hi"},
        {"step": 1, "loss": None},
    ]
    assert read(tmp_path, rows).steps.step.tolist() == [0]


def test_every_rank_in_one_log(tmp_path: Path) -> None:
    rows = [{"step": step, "rank": rank, "grad_norm": 2.0 + rank} for step in range(3) for rank in range(4)]
    log = read(tmp_path, rows)
    assert log.steps.step.tolist() == [0, 1, 2]
    assert norms(log) == [2.0, 2.0, 2.0]
    assert {rank: values.tolist() for rank, values in log.context.rank_norms.items()} == {
        1: [3.0] * 3, 2: [4.0] * 3, 3: [5.0] * 3,
    }  # fmt: skip


def test_other_columns_are_metrics(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": 1.0, "val_loss": step / 10 if step % 2 else None, "note": "x"} for step in range(6)]
    (name, metric), *rest = read(tmp_path, rows).context.metrics.items()
    assert (name, rest, metric.step.tolist()) == ("val_loss", [], [1, 3, 5])


def test_a_threshold_may_be_given(tmp_path: Path) -> None:
    steps = read(tmp_path, [{"step": 0, "grad_norm": 1.0}], max_norm=2.0).steps
    assert steps.max_norm is not None
    assert steps.max_norm.values.tolist() == [2.0]


def test_what_is_broken_is_said_and_the_rest_is_read(tmp_path: Path) -> None:
    content = '{"step": 0, "loss": 1.0}\nhello\n{"step": 1, "loss": "abc"}\n{"step": 2, "loss": 3.0, "gr'
    log = read(tmp_path, content)
    assert log.steps.step.tolist() == [0, 1]
    assert log.notes == (
        "2 of 4 lines are no JSON objects, the first is line 2.",
        "1 values of loss are not numbers and count as not recorded, the first is 'abc'.",
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"), ("  \n \n", "is empty"), ("step,loss\n", "no rows below"), ("hello world\n", "no rows"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is no text"), (b"\xff\xfe\x00s", "is no text"), ("{broken\n{also", "no line"),
        ("[1, 2, 3]", "no objects"), ('[{"step": 1}', "no whole JSON"), ("a,b\n1,2\n", "it has a, b"),
        ('{"foo": 1}\n', "it has foo"), ("{}\n", "no columns at all"), ('{"step": 1, "loss": null}\n', "step, loss"),
        ("[" * 100_000, "no whole JSON"), ('step\n"' + "x" * 2_000_000, "no CSV"),
    ],
)  # fmt: skip
def test_nothing_to_read_is_one_clear_line(tmp_path: Path, content: str | bytes, said: str) -> None:
    with pytest.raises(NothingToReadError) as raised:
        read(tmp_path, content)
    assert said in str(raised.value)
    assert str(tmp_path / "log") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_files_and_folders_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NothingToReadError, match="no file"):
        read_log(tmp_path / "nope")
    with pytest.raises(NothingToReadError, match="folder"):
        read_log(tmp_path)
