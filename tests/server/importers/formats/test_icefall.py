# ruff: noqa: E501  (the lines of a log are as long as they are)
"""icefall 1.0 after `train_one_epoch` (egs/librispeech/ASR/zipformer/train.py) and ScaledAdam's `_get_clipping_scale`
(zipformer/optim.py); `global_batch_idx` after ZipVoice (zipvoice/bin/train_zipvoice.py)."""

import math
from pathlib import Path

from gradsight_server.diagnosis import diagnose
from gradsight_server.importers.formats.icefall import FORMAT
from tests.server.importers import kit
from tests.server.importers.formats.reading import read

LOG = """
2024-03-01 09:00:00,100 INFO [train.py:1064] (1/2) Epoch 1, batch 50, loss[loss=3.25, simple_loss=2.0, pruned_loss=4.0, over 900.00 frames. ], tot_loss[loss=3.5, simple_loss=2.1, pruned_loss=4.1, over 9000.00 frames. ], batch size: 20, lr: 2.50e-02, grad_scale: 4.0
2024-03-01 09:00:00,100 INFO [train.py:1064] (0/2) Epoch 1, batch 50, loss[loss=3.125, simple_loss=2.0, pruned_loss=4.0, over 900.00 frames. ], tot_loss[loss=3.5, simple_loss=2.1, pruned_loss=4.1, over 9000.00 frames. ], batch size: 20, lr: 2.50e-02, grad_scale: 4.0
2024-03-01 09:00:40,100 INFO [optim.py:487] (0/2) Clipping_scale=2.0, grad-norm quartiles 1.000e+01 2.000e+01 3.000e+01 4.000e+01 9.000e+01, threshold=6.000e+01, percent-clipped=1.0
2024-03-01 09:00:40,100 INFO [optim.py:487] (1/2) Clipping_scale=2.0, grad-norm quartiles 1.000e+01 2.000e+01 3.000e+01 4.000e+01 9.000e+01, threshold=6.000e+01, percent-clipped=1.0
2024-03-01 09:00:41,100 WARNING [optim.py:500] (1/2) Scaling gradients by 0.05, model_norm_threshold=60.0
2024-03-01 09:00:41,101 WARNING [optim.py:500] (0/2) Scaling gradients by 0.05, model_norm_threshold=60.0
2024-03-01 09:00:42,101 WARNING [optim.py:572] (0/2) Parameter dominating tot_sumsq encoder.weight with proportion 0.5, where dominant_sumsq=(grad_sumsq*orig_rms_sq)=1.0e+01, grad_sumsq=1.0e+02, orig_rms_sq=1.0e-01
2024-03-01 09:00:43,100 WARNING [optim.py:500] (0/2) Scaling gradients by 0.0, model_norm_threshold=60.0
2024-03-01 09:00:44,100 INFO [train.py:1096] (0/2) Epoch 1, validation: loss=2.5, simple_loss=1.5, over 500.00 frames.
2024-03-01 09:00:45,100 WARNING [train.py:1047] (0/2) Grad scale is small: 0.000244140625
2024-03-01 09:00:46,100 INFO [train.py:1064] (1/2) Epoch 1, batch 100, loss[loss=3.0, over 900.00 frames. ], tot_loss[loss=3.4, over 9000.00 frames. ], batch size: 20, lr: 2.40e-02, grad_scale: 0.000244140625
2024-03-01 09:01:46,100 INFO [train.py:1064] (1/2) Epoch 2, batch 0, loss[loss=2.9, over 900.00 frames. ], tot_loss[loss=2.9, over 900.00 frames. ], batch size: 20, lr: 2.30e-02,
"""


def test_batches_of_one_rank_are_points_and_epochs_are_counted_on() -> None:
    got = read(FORMAT, LOG)
    batches = [point for point in got.points if "loss" in point.values]
    assert [(point.step, point.values["loss"]) for point in batches] == [(50, 3.25), (100, 3.0), (101, 2.9)]
    assert [point.values.get("loss_scale") for point in batches] == [4.0, 0.000244140625, None]
    assert "counted on" in got.meanings["step"].remark


def test_quartiles_give_the_median_and_the_threshold_once_for_all_ranks() -> None:
    summed_up = [point for point in read(FORMAT, LOG).points if "percent-clipped" in point.metrics]
    assert [point.values for point in summed_up] == [{"grad_norm_before_clip": 30.0, "max_norm": 60.0}]
    assert summed_up[0].metrics == {"grad-norm min": 10.0, "grad-norm max": 90.0, "percent-clipped": 1.0}


def test_a_factor_tells_the_norm() -> None:
    scaled = [point.values for point in read(FORMAT, LOG).points if "clip_coef" in point.values]
    assert [values["grad_norm_before_clip"] for values in scaled] == [1200.0, math.inf]
    assert [values["max_norm"] for values in scaled] == [60.0, 60.0]


def test_that_norms_are_medians_is_said() -> None:
    assert "median" in read(FORMAT, LOG).meanings["grad_norm_before_clip"].remark


def test_a_small_scale_is_told() -> None:
    assert [happened.message for happened in read(FORMAT, LOG).happened] == ["Grad scale is small: 0.000244140625"]


def test_a_global_batch_index_is_the_step() -> None:
    line = "INFO [train_zipvoice.py:731] Epoch 3, batch 49, global_batch_idx: 450, batch size: 25, loss[loss=0.5, over 100.00 frames. ], tot_loss[loss=0.6, over 900.00 frames. ], cur_lr: 1.00e-04, grad_scale: 65536.0"
    got = read(FORMAT, line)
    assert got.steps == [450]
    assert got.points[0].values == {"lr": 1e-4, "loss_scale": 65536.0, "loss": 0.5}


def test_lines_cut_short_are_told() -> None:
    lines = "Epoch 1, batch 50, loss[los\ngrad-norm quartiles 1.0e+01 2.0e+01, threshold=6.0e+01, percent-clipped=1.0"
    assert [unread.line for unread in read(FORMAT, lines).unread] == [1, 2]


def test_a_step_scaled_by_zero_was_applied_and_is_no_skip(tmp_path: Path) -> None:
    batches = "".join(
        f"2024-03-01 09:00:43,100 INFO [train.py:1] Epoch 1, batch {i}, loss[loss=0.5, over 1.0 frames. ], lr: 1.00e-03, "
        f"grad_scale: {2.0 if i < 30 else 1.0}\n"
        for i in range(60)
    )
    zero = "2024-03-01 09:00:43,100 WARNING [optim.py:500] Scaling gradients by 0.0, model_norm_threshold=60.0\n"
    told = diagnose(kit.only_part(kit.read(tmp_path, batches + zero)).steps)
    assert told.nonfinite.num_steps == 1
    assert told.loss_scaling.num_skipped == 1  # where the scale fell


def test_a_tiny_scale_that_is_seen_only_once_has_collapsed(tmp_path: Path) -> None:
    batch = "2024-03-01 09:00:43,100 INFO [train.py:1] Epoch 1, batch 9, loss[loss=0.5, over 1.0 frames. ], lr: 1e-03, "
    told = diagnose(kit.only_part(kit.read(tmp_path, batch + "grad_scale: 6.1e-05\n")).steps)
    assert told.loss_scaling.verdict == "collapsed"
