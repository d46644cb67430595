# ruff: noqa: E501  (the lines of a log are as long as they are)
"""The `log_stats` that BEiT, MAE (main_pretrain.py), DINO (main_dino.py) and DETR (main.py) write to log.txt."""

import math

from gradsight_server.importers.formats.epoch_json import FORMAT
from tests.server.importers.formats.reading import read

LOG = """
{"train_lr": 1e-05, "train_loss": 6.5, "train_loss_scale": 65536.0, "train_grad_norm": NaN, "test_loss": 6.0, "epoch": 0}
{"train_lr": 2e-05, "train_loss": 6.25, "train_loss_scale": 65536.0, "train_grad_norm": 0.5, "epoch": 1, "n_parameters": 9}
{"train_lr": 2e-05, "train_loss": 6.2, "tra
"""


def test_an_epoch_is_a_point_without_a_step() -> None:
    got = read(FORMAT, LOG)
    assert [(point.step, point.epoch) for point in got.points] == [(None, 0), (None, 1)]
    assert math.isnan(got.points[0].values["grad_norm_before_clip"])
    assert got.points[1].values == {"lr": 2e-5, "loss": 6.25, "loss_scale": 65536.0, "grad_norm_before_clip": 0.5}
    assert got.points[0].metrics == {"test_loss": 6.0}


def test_means_of_epochs_are_said_to_be_so() -> None:
    assert all(meaning.is_per_epoch for meaning in read(FORMAT, LOG).meanings.values())
    assert "grad_norm_before_clip" in read(FORMAT, LOG).meanings


def test_a_cut_line_is_told() -> None:
    assert [unread.line for unread in read(FORMAT, LOG).unread] == [3]
