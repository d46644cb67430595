"""Coqui's Trainer 0.1 after ConsoleLogger.print_train_step (trainer/logging/console_logger.py)."""

import math

from gradsight_server.importers.formats.coqui import FORMAT
from tests.server.importers.formats.reading import read

LOG = """
 > Training Environment:
 | > Precision: fp16
grad_clip=5.0
 > TRAINING (2024-01-01 10:00:00)
   --> TIME: 2024-01-01 10:00:01 -- STEP: 0/90 -- GLOBAL_STEP: 25
     | > loss: 3.5  (3.75)
     | > log_mle: 0.5  (0.5)
     | > loss_dur: 2.5  (2.5)
     | > amp_scaler: 16384.0  (20000.0)
     | > grad_norm: tensor(4.5000, device='cuda:0')  (tensor(5.0, device='cuda:0'))
     | > current_lr: 2.5e-07
     | > step_time: 0.5  (0.5)
 > EVALUATION
   --> STEP: 0
     | > loss: 3.0  (3.0)
  --> EVAL PERFORMANCE
     | > avg_loss: 3.0 (+0.000)
   --> STEP: 25/90 -- GLOBAL_STEP: 50
     | > loss: nan  (nan)
     | > grad_norm: inf  (nan)
"""


def test_a_block_is_a_point_and_evaluations_are_not() -> None:
    got = read(FORMAT, LOG)
    assert got.steps == [25, 50]
    assert got.points[0].values == {
        "loss": 3.5,
        "loss_scale": 16384.0,
        "grad_norm_before_clip": 4.5,
        "lr": 2.5e-7,
        "step_time_s": 0.5,
    }
    assert got.points[0].metrics == {"loss_dur": 2.5}
    assert math.isnan(got.points[1].values["loss"])
    assert got.points[1].values["grad_norm_before_clip"] == math.inf


def test_a_poisoned_mean_and_the_threshold_are_told() -> None:
    got = read(FORMAT, LOG)
    assert [(happened.kind, happened.step) for happened in got.happened] == [("mean_not_finite", 50)]
    assert got.settings == {"max_norm": 5.0}


def test_optimizers_are_streams() -> None:
    got = read(
        FORMAT,
        """
   --> STEP: 1/90 -- GLOBAL_STEP: 7
     | > loss_disc: 2.5  (2.5)
     | > loss_0: 2.5  (2.5)
     | > grad_norm_0: 70.5  (30.0)
     | > loss_gen: 1.5  (1.5)
     | > amp_scaler: 128.0  (200.0)
     | > loss_1: 28.5  (30.0)
     | > grad_norm_1: 890.5  (480.0)
     | > current_lr_0: 0.00018
     | > current_lr_1: 0.00019
""",
    )
    assert [point.stream for point in got.points] == ["optimizer-0", "optimizer-1"]
    assert got.points[0].values == {"loss": 2.5, "grad_norm_before_clip": 70.5, "lr": 0.00018, "loss_scale": 128.0}
    assert got.points[1].values == {"loss": 28.5, "grad_norm_before_clip": 890.5, "lr": 0.00019, "loss_scale": 128.0}
    assert got.points[0].metrics == {"loss_disc": 2.5, "loss_gen": 1.5}
