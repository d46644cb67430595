# ruff: noqa: E501  (the lines of a log are as long as they are)
"""ESPnet 202402 after SubReporter.log_message (espnet2/train/reporter.py) and Trainer.train_one_epoch
(espnet2/train/trainer.py)."""

import math

from gradsight_server.importers.formats.espnet2 import FORMAT
from tests.server.importers.formats.reading import read

LOG = """
grad_clip: 5.0
accum_grad: 2
[gpu1] 2024-01-01 10:00:00,000 (trainer:762) INFO: 1epoch:train:1-50batch: iter_time=1.0e-04, forward_time=0.110, loss_ctc=80.5, loss=65.129, acc=0.065, backward_time=0.086, grad_norm=54.5, clip=100.000, loss_scale=6.554e+04, optim_step_time=0.04, optim0_lr0=1.485e-05, train_time=0.624
[gpu1] 2024-01-01 10:00:01,000 (trainer:681) WARNING: The grad norm is nan. Skipping updating the model.
[gpu1] 2024-01-01 10:00:02,000 (trainer:681) WARNING: The grad norm is inf. Skipping updating the model.
[gpu1] 2024-01-01 10:00:30,000 (trainer:762) INFO: 1epoch:train:51-100batch: loss=60.0, grad_norm=40.25, clip=96.000, loss_scale=3.277e+04, optim0_lr0=2.0e-05, train_time=0.6
[gpu1] 2024-01-01 10:01:00,000 (trainer:357) INFO: 1epoch results: [train] loss=61.0, grad_norm=44.0, clip=97.0, train_time=0.6, time=1 minute, total_count=110, gpu_max_cached_mem_GB=4.0, [valid] loss=59.0, total_count=10
[gpu1] 2024-01-01 10:02:00,000 (trainer:762) INFO: 2epoch:train:1-50batch: loss=55.0, grad_norm=38.0, clip=90.000, loss_scale=3.277e+04, optim0_lr0=3.0e-05, train_time=0.6
"""


SKIP = "[host] 2024-05-01 10:00:00,100 (trainer:1) WARNING: The grad norm is nan. Skipping updating the model.\n"


def test_lines_are_points_and_results_of_an_epoch_only_count() -> None:
    got = read(FORMAT, LOG)
    lines = [point for point in got.points if "loss" in point.values]
    assert [point.step for point in lines] == [50, 100, 160]
    assert lines[0].values == {
        "loss": 65.129,
        "grad_norm_before_clip": 54.5,
        "loss_scale": 65540,
        "lr": 1.485e-5,
        "step_time_s": 0.624,
    }
    assert lines[0].metrics == {"loss_ctc": 80.5, "clip": 100}


def test_warnings_are_skipped_steps_between_the_lines() -> None:
    skipped = [point for point in read(FORMAT, LOG).points if point.values.get("skipped")]
    assert [point.step for point in skipped] == [52, 53], "1 and 2 of the 30 s that 50 batches took"
    assert math.isnan(skipped[0].values["grad_norm_before_clip"])
    assert skipped[1].values["grad_norm_before_clip"] == math.inf


def test_numbers_are_means_over_the_batches_and_clip_is_a_percentage() -> None:
    meanings = read(FORMAT, LOG).meanings
    assert meanings["grad_norm_before_clip"].averaged_over_steps == 50
    assert "percentage" in meanings["clip"].remark


def test_configuration_is_settings() -> None:
    assert read(FORMAT, LOG).settings == {"max_norm": 5.0, "accumulation_steps": 2.0}


def test_without_results_an_epoch_goes_on_from_the_last_line() -> None:
    assert read(FORMAT, "1epoch:train:1-90batch: loss=2.0\n2epoch:train:1-90batch: loss=1.0").steps == [90, 180]


def test_a_cut_line_is_told() -> None:
    assert [unread.line for unread in read(FORMAT, "3epoch:train:1-90batch: iter_ti").unread] == [1]


def test_a_line_tells_of_how_many_batches_the_skipped_ones_are() -> None:
    points = read(FORMAT, f"{SKIP}{SKIP}2epoch:train:101-300batch: loss=2.0, train_time=0.5").points
    assert [point.step for point in points] == list(range(101, 301))
    assert sum(point.values.get("skipped", 0.0) for point in points) == 2
