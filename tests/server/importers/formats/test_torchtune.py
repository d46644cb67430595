"""torchtune 0.6 after DiskLogger.log_dict and StdoutLogger.log_dict (torchtune/training/metric_logging.py)."""

from gradsight_server.importers.formats.torchtune import FORMAT
from tests.server.importers.formats.reading import read

LOG = """
clip_grad_norm: 1.5
Step 1 | loss:2.5 lr:2e-05 tokens_per_second_per_gpu:123.5 grad_norm:3.25 peak_memory_active:4.5
Step 2 | loss:2.4 lr:3e-05 grad_norm:tensor(2.5000, device='cuda:0') val_loss:2.6
Step 3 | tokens_per_second_per_gpu:99.5
"""


def test_lines_are_points() -> None:
    got = read(FORMAT, LOG)
    assert got.steps == [1, 2]
    assert got.points[0].values == {"loss": 2.5, "lr": 2e-5, "grad_norm_before_clip": 3.25}
    assert got.points[1].values["grad_norm_before_clip"] == 2.5
    assert got.points[1].metrics == {"val_loss": 2.6}
    assert got.unread == []


def test_the_threshold_is_a_setting() -> None:
    assert read(FORMAT, LOG).settings == {"max_norm": 1.5}
