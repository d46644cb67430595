"""Follows tensorboard 2.21 and torch.utils.tensorboard's SummaryWriter, which writes the inputs here."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from gradsight_server.importers.format import Options
from gradsight_server.importers.formats.tensorboard import FORMAT
from gradsight_server.importers.items import Point, Restart, Unread


def write(folder: Path, tags: Sequence[str], steps: Sequence[int], *, suffix: str = "") -> None:
    with SummaryWriter(folder, filename_suffix=suffix) as writer:
        for step in steps:
            for i, tag in enumerate(tags):
                writer.add_scalar(tag, step + i / 8, step)


def points(path: Path, options: Options | None = None) -> list[Point]:
    return [item for item in FORMAT.read(path, options or Options()) if isinstance(item, Point)]


def test_scalars_of_one_step_are_one_point(tmp_path: Path) -> None:
    write(tmp_path, ["train/loss", "train/grad_norm", "lr", "val/loss"], [0, 10, 20])
    found = points(tmp_path)
    assert [point.step for point in found] == [0, 10, 20]
    assert found[1].values == {"loss": 10.0, "grad_norm_before_clip": 10.125, "lr": 10.25}
    assert found[1].metrics == {"val/loss": 10.375}


def test_scalars_against_samples_are_no_second_copy(tmp_path: Path) -> None:
    write(tmp_path, ["grad-norm", "grad-norm vs samples", "loss-scale", "loss-scale vs samples"], [1, 2])
    found = points(tmp_path)
    assert [point.values for point in found] == [
        {"grad_norm_before_clip": 1.0, "loss_scale": 1.25},
        {"grad_norm_before_clip": 2.0, "loss_scale": 2.25},
    ]
    assert found[0].metrics == {}


def test_norms_of_layers_are_layers_and_the_total_is_the_norm(tmp_path: Path) -> None:
    write(tmp_path, ["grad_2.0_norm/fc.weight", "grad_2.0_norm/fc.bias", "grad_2.0_norm_total"], [3])
    (point,) = points(tmp_path)
    assert point.values == {"grad_norm_before_clip": 3.25}
    assert point.layer_norms == {"fc.weight": 3.0, "fc.bias": 3.125}


def test_configuration_as_text_is_no_number(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_text("config", "max_grad_norm: 1.0", 0)
        writer.add_scalar("grad_norm", 0.5, 0)
    (point,) = points(tmp_path)
    assert (point.values, point.metrics) == ({"grad_norm_before_clip": 0.5}, {})


def test_a_second_file_in_the_folder_is_another_launch(tmp_path: Path) -> None:
    write(tmp_path, ["grad_norm"], [0, 1, 2], suffix=".a")
    write(tmp_path, ["grad_norm"], [1, 2, 3], suffix=".b")
    items = list(FORMAT.read(tmp_path, Options()))
    assert [item.step if isinstance(item, Point) else "restart" for item in items] == [0, 1, 2, "restart", 1, 2, 3]
    assert sum(isinstance(item, Restart) for item in items) == 1


def test_a_cut_file_gives_what_is_whole(tmp_path: Path) -> None:
    write(tmp_path, ["grad_norm"], range(20))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-11])
    assert [point.step for point in points(tmp_path)] == list(range(19))


def test_a_damaged_file_is_said_to_be(tmp_path: Path) -> None:
    write(tmp_path, ["grad_norm"], range(20))
    (file,) = tmp_path.iterdir()
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    file.write_bytes(whole)
    items = list(FORMAT.read(file, Options()))
    assert any(isinstance(item, Unread) and "damaged" in item.why for item in items)
    assert 0 < sum(isinstance(item, Point) for item in items) < 20


def test_it_is_told_by_its_content(tmp_path: Path) -> None:
    write(tmp_path / "run", ["grad_norm"], [0])
    (file,) = (tmp_path / "run").iterdir()
    renamed = file.rename(tmp_path / "run" / "anything.log")
    assert FORMAT.recognise(renamed, renamed.read_bytes())
    assert FORMAT.recognise(tmp_path / "run", b"")
    assert not FORMAT.recognise(tmp_path, b"")
    assert not FORMAT.recognise(renamed, b"step,grad_norm\n")


@pytest.mark.parametrize("tag", ["debug/n", "my norm"])
def test_a_mapped_tag_is_the_norm(tmp_path: Path, tag: str) -> None:
    write(tmp_path, [tag, "grad_norm"], [4])
    (point,) = points(tmp_path, Options(columns=(("grad_norm_before_clip", tag),)))
    assert point.values == {"grad_norm_before_clip": 4.0}
    assert point.metrics == {"grad_norm": 4.125}
