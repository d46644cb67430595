# ruff: noqa: E501  (the lines of a log are as long as they are)
"""Megatron consoles, after `training_log` in Megatron-LM core 0.16 (megatron/training/training.py), in Megatron-LM 1.1
(megatron/training.py), in Megatron-DeepSpeed (megatron/training.py) and in GPT-NeoX 2.0 (megatron/logging.py), and the
arguments after `_print_args` (megatron/training/arguments.py)."""

import math

from gradsight_server.importers.formats.megatron import FORMAT
from tests.server.importers.formats.reading import read

FP16 = """
------------------------ arguments ------------------------
  clip_grad ....................................... 0.8
  fp16 ............................................ True
  log_interval .................................... 5
  loss_scale ...................................... None
  loss_scale_window ............................... 500
  optimizer ....................................... adam
-------------------- end of arguments ---------------------
 iteration        5/     400 | consumed samples:           40 | elapsed time per iteration (ms): 2100.5 | learning rate: 0.000E+00 | global batch size:     8 | loss scale: 134217728.0 | number of skipped iterations:   5 | number of nan iterations:   0 |
time (ms) | forward-compute: 265.42 | optimizer-clip-main-grad: 9.24 | optimizer: 82.95
 iteration       10/     400 | consumed samples:           80 | elapsed time per iteration (ms): 1100.0 | learning rate: 2.500E-06 | global batch size:     8 | lm loss: 1.100000E+01 | loss scale: 33554432.0 | grad norm: 6.250 | number of skipped iterations:   2 | number of nan iterations:   1 |
 validation loss at iteration 10 | lm loss value: 1.090000E+01 | lm loss PPL: 5.42E+04 |
 iteration       15/     400 | consumed samples:          120 | elapsed time per iteration (ms): 1090.0 | learning rate: 5.000E-06 | global batch size:     8 | lm loss: 1.070000E+01 | loss scale: 33554432.0 | grad norm: 4.500 | number of skipped iterations:   0 | number of nan iterations:   0 |
"""


def test_counted_skips_become_steps_and_numbers_stay_with_their_line() -> None:
    got = read(FORMAT, FP16)
    assert sum(got.recorded("skipped")) == 7
    assert [point.step for point in got.points if point.line == 9] == [1, 2, 3, 4, 5]
    assert got.recorded("grad_norm_before_clip") == [6.25, 4.5]
    assert got.recorded("loss_scale") == [134217728.0, 33554432.0, 33554432.0]
    assert got.points[-1].values == {
        "step_time_s": 1.09,
        "lr": 5e-6,
        "loss": 10.7,
        "loss_scale": 33554432.0,
        "grad_norm_before_clip": 4.5,
        "skipped": 0.0,
    }
    assert got.meanings["loss"].averaged_over_steps == 5
    assert "spread evenly" in got.meanings["skipped"].remark


def test_once_steps_are_skipped_each_step_is_a_point() -> None:
    assert [point.step for point in read(FORMAT, FP16).points if point.line > 12] == [11, 12, 13, 14, 15]
    never = FP16.replace("skipped iterations:   5", "skipped iterations:   0").replace("tions:   2", "tions:   0")
    assert read(FORMAT, never).steps == [5, 10, 15]


def test_a_skipped_step_prints_no_norm() -> None:
    """Two of five were skipped; the line has no norm, so its own step is one of the two."""
    lines = FP16.replace(" | grad norm: 6.250", "")
    window = [point for point in read(FORMAT, lines).points if point.line == 11]
    assert [point.values["skipped"] for point in window] == [0, 0, 1, 0, 1]


def test_arguments_are_settings() -> None:
    settings = read(FORMAT, FP16).settings
    assert settings["max_norm"] == 0.8
    assert settings["precision"] == "fp16"
    assert settings["growth_interval"] == 500
    assert settings["optimizer"] == "adam"
    assert settings["total_steps"] == 400
    assert "scaler" not in settings


def test_a_command_line_and_a_fixed_scale_are_settings() -> None:
    line = "  --lr 0.0003 --clip-grad 0.5 --fp16 --loss-scale 64 --train-iters 90"
    settings = read(FORMAT, line).settings
    assert (settings["max_norm"], settings["scaler"], settings["total_steps"]) == (0.5, "static(64.0)", 90)


def test_newer_lines_have_a_date_and_older_ones_no_samples() -> None:
    got = read(
        FORMAT,
        """
 [2025-03-01 10:00:00.123456] iteration        1/      20 | consumed samples:           16 | elapsed time per iteration (ms): 900.0 | throughput per GPU (TFLOP/s/GPU): 410.5 | learning rate: 1.000000E-05 | global batch size:    16 | lm loss: 9.500000E+00 | load_balancing_loss: 1.010000E+00 | loss scale: 1.0 | grad norm: 2.125 | params norm: 310.500 | number of skipped iterations:   0 | number of nan iterations:   0 |
 iteration        2/      20 | elapsed time per iteration (ms): 80.1 | learning rate: 1.500E-04 | lm loss: 9.400000E+00 | loss scale: 1024.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
 samples/sec: 3.2 | iteration        3/      20 | elapsed time per iteration (ms): 80.2 | learning rate: 1.500E-04 | approx flops per GPU: 40.1TFLOPS | lm_loss: 9.300000E+00 | loss scale: 1024.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
    )
    assert got.steps == [1, 2, 3]
    assert got.column("loss") == [9.5, 9.4, 9.3]
    assert got.column("grad_norm_before_clip") == [2.125, None, None]
    assert got.points[0].metrics == {"load_balancing_loss": 1.01, "params norm": 310.5}


def test_deepspeed_placeholders_and_a_nan_that_is_not_skipped_are_kept_as_printed() -> None:
    got = read(
        FORMAT,
        """
 iteration       71/     500 | consumed samples:          568 | elapsed time per iteration (ms): 4000.0 | learning rate: 2.999E-04 | global batch size:     8 | lm-loss: 3.100000E+00 | loss scale: -1.0 | grad norm: 0.000 | num zeros: 0.0 | number of skipped iterations:   0 | number of nan iterations:   0 |
 iteration       72/     500 | consumed samples:          576 | elapsed time per iteration (ms): 4000.0 | learning rate: 2.999E-04 | global batch size:     8 | loss scale: 1.0 | grad norm: nan | actual seqlen:  2048 | number of skipped iterations:   0 | number of nan iterations:   0 | samples per second: 1.883 | TFLOPs: 78.36 |
""",
    )
    assert got.points[0].values["loss_scale"] == -1.0
    assert got.points[0].values["grad_norm_before_clip"] == 0.0
    assert math.isnan(got.points[1].values["grad_norm_before_clip"])
    assert "loss" not in got.points[1].values
    assert got.column("skipped") == [0.0, 0.0]


def test_a_norm_repeated_while_the_scale_falls_is_stale() -> None:
    line = " iteration {:8d}/     500 | learning rate: 6.000E-05 | loss scale: {} | grad norm: {} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    got = read(
        FORMAT,
        "\n".join([line.format(81, 512.0, "7.125"), line.format(82, 256.0, "7.125"), line.format(83, 256.0, "7.125")]),
    )
    assert got.column("skipped") == [0.0, 1.0, 0.0], "what is told of a skipped step again is known to be stale"


def test_megatron_deepspeed_prints_zero_until_a_step_succeeds() -> None:
    line = " iteration {:8d}/     500 | learning rate: 0.000E+00 | loss scale: {} | grad norm: {} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    lines = [line.format(1, 65536.0, "0.000"), line.format(2, 32768.0, "0.000"), line.format(3, 32768.0, "7.125")]
    got = read(FORMAT, "\n".join(lines))
    assert got.column("grad_norm_before_clip") == [None, None, 7.125]
    assert got.column("skipped") == [0.0, 1.0, 0.0]


def test_another_launch_and_a_cut_line_are_told() -> None:
    got = read(FORMAT, FP16 + FP16.rstrip() + "\n iteration       20/     400 | consumed sam")
    assert [restart.line for restart in got.restarts] == [16]
    assert [unread.line for unread in got.unread] == [28]


def test_a_lone_line_is_read() -> None:
    got = read(FORMAT, FP16.strip().splitlines()[10])
    assert got.recorded("grad_norm_before_clip") == [6.25]
    assert sum(got.recorded("skipped")) == 2
