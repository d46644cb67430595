# ruff: noqa: E501  (the lines of a log are as long as they are)
"""build-nanogpt after train_gpt2.py, nanochat after scripts/base_train.py (2025), nanoGPT after train.py (2023)."""

import math

from gradsight_server.importers.formats.nanogpt import FORMAT
from tests.server.importers.formats.reading import read


def test_build_nanogpt_lines_are_points() -> None:
    got = read(
        FORMAT,
        """
validation loss: 10.9500
step     0 | loss: 10.925000 | lr 8.3916e-07 | norm: 15.2500 | dt: 1200.50ms | tok/sec: 43000.25
step     1 | loss: 10.875000 | lr 1.6783e-06 | norm: nan | dt: 300.00ms | tok/sec: 170000.00
""",
    )
    assert got.steps == [0, 1]
    assert got.points[0].values == {
        "loss": 10.925,
        "lr": 8.3916e-7,
        "grad_norm_before_clip": 15.25,
        "step_time_s": 1.2005,
    }
    assert math.isnan(got.points[1].values["grad_norm_before_clip"])


def test_nanochat_lines_have_a_smoothed_loss_and_no_rate() -> None:
    got = read(
        FORMAT,
        "step 00010/00500 (2.00%) | loss: 8.500000 | grad norm: 0.7500 | lrm: 1.00 | dt: 410.00ms | tok/sec: 1,279,000 | mfu: 48.00 | total time: 0.10m",
    )
    assert got.steps == [10]
    assert got.points[0].values == {"loss": 8.5, "grad_norm_before_clip": 0.75, "step_time_s": 0.41}
    assert got.settings == {"total_steps": 500}
    assert "Smoothed" in got.meanings["loss"].remark


def test_nanogpt_lines_have_no_norm_and_evaluations_are_no_points() -> None:
    got = read(
        FORMAT,
        """
Overriding: grad_clip = 0.5
step 0: train loss 4.2000, val loss 4.2500
iter 0: loss 4.2100, time 900.00ms, mfu -100.00%
iter 10: loss 3.1000, time 30.00ms, mfu 12.00%
""",
    )
    assert got.steps == [0, 10]
    assert got.points[1].values == {"loss": 3.1, "step_time_s": 0.03}
    assert got.settings == {"max_norm": 0.5}


def test_others_write_it_in_capitals() -> None:
    got = read(FORMAT, "Step   300 | Loss: 0.250 | Grad norm: 1.25\nStep: 400  | Train Loss: 0.125 | Grad Norm: inf")
    assert got.steps == [300, 400]
    assert got.column("grad_norm_before_clip") == [1.25, math.inf]
    assert got.column("loss") == [0.25, 0.125]


def test_a_line_without_a_value_is_told() -> None:
    assert [unread.line for unread in read(FORMAT, "step 5 | loss: ").unread] == [1]
