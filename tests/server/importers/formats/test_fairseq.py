# ruff: noqa: E501  (the lines of a log are as long as they are)
"""fairseq 0.12 after JsonProgressBar and SimpleProgressBar (fairseq/logging/progress_bar.py) and `train_step`
(fairseq/trainer.py); the older lines after fairseq 0.8 (fairseq/progress_bar.py); metaseq's as it logs through Hydra."""

import math

from gradsight_server.importers.formats.fairseq import FORMAT
from tests.server.importers.formats.reading import read

JSON = """
2023-02-01 08:00:00 | INFO | fairseq_cli.train | {'_name': None, 'common': {'_name': None, 'log_interval': 20, 'fp16': True}, 'optimization': {'_name': None, 'max_update': 900, 'clip_norm': 2.5, 'update_freq': [2]}}
2023-02-01 08:00:10 | INFO | train_inner | {"epoch": 1, "update": 0.1, "loss": "9.5", "ppl": "724.1", "wps": "2000", "ups": "2.5", "num_updates": "20", "lr": "1e-05", "gnorm": "3.25", "clip": "100", "loss_scale": "64", "train_wall": "9", "wall": "10"}
2023-02-01 08:00:15 | INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 32.0
[2023-02-01 08:00:20,123][train_inner][INFO] - {"epoch": 1, "update": 0.2, "loss": "nan", "num_updates": "40", "lr": "2e-05", "gnorm": "nan", "clip": "45", "loss_scale": "32"}
2023-02-01 08:00:30 | INFO | train | {"epoch": 1, "train_loss": "9.1", "train_num_updates": "45", "train_gnorm": "2.9"}
2023-02-01 08:00:30 | INFO | valid | {"epoch": 1, "valid_loss": "9.2", "valid_num_updates": "45"}
2023-02-01 08:00:31 | WARNING | fairseq.nan_detector | NaN detected in output of decoder.layers.3, shape: torch.Size([8, 2, 16])
"""


def test_json_in_text_is_read_and_summaries_are_no_points() -> None:
    got = read(FORMAT, JSON)
    lines = [point for point in got.points if "lr" in point.values]
    assert [point.step for point in lines] == [20, 40]
    assert got.points[0].values == {"loss": 9.5, "lr": 1e-5, "grad_norm_before_clip": 3.25, "loss_scale": 64}
    assert got.points[0].epoch == 0.1
    assert math.isnan(lines[1].values["grad_norm_before_clip"])


def test_an_overflow_is_a_skipped_step_near_its_time() -> None:
    """Half-way between the lines of the updates 20 and 40; the updates around it were applied."""
    got = read(FORMAT, JSON)
    skipped = [point for point in got.points if point.values.get("skipped")]
    assert [point.step for point in skipped] == [30]
    assert skipped[0].values == {"skipped": 1.0, "loss_scale": 64, "loss_scale_after": 32}
    assert got.steps == list(range(20, 41))


def test_clip_is_a_percentage_and_norms_are_means_over_the_log_interval() -> None:
    got = read(FORMAT, JSON)
    assert got.points[0].metrics["clip"] == 100
    assert "percentage" in got.meanings["clip"].remark
    assert got.meanings["grad_norm_before_clip"].averaged_over_steps == 20


def test_configuration_and_troubles_are_told() -> None:
    got = read(FORMAT, JSON)
    assert got.settings == {"precision": "fp16", "total_steps": 900, "max_norm": 2.5}
    assert [happened.message[:12] for happened in got.happened] == ["NaN detected"]


def test_plain_json_lines_are_read() -> None:
    got = read(FORMAT, '{"epoch": 2, "update": 1.5, "loss": "4.0", "num_updates": "60", "gnorm": "0.5"}')
    assert (got.steps, got.column("grad_norm_before_clip")) == ([60], [0.5])


def test_a_clip_norm_of_zero_says_that_clipping_is_off() -> None:
    assert read(FORMAT, "Namespace(adam_eps=1e-08, clip_norm=0.0, fp16=False)").settings == {"max_norm": 0.0}


def test_simple_lines_leave_the_epochs_summary_out() -> None:
    got = read(
        FORMAT,
        """
2023-02-01 08:00:10 | INFO | train_inner | epoch 002:     51 / 100 loss=5.25, ppl=38.05, wps=1000, ups=2, wpb=512, bsz=4, num_updates=151, lr=0.0002, gnorm=1.75, loss_scale=16, train_wall=1, wall=70
2023-02-01 08:00:10 | INFO | train_inner | epoch 002:     52 / 100 loss=5.20, ppl=36.7, wps=1000, ups=2, wpb=512, bsz=4, num_updates=152, lr=0.0002, gnorm=inf, loss_scale=16, train_wall=1, wall=70
epoch 002:  53%|#####3    | 53/100 [00:20<00:18,  2.5it/s, loss=5.1, num_updates=153, lr=0.0002, gnorm=1.5, clip=0, loss_scale=16]
2023-02-01 08:01:10 | INFO | train | epoch 002 | loss 5.3 | ppl 39.4 | num_updates 200 | lr 0.0002 | gnorm 1.8 | loss_scale 16
""",
    )
    assert got.steps == [151, 152, 153]
    assert got.column("grad_norm_before_clip") == [1.75, math.inf, 1.5]
    assert not got.meanings.keys() & {"grad_norm_before_clip"}, "lines one step apart are of single steps"


def test_older_lines_hold_running_means_and_may_be_cut() -> None:
    got = read(
        FORMAT,
        """
| epoch 001:     50 / 400 loss=8.5, nll_loss=8.0, ppl=256.0, wps=900, ups=0.5, num_updates=48, lr=1e-05, gnorm=2.5, clip=12%, oom=0, loss_scale=4.000, wall=88
| epoch 001 | valid on 'valid' subset | valid_loss 8.1 | valid_ppl 274.3 | num_updates 60
| epoch 001:    100 / 400 loss=8.1, nll_loss=7.6, ppl=194.0, wps=900, ups=0.5, num_updates=98, lr=2e-05, gnorm=2.25, clip
""",
    )
    assert got.steps == [48, 98]
    assert got.points[0].metrics["clip"] == 12
    meaning = got.meanings["grad_norm_before_clip"]
    assert meaning.averaged_over_steps is not None
    assert math.isnan(meaning.averaged_over_steps)


def test_a_line_without_a_value_is_told() -> None:
    assert [unread.line for unread in read(FORMAT, "| epoch 001:   5 / 9 , num_updates=").unread] == [1]


def test_a_second_configuration_after_points_is_another_launch() -> None:
    assert [restart.line for restart in read(FORMAT, JSON + JSON.strip("\n")).restarts] == [8]
