"""Follows mlflow 3.6: FileStore writes each metric to a file of its own, `milliseconds value step` a line."""

from pathlib import Path

from gradsight_server.importers.format import Options
from gradsight_server.importers.formats.mlflow import FORMAT
from gradsight_server.importers.items import Point, Setting, Unread


def run_folder(root: Path) -> Path:
    for name, text in {
        "meta.yaml": "run_id: 0123\n",
        "metrics/train/grad_norm": "1700000000000 1.5 0\n1700000001000 nan 1\n1700000002000 2.5 2\n",
        "metrics/loss": "1700000000500 3.0 0\n1700000002500 2.0 2 data 0a1b\n1700000003500 Infinity 3\n",
        "metrics/val_loss": "1700000002600 2.25 2\n",
        "params/max_grad_norm": "1.0",
        "params/optimizer": "AdamW",
        "params/dropout": "0.1",
        "tags/mlflow.runName": "keen-owl-7",
    }.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_metrics_of_one_step_are_one_point(tmp_path: Path) -> None:
    found = [item for item in FORMAT.read(run_folder(tmp_path), Options()) if isinstance(item, Point)]
    assert [point.step for point in found] == [0, 1, 2, 3]
    assert found[0].values == {"grad_norm_before_clip": 1.5, "loss": 3.0}
    assert str(found[1].values["grad_norm_before_clip"]) == "nan"
    assert found[2].values == {"grad_norm_before_clip": 2.5, "loss": 2.0}
    assert found[2].metrics == {"val_loss": 2.25}
    assert found[3].values == {"loss": float("inf")}
    assert found[0].wall_time_s == 1700000000.5 or found[0].wall_time_s == 1700000000.0


def test_parameters_that_matter_are_settings(tmp_path: Path) -> None:
    settings = {
        item.name: item.value for item in FORMAT.read(run_folder(tmp_path), Options()) if isinstance(item, Setting)
    }
    assert settings == {"run_name": "keen-owl-7", "max_norm": 1.0, "optimizer": "AdamW"}


def test_a_broken_line_is_counted_with_its_number(tmp_path: Path) -> None:
    folder = run_folder(tmp_path)
    with (folder / "metrics/loss").open("a") as file:
        file.write("17000000")
    items = list(FORMAT.read(folder, Options()))
    assert [(item.line, "metrics/loss" in item.why) for item in items if isinstance(item, Unread)] == [(4, True)]
    assert sum(isinstance(item, Point) for item in items) == 4


def test_only_the_folder_of_one_run_is_one(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "0" / "abc")
    assert FORMAT.recognise(run, b"")
    assert not FORMAT.recognise(tmp_path, b"")
    assert not FORMAT.recognise(run / "metrics", b"")
