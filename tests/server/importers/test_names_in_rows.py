"""JSON lines whose rows tell a column by different names: no norm is lost, none replaced, whatever the white space."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.importers.kit import column, norms, only_part, read, steps

Rows = list[dict[str, Any]]


def spelled(rows: Rows, spacing: str) -> str:
    """As they come, or with other blanks in each second row, so that no two rows in a row are alike."""
    wide = json.JSONEncoder(separators=(",  ", ": "))
    return "".join(
        (json.dumps(row) if spacing == "even" or i % 2 else wide.encode(row)) + "\n" for i, row in enumerate(rows)
    )


@pytest.mark.parametrize("spacing", ["even", "odd", "document"])
@pytest.mark.parametrize("at", [0, 1, 30, 59])
def test_a_rare_row_with_a_better_name_takes_nothing_from_the_others(tmp_path: Path, spacing: str, at: int) -> None:
    rows: Rows = [{"step": i, "train_loss": 2.5, "grad_norm": 1.0 + i} for i in range(60)]
    rows[at + 1 : at + 1] = [{"step": at, "epoch": 1, "total_norm": 0.75, "loss": 9.0}]
    part = only_part(read(tmp_path, json.dumps(rows) if spacing == "document" else spelled(rows, spacing)))
    assert steps(part) == list(range(60))
    assert norms(part) == [1.0 + i for i in range(60)]
    assert column(part, "loss") == [2.5] * 60
    assert part.context.metrics["total_norm"].values.tolist() == [0.75]


@pytest.mark.parametrize("spacing", ["even", "odd"])
def test_a_name_that_changes_on_the_way_goes_on_as_the_norm(tmp_path: Path, spacing: str) -> None:
    rows: Rows = [{"step": i, "loss": 2.5, ("grad_norm", "total_norm")[30 <= i < 60]: 1.0 + i} for i in range(90)]
    part = only_part(read(tmp_path, spelled(rows, spacing)))
    assert norms(part) == [1.0 + i for i in range(90)]


@pytest.mark.parametrize("spacing", ["even", "odd"])
def test_a_mean_of_an_epoch_stands_in_for_no_step(tmp_path: Path, spacing: str) -> None:
    rows: Rows = [{"step": 10 * i, "train_loss_step": 2.5, "grad_norm": 1.0 + i} for i in range(1, 40)]
    rows[20:20] = [{"step": 205, "train_loss_epoch": 7.0, "actor/grad_norm": 3.0}]
    part = only_part(read(tmp_path, spelled(rows, spacing)))
    assert steps(part) == list(range(10, 400, 10))
    assert column(part, "loss") == [2.5] * 39
