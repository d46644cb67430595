# ruff: noqa: E501  (the lines of a log are as long as they are)
"""Swin-Transformer's main.py (`train_one_epoch`) as of 2022, and as of 2021 without a loss scale."""

import math

from gradsight_server.importers.formats.swin import FORMAT
from tests.server.importers.formats.reading import read

LOG = """
  ACCUMULATION_STEPS: 2
  CLIP_GRAD: 2.5
[2022-05-01 10:00:00 swin](main.py 220): INFO Train: [0/30][0/200]\teta 1:02:03 lr 0.000001\t wd 0.0500\ttime 0.9000 (0.9000)\tloss 6.9500 (6.9500)\tgrad_norm 1.5000 (1.5000)\tloss_scale 65536.0000 (65536.0000)\tmem 900MB
[2022-05-01 10:00:10 swin](main.py 220): INFO Train: [1/30][10/200]\teta 1:02:03 lr 0.000010\t wd 0.0500\ttime 0.9000 (0.9000)\tloss 6.5000 (6.7000)\tgrad_norm 2.7500 (inf)\tloss_scale 32768.0000 (40000.0000)\tmem 900MB
[2022-05-01 10:00:20 swin](main.py 220): INFO Train: [1/30][20/200]\teta 1:02:03 lr 0.000010\t wd 0.0500\ttime 0.9000 (0.9000)\tloss nan (nan)\tgrad_norm nan (nan)\tloss_scale 32768.0000 (40000.0000)\tmem 900MB
[2022-05-01 10:01:00 swin](main.py 265): INFO Test: [0/20]\tTime 0.9 (0.9)\tLoss 6.4 (6.4)\tAcc@1 0.5 (0.5)\tMem 900MB
[2021-05-01 10:00:20 swin](main.py 220): INFO Train: [1/30][30/200]    eta 0:08:57 lr 0.000166 time 0.6068 (0.6098)    loss 6.3500 (6.1324)    grad_norm 2.0000 (inf)  mem 900MB
"""


def test_values_are_those_of_the_step_not_the_means() -> None:
    got = read(FORMAT, LOG)
    assert got.steps == [0, 210, 220, 230]
    assert got.points[1].values == {"lr": 1e-5, "loss": 6.5, "grad_norm_before_clip": 2.75, "loss_scale": 32768.0}
    assert math.isnan(got.points[2].values["grad_norm_before_clip"])
    assert got.points[1].epoch == 1.05


def test_a_poisoned_mean_is_told_once_an_epoch() -> None:
    assert [(happened.kind, happened.step) for happened in read(FORMAT, LOG).happened] == [("mean_not_finite", 210)]


def test_configuration_is_settings_and_again_another_launch() -> None:
    got = read(FORMAT, LOG + LOG.strip("\n"))
    assert got.settings == {"accumulation_steps": 2.0, "max_norm": 2.5}
    assert [restart.line for restart in got.restarts] == [9]


def test_overflows_of_apex_are_skipped_steps_however_many_ranks_tell() -> None:
    line = "INFO Train: [0/30][{}/200]\teta 1:02:03 lr 0.000010\ttime 0.9 (0.9)\tloss 6.5 (6.7)\tgrad_norm 2.75 (2.5)"
    overflow = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}"
    lines = [line.format(10), overflow.format(512.0), overflow.format(512.0), overflow.format(256.0), line.format(14)]
    got = read(FORMAT, "\n".join(lines))
    assert got.steps == [10, 11, 12, 13, 14]
    assert got.column("skipped") == [None, 1.0, 0.0, 1.0, None]
    assert got.recorded("loss_scale") == [1024.0, 512.0]


def test_a_cut_line_is_told() -> None:
    assert [unread.line for unread in read(FORMAT, "INFO Train: [1/30][10/200]\teta 1:0").unread] == [1]
