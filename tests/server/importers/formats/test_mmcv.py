# ruff: noqa: E501  (the lines of a log are as long as they are)
"""mmcv 1.7's TextLoggerHook (runner/hooks/logger/text.py) and mmengine 0.10's LogProcessor (runner/log_processor.py) and
LocalVisBackend (visualization/vis_backend.py)."""

import math
from pathlib import Path

from gradsight_server.importers.formats.mmcv import FORMAT
from tests.server.importers import kit
from tests.server.importers.formats.reading import read


def test_mmcv_text_counts_batches_within_an_epoch() -> None:
    got = read(
        FORMAT,
        """
optimizer_config = dict(grad_clip=dict(max_norm=12.5, norm_type=2))
2022-01-01 10:00:00,000 - mmdet - INFO - Epoch [1][50/300]\tlr: 1.000e-03, eta: 1 day, 0:00:00, time: 0.700, data_time: 0.002, memory: 900, loss_cls: 0.5, s0.loss_cls: 0.25, loss: 1.5000, grad_norm: 30.5000
2022-01-01 10:01:00,000 - mmdet - INFO - Epoch [1][100/300]\tlr: 1.000e-03, eta: 0:59:00, time: 0.700, data_time: 0.002, memory: 900, loss_cls: 0.5, loss: 1.4000, grad_norm: inf
2022-01-01 10:02:00,000 - mmdet - INFO - Epoch(val) [1][80]\tbbox_mAP: 0.1000
2022-01-01 10:03:00,000 - mmdet - INFO - Epoch [2][50/300]\tlr: 1.000e-03, eta: 0:50:00, time: 0.700, data_time: 0.002, memory: 900, loss: nan, grad_norm: nan
""",
    )
    assert got.steps == [50, 100, 350]
    assert got.points[0].values == {"lr": 1e-3, "step_time_s": 0.7, "loss": 1.5, "grad_norm_before_clip": 30.5}
    assert got.points[0].metrics == {"loss_cls": 0.5}
    assert got.points[1].values["grad_norm_before_clip"] == math.inf
    assert math.isnan(got.points[2].values["loss"])
    assert got.meanings["grad_norm_before_clip"].averaged_over_steps == 50
    assert got.settings == {"max_norm": 12.5}


def test_mmcv_text_may_count_iterations() -> None:
    got = read(
        FORMAT,
        "2022-01-01 10:00:00,000 - mmseg - INFO - Iter [50/800]\tlr: 1.0e-03, eta: 0:10:00, time: 0.7, loss: 1.5, grad_norm: 3.5",
    )
    assert got.steps == [50]
    assert got.settings == {"total_steps": 800}


def test_mmcv_json_is_read_and_its_epochs_counted_on() -> None:
    got = read(
        FORMAT,
        """
{"env_info": "sys.platform: linux", "config": "optimizer_config = dict(\\n    grad_clip=dict(max_norm=7, norm_type=2))", "seed": 1}
{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.001, "memory": 900, "data_time": 0.1, "loss": 1.5, "grad_norm": 3.5, "time": 0.7}
{"mode": "train", "epoch": 1, "iter": 100, "lr": 0.001, "memory": 900, "data_time": 0.1, "loss": 1.4, "grad_norm": NaN, "time": 0.7}
{"mode": "val", "epoch": 1, "iter": 80, "lr": 0.001, "bbox_mAP": 0.1}
{"mode": "train", "epoch": 2, "iter": 50, "lr": 0.001, "memory": 900, "data_time": 0.1, "loss": 1.3, "grad_norm": 3.0, "time": 0.7}
""",
    )
    assert got.steps == [50, 100, 150]
    assert math.isnan(got.points[1].values["grad_norm_before_clip"])
    assert got.settings == {"max_norm": 7}


def test_mmengine_lines_are_means_over_a_window() -> None:
    got = read(
        FORMAT,
        """
2024/01/01 10:00:00 - mmengine - INFO - Epoch(train)  [1][ 50/300]  lr: 1.0000e-03  eta: 0:10:00  time: 0.7000  data_time: 0.0100  memory: 900  grad_norm: 7.2500  loss: 1.5000  loss_cls: 0.5000
2024/01/01 10:01:00 - mmengine - INFO - Epoch(val) [1][80/80]    coco/bbox_mAP: 0.1000
2024/01/01 10:02:00 - mmengine - INFO - Iter(train) [   400/800]  base_lr: 1.0000e-03 lr: 1.0000e-03  eta: 0:10:00  time: 0.7000  data_time: 0.0100  memory: 900  grad_norm: 6.5  loss: 1.4000
{"lr": 0.001, "data_time": 0.1, "grad_norm": 5.5, "loss": 1.3, "loss_cls": 0.5, "time": 0.7, "epoch": 2, "iter": 450, "memory": 900, "step": 450}
{"coco/bbox_mAP": 0.1, "step": 2}
""",
    )
    assert got.steps == [50, 400, 450]
    assert got.column("grad_norm_before_clip") == [7.25, 6.5, 5.5]
    assert got.meanings["grad_norm_before_clip"].averaged_over_steps == 10
    assert "window_size" in got.meanings["grad_norm_before_clip"].remark


def test_no_clipping_and_another_launch_are_told() -> None:
    lines = "optimizer_config = dict(grad_clip=None)\nIter [50/800]\tlr: 1.0e-03, loss: 1.5\nEnvironment info:"
    got = read(FORMAT, lines)
    assert got.settings["max_norm"] is None
    assert [restart.line for restart in got.restarts] == [3]


def test_cut_lines_are_told() -> None:
    lines = 'Epoch [1][50/300]\tlr: \n{"mode": "train", "epoch": 1, "loss": 1.0'
    assert [unread.line for unread in read(FORMAT, lines).unread] == [1, 2]


def _launch(work_dir: str, first: int, length: int = 300) -> str:
    return "".join(
        [
            "2024-05-01 10:00:00,123 - mmdet - INFO - Environment info:\n",
            f"2024-05-01 10:00:01,123 - mmdet - INFO - Start running, host: a@b, work_dir: /home/a/{work_dir}\n",
            *(
                f"2024-05-01 10:00:02,123 - mmdet - INFO - Epoch [1][{i}/{length}]\tlr: 1.0e-03, grad_norm: 2.5, loss: 1.5\n"
                for i in range(first, first + 100, 10)
            ),
        ]
    )


def _runs_and_attempts(tmp_path: Path, text: str) -> list[tuple[int, int]]:
    return [(part.run, part.num_attempts) for part in kit.read(tmp_path, text).parts]


def test_another_work_dir_is_another_run_and_the_same_one_an_attempt(tmp_path: Path) -> None:
    assert _runs_and_attempts(tmp_path, _launch("one", 10) + _launch("one", 60)) == [(0, 2)]
    assert _runs_and_attempts(tmp_path, _launch("one", 10) + _launch("two", 60)) == [(0, 1), (1, 1)]
    assert _runs_and_attempts(tmp_path, _launch("one", 10) + _launch("two", 200)) == [(0, 1), (1, 1)]


def test_epochs_of_another_length_are_of_another_run_unless_a_launch_says_it_is_the_same(tmp_path: Path) -> None:
    assert _runs_and_attempts(tmp_path, _launch("one", 10) + _launch("one", 200, length=600)) == [(0, 2)]
    bare = _launch("one", 200, length=600).partition("Start")[2].partition("\n")[2]
    assert _runs_and_attempts(tmp_path, _launch("one", 10) + bare) == [(0, 1), (1, 1)]


def test_an_exponent_may_be_a_capital_e(tmp_path: Path) -> None:
    text = "".join(
        f'{{"mode": "train", "epoch": 1, "iter": {i}, "lr": 1E-04, "loss": 2.0, "grad_norm": 6.62E-01}}\n'
        for i in range(10, 40, 10)
    )
    part = kit.only_part(kit.read(tmp_path, text))
    assert kit.norms(part) == [0.662] * 3
    assert kit.column(part, "lr") == [1e-4] * 3
