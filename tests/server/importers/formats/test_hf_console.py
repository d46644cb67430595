# ruff: noqa: E501  (the lines of a log are as long as they are)
"""transformers 4.57 and 5.0 after ProgressCallback.on_log (trainer_callback.py), whose bar tqdm draws anew after each
line; ms-swift 3 and slime 0.1 with their own ways to tell the step. States of a bar are lines of their own."""

import math

from gradsight_server.importers.formats.hf_console import FORMAT
from tests.server.importers.formats.reading import read


def bar(n: int, total: int = 40, of: str = "") -> str:
    return f"{of} {100 * n // total:2d}%|#####     | {n}/{total} [00:{n:02d}<00:39,  1.00it/s]"


def test_without_a_bar_there_is_only_the_epoch() -> None:
    got = read(
        FORMAT,
        """
100%|####################| 9/9 [00:00<00:00, 1809.34it/s]
{'loss': 2.5, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.5}
{'loss': 2.25, 'grad_norm': 1.5, 'learning_rate': 4e-05, 'epoch': 1.0}
{'eval_loss': 2.0, 'eval_runtime': 1.5, 'epoch': 1.0}
{'train_runtime': 9.5, 'train_loss': 2.3, 'epoch': 1.0}
""",
    )
    assert [(point.step, point.epoch) for point in got.points] == [(None, 0.5), (None, 1.0)]
    assert math.isnan(got.points[0].values["grad_norm_before_clip"])
    assert got.points[1].values == {"loss": 2.25, "grad_norm_before_clip": 1.5, "lr": 4e-5}
    assert "left out" in got.meanings["loss"].remark


def test_the_bar_after_a_line_tells_its_step() -> None:
    got = read(
        FORMAT,
        "\n".join(
            [
                bar(9, 9, "Map:"),
                bar(4),
                "{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': 0.5}",
                bar(5),
                bar(8),
                "{'loss': 2.25, 'grad_norm': 1.25, 'learning_rate': 4e-05, 'epoch': 1.0}",
                bar(10),
                bar(1, 3),
                bar(3, 3),
                "{'loss': 2.0, 'grad_norm': 1.0, 'learning_rate': 3e-05, 'epoch': 1.5}",
                bar(15),
            ]
        ),
    )
    assert got.steps == [5, 10, 15]
    assert got.meanings["loss"].averaged_over_steps == 5


def test_a_line_without_its_bar_takes_the_one_before_or_the_usual_distance() -> None:
    lines = [
        "{'loss': 2.5, 'epoch': 0.5}",
        bar(5),
        "{'loss': 2.4, 'epoch': 1.0}",
        bar(10),
        bar(15),
        "{'loss': 2.3, 'epoch': 1.5}",
        "{'loss': 2.2, 'epoch': 2.0}",
    ]
    assert read(FORMAT, "\n".join(lines)).steps == [5, 10, 15, 20]


def test_an_epoch_that_goes_back_is_another_launch() -> None:
    lines = ["{'loss': 2.5, 'epoch': 3.0}", bar(30), "{'loss': 2.4, 'epoch': 0.5}", bar(5)]
    assert read(FORMAT, "\n".join(lines)).steps == [30, 5]


def test_numbers_may_be_strings_or_tensors() -> None:
    got = read(
        FORMAT,
        """
{'loss': '2.5', 'grad_norm': '1.5', 'learning_rate': '5e-05', 'epoch': '0.5'}
{'loss': tensor(2.25, device='cuda:0'), 'grad_norm': np.float64(inf), 'epoch': 1.0}
""",
    )
    assert got.column("loss") == [2.5, 2.25]
    assert got.column("grad_norm_before_clip") == [1.5, math.inf]


def test_a_loss_of_zero_beside_a_nan_is_no_loss() -> None:
    got = read(FORMAT, "{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.5}\n{'loss': 0.0, 'grad_norm': 0.5, 'epoch': 0.6}")
    assert got.column("loss") == [None, 0.0]


def test_the_step_may_stand_in_the_line() -> None:
    got = read(
        FORMAT,
        """
{'loss': 2.5, 'grad_norm': 0.5, 'learning_rate': 2.6e-07, 'reward': 0.25, 'epoch': 0.0, 'global_step/max_steps': '5/40', 'percentage': '12%'}
step 7: {'train/loss': 0.125, 'train/pg_loss': 0.25, 'train/grad_norm': 2.5, 'train/lr-pg_0': 1e-07, 'train/step': 7}
""",
    )
    assert got.steps == [5, 7]
    assert got.points[0].metrics == {"reward": 0.25}
    assert got.points[1].values == {"loss": 0.125, "grad_norm_before_clip": 2.5, "lr": 1e-7}


def test_overflows_of_deepspeed_are_skipped_steps_between() -> None:
    attempt = "[2024-01-01 10:00:00,000] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32"
    lines = ["{'loss': 2.5, 'epoch': 0.5}", bar(5), attempt, "{'loss': 2.4, 'epoch': 1.0}", bar(10), attempt]
    got = read(FORMAT, "\n".join(lines))
    skipped = [point for point in got.points if point.values.get("skipped")]
    assert [point.step for point in skipped] == [8, None], "the last one has no line after it"
    assert skipped[0].values == {"skipped": 1.0, "loss_scale": 64.0, "loss_scale_after": 32.0}
    assert got.steps == [5, 6, 7, 8, 9, 10, None]


def test_configuration_is_settings() -> None:
    lines = "***** Running training *****\n  Total optimization steps = 1,000\nTrainingArguments(\nmax_grad_norm=0.5,"
    assert read(FORMAT, lines).settings == {"total_steps": 1000, "max_norm": 0.5}


def test_a_cut_line_is_read_as_far_as_it_goes() -> None:
    assert read(FORMAT, "{'loss': 2.5, 'grad_norm': 1.5, 'learn").points[0].values == {
        "loss": 2.5,
        "grad_norm_before_clip": 1.5,
    }
