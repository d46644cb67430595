"""The tables of HumanOutputFormat.writekvs (guided_diffusion/logger.py), with `lg_loss_scale` and `grad_norm` as
guided_diffusion/train_util.py and fp16_util.py log them (2021)."""

from gradsight_server.importers.formats.openai_table import FORMAT
from tests.server.importers.formats.reading import read

LOG = """
Logging to /tmp/run
training...
----------------------------
| grad_norm     | 8.25     |
| lg_loss_scale | 4        |
| loss          | 1.5      |
| loss_q0       | 2.5      |
| param_norm    | 303      |
| samples       | 256      |
| step          | 1.23e+04 |
----------------------------
saving model 0...
----------------------------
| grad_norm     | nan      |
| lg_loss_scale | 3        |
| loss          | 1.25     |
| step          | 1.23e+04 |
----------------------------
"""


def test_a_block_is_a_point() -> None:
    got = read(FORMAT, LOG)
    assert got.steps == [12300, 12300]
    assert got.points[0].values == {"grad_norm_before_clip": 8.25, "loss_scale": 16.0, "loss": 1.5}
    assert got.points[0].metrics == {"loss_q0": 2.5, "param_norm": 303}
    assert got.points[1].values["loss_scale"] == 8.0


def test_an_overflow_is_a_skipped_step() -> None:
    got = read(FORMAT, "Found NaN, decreased lg_loss_scale to 3.0\n" + LOG.strip("\n"))
    assert got.points[0].values == {"skipped": 1.0, "loss_scale": 16.0, "loss_scale_after": 8.0}
    assert got.steps == [None, 12300, 12300]


def test_that_numbers_are_rounded_is_said() -> None:
    meanings = read(FORMAT, LOG).meanings
    assert meanings["step"].significant_digits == 3
    assert meanings["grad_norm_before_clip"].significant_digits == 3


def test_a_cut_block_is_read_as_far_as_it_goes() -> None:
    lines = "\n".join(LOG.splitlines()[:7])
    assert [(point.step, point.values["loss"]) for point in read(FORMAT, lines).points] == [(None, 1.5)]


def test_another_launch_is_told() -> None:
    assert [restart.line for restart in read(FORMAT, LOG + LOG.strip("\n")).restarts] == [19]
