# ruff: noqa: E501  (the lines of a log are as long as they are)
"""MetricLogger.log_every and SmoothedValue of BEiT (utils.py), DINO (utils.py), MAE and DETR (util/misc.py)."""

import math

from gradsight_server.importers.formats.metric_logger import FORMAT
from tests.server.importers.formats.reading import read

LOG = """
Namespace(accum_iter=2, clip_grad=3.0, epochs=10)
Epoch: [0]  [  0/400]  eta: 0:20:00  lr: 0.000001  min_lr: 0.000001  loss: 7.0000 (7.0000)  loss_scale: 65536.0000 (65536.0000)  weight_decay: 0.0500 (0.0500)  grad_norm: 1.2500 (1.2500)  time: 3.0000  data: 0.1  max mem: 900
Epoch: [2]  [ 10/400]  eta: 0:20:00  lr: 0.000010  min_lr: 0.000010  loss: 6.5000 (6.7500)  loss_scale: 16384.0000 (20000.0000)  weight_decay: 0.0500 (0.0500)  grad_norm: 0.7500 (nan)  time: 0.5000  data: 0.1  max mem: 900
Epoch: [2] Total time: 0:03:20 (0.5 s / it)
Averaged stats: lr: 0.000010  loss: 6.5000 (6.6000)  loss_scale: 16384.0000 (20000.0000)  grad_norm: 0.7500 (nan)
Test:  [ 0/20]  eta: 0:00:10  loss: 6.3 (6.3)  acc1: 0.1 (0.1)  time: 0.5  data: 0.1  max mem: 900
Epoch: [2/9]  [ 20/400]  eta: 0:20:00  lr: 0.0002  class_error: 90.00  grad_norm: 35.20  loss: 40.5000 (41.0000)  loss_ce: 1.5 (1.6)  time: 0.5  data: 0.1  max mem: 900
"""


def test_values_before_the_brackets_are_points_and_averages_and_tests_are_not() -> None:
    got = read(FORMAT, LOG)
    assert got.steps == [0, 810, 820]
    assert got.points[1].values == {
        "lr": 1e-5,
        "loss": 6.5,
        "loss_scale": 16384.0,
        "grad_norm_before_clip": 0.75,
        "step_time_s": 0.5,
    }
    assert got.points[2].values["grad_norm_before_clip"] == 35.2
    assert got.points[2].metrics == {"loss_ce": 1.5}


def test_that_they_are_medians_and_that_a_mean_is_poisoned_is_said() -> None:
    got = read(FORMAT, LOG)
    assert got.meanings["grad_norm_before_clip"].averaged_over_steps == 20
    assert "median" in got.meanings["grad_norm_before_clip"].remark
    assert [(happened.kind, happened.step) for happened in got.happened] == [("mean_not_finite", 810)]


def test_arguments_are_settings() -> None:
    assert read(FORMAT, LOG).settings == {"accumulation_steps": 2.0, "max_norm": 3.0}


def test_not_finite_values_are_kept() -> None:
    got = read(FORMAT, "Epoch: [0]  [1/9]  eta: 0:00:00  loss: nan (nan)  grad_norm: inf (inf)  time: 0.5")
    assert math.isnan(got.points[0].values["loss"])
    assert got.points[0].values["grad_norm_before_clip"] == math.inf


def test_a_cut_line_is_told() -> None:
    assert [unread.line for unread in read(FORMAT, "Epoch: [0]  [ 10/400]  eta: 0:2").unread] == [1]
