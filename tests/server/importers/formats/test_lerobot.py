"""LeRobot 0.4 after MetricsTracker.__str__ (lerobot/utils/logging_utils.py); the older line after scripts/train.py."""

import math

from gradsight_server.importers.formats.lerobot import FORMAT
from tests.server.importers.formats.reading import read

LOG = """
 'grad_clip_norm': 10.0,
INFO 2025-01-01 10:00:00 ts/train.py:232 step:200 smpl:2K ep:3 epch:0.06 loss:3.500 grdn:94.750 lr:1.0e-05 updt_s:0.500
INFO 2025-01-01 10:01:00 ts/train.py:232 step:400 smpl:3K ep:6 epch:0.12 loss:2.500 grdn:nan lr:1.0e-05 updt_s:0.500
INFO 2025-01-01 10:02:00 ts/train.py:232 step:1K smpl:8K ep:15 epch:0.30 loss:2.250 grdn:50.5 lr:1.0e-05 updt_s:0.500
step:1K smpl:9K ep:18 epch:0.36 Loss:2.125 grdn: 40.500 lr: 10e-05 updt_s:1.278 data_s:0.010
step:1K smpl:9K ep:18 epch:0.36 lo
"""


def test_lines_are_points_with_their_labels() -> None:
    got = read(FORMAT, LOG)
    assert got.steps == [200, 400, 1000, 1000]
    assert got.points[0].values == {"loss": 3.5, "grad_norm_before_clip": 94.75, "lr": 1e-5, "step_time_s": 0.5}
    assert math.isnan(got.points[1].values["grad_norm_before_clip"])
    assert got.points[3].values["grad_norm_before_clip"] == 40.5
    assert got.points[3].epoch == 0.36


def test_means_and_rounded_steps_are_said() -> None:
    meanings = read(FORMAT, LOG).meanings
    assert meanings["grad_norm_before_clip"].averaged_over_steps == 200
    assert meanings["step"].significant_digits == 1


def test_the_threshold_is_a_setting_and_a_cut_line_is_told() -> None:
    got = read(FORMAT, LOG)
    assert got.settings == {"max_norm": 10.0}
    assert [unread.line for unread in got.unread] == [6]
