"""Follows transformers 4.57: TrainerState.save_to_json writes what Trainer.log collected."""

import json
from pathlib import Path
from typing import Any

import pytest

from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.format import Options
from gradsight_server.importers.formats.hf_trainer_state import FORMAT
from gradsight_server.importers.items import Meaning, Point, Setting, Unread


def row(step: int, **values: Any) -> dict[str, Any]:
    return {"epoch": step / 100, "step": step, **values}


HISTORY = [
    row(10, loss=2.5, grad_norm=1.25, learning_rate=5e-5),
    row(20, loss=2.25, grad_norm=float("nan"), learning_rate=4e-5),
    row(20, eval_loss=2.375, eval_runtime=3.5),
    row(30, loss="2.125", grad_norm="0.75", learning_rate="3e-05"),
    row(30, train_runtime=12.0, train_loss=2.3, total_flos=1e12),
]


def written(folder: Path, history: list[Any] = HISTORY) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "trainer_state.json"
    file.write_text(
        json.dumps(
            {"best_metric": None, "global_step": 30, "log_history": history, "logging_steps": 10, "max_steps": 40}
        )
    )
    return file


def points(path: Path) -> list[Point]:
    return [item for item in FORMAT.read(path, Options()) if isinstance(item, Point)]


def test_training_rows_are_points_and_the_evaluation_is_a_metric(tmp_path: Path) -> None:
    found = points(written(tmp_path))
    assert [point.step for point in found] == [10, 20, 20, 30]
    assert found[0].values == {"loss": 2.5, "grad_norm_before_clip": 1.25, "lr": 5e-5}
    assert str(found[1].values["grad_norm_before_clip"]) == "nan"
    assert found[2].values == {}
    assert found[2].metrics["eval_loss"] == 2.375


def test_numbers_written_as_strings_are_numbers(tmp_path: Path) -> None:
    assert points(written(tmp_path))[3].values == {"loss": 2.125, "grad_norm_before_clip": 0.75, "lr": 3e-5}


def test_the_summary_at_the_end_is_no_point(tmp_path: Path) -> None:
    assert not any(
        "train_loss" in point.metrics or point.values.get("loss") == 2.3 for point in points(written(tmp_path))
    )


def test_the_loss_is_said_to_be_a_mean_and_the_end_of_the_run_is_known(tmp_path: Path) -> None:
    items = list(FORMAT.read(written(tmp_path), Options()))
    assert any(isinstance(item, Meaning) and item.column == "loss" and item.averaged_over_steps == 10 for item in items)
    assert any(isinstance(item, Setting) and (item.name, item.value) == ("total_steps", 40) for item in items)


def test_a_folder_is_its_own_state_or_its_newest_checkpoint(tmp_path: Path) -> None:
    for step in (9, 30, 100):
        written(tmp_path / f"checkpoint-{step}", [row(step, loss=1.0, grad_norm=0.5)])
    (tmp_path / "checkpoint-notes").mkdir()
    assert FORMAT.recognise(tmp_path, b"")
    assert [point.step for point in points(tmp_path)] == [100]
    assert [point.step for point in points(tmp_path / "checkpoint-9")] == [9]
    assert not FORMAT.recognise(tmp_path / "checkpoint-notes", b"")


def test_it_is_told_by_its_content(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert FORMAT.recognise(file, file.read_bytes())
    assert not FORMAT.recognise(file, b'{"loss": 1.0, "step": 2}\n{"loss": 1.0, "step": 3}\n')


@pytest.mark.parametrize("text", ['{"log_history": [{"step": 1, ', '{"log_history": {}}'])
def test_a_broken_file_is_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(NothingToReadError, match=r"is no whole JSON|log_history must be a list"):
        points(tmp_path / "s.json")


@pytest.mark.parametrize("indent", [None, 2])
def test_the_whole_records_of_a_state_that_breaks_off_are_read(tmp_path: Path, indent: int | None) -> None:
    state = {"logging_steps": 10, "best_metric": None, "log_history": HISTORY, "max_steps": 40}
    text = json.dumps(state, indent=indent)
    for cut, expected in ((text.index("eval_runtime"), 2), (text.index("max_steps"), 4), (len(text) - 2, 4)):
        (tmp_path / "s.json").write_text(text[:cut])
        items = list(FORMAT.read(tmp_path / "s.json", Options()))
        assert sum(isinstance(item, Point) for item in items) == expected
        (unread,) = [item for item in items if isinstance(item, Unread)]
        assert "the JSON breaks off after record" in unread.why
        assert any(isinstance(item, Meaning) and item.averaged_over_steps == 10 for item in items)


def test_an_entry_that_is_no_object_is_counted(tmp_path: Path) -> None:
    items = list(FORMAT.read(written(tmp_path, [*HISTORY, 7]), Options()))
    assert [item.line for item in items if isinstance(item, Unread)] == [6]
