# ruff: noqa: E501  (the lines of a log are as long as they are)
"""torchtitan 0.2 after `MetricsProcessor.log` (torchtitan/components/metrics.py); older lines after 0.0.2 (train.py)."""

import math

from gradsight_server.importers.formats.torchtitan import FORMAT
from tests.server.importers.formats.reading import read


def test_lines_are_points_and_validation_is_not() -> None:
    got = read(
        FORMAT,
        """
[rank0]:[titan] 2026-01-01 10:00:00,000 - root - INFO - Running with configs: {"training": {"max_norm": 1.5, "steps": 100}}
[rank0]:[titan] 2026-01-01 10:00:01,000 - root - INFO - step:  1  loss: 12.25000  grad_norm:  3.5000  memory:  9.49GiB(9.99%)  tps: 636  tflops: 53.57  mfu: N/A
[rank0]:[titan] 2026-01-01 10:00:02,000 - root - INFO - step: 1,000  loss:  8.12500  grad_norm: nan  memory: 19.49GiB(9.99%)  tps: 7,662  tflops: 1,645.56  mfu: 40.00%
[rank0]:[titan] 2026-01-01 10:00:03,000 - root - INFO - validate step: 1000  loss:  7.5000  memory: 19.49GiB(9.99%)  tps: 9,000
""",
    )
    assert got.steps == [1, 1000]
    assert got.points[0].values == {"loss": 12.25, "grad_norm_before_clip": 3.5}
    assert math.isnan(got.points[1].values["grad_norm_before_clip"])
    assert got.settings == {"max_norm": 1.5}


def test_older_lines_have_no_norm_and_forks_add_a_rate() -> None:
    got = read(
        FORMAT,
        """
[rank1]:2024-06-01 10:00:00,000 - root - INFO - step:  5  loss:  9.5000  memory:  9.49GiB(9.99%)  wps: 3,006  mfu: 40.00%
step: 10  loss:  9.2500  global_max_loss:  9.5000  grad_norm:  1.2500  lr: 3.0e-04  memory:  9.49GiB(9.99%)
""",
    )
    assert [point.rank for point in got.points] == [1, 0]
    assert got.column("grad_norm_before_clip") == [None, 1.25]
    assert got.column("lr") == [None, 3e-4]


def test_a_value_that_is_no_number_is_told() -> None:
    assert [unread.line for unread in read(FORMAT, "step: 10  loss: ???").unread] == [1]
