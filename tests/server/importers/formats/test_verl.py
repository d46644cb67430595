# ruff: noqa: E501  (the lines of a log are as long as they are)
"""verl 0.6 after `concat_dict_to_str` (verl/utils/logger/aggregate_logger.py)."""

import math

from gradsight_server.importers.formats.verl import FORMAT
from tests.server.importers.formats.reading import read


def test_a_step_is_a_point_and_validation_alone_is_not() -> None:
    got = read(
        FORMAT,
        """
 'grad_clip': 1.5,
step:0 - val-core/math/acc/mean@1:np.float64(0.25)
(TaskRunner pid=99) step:1 - global_seqlen/min:900 - actor/entropy:0.25 - actor/pg_loss:np.float64(-0.125) - actor/grad_norm:np.float64(0.75) - actor/lr:1e-06 - critic/score/mean:0.5 - critic/vpred_mean:0.1
step:2 - actor/pg_loss:-0.25 - actor/grad_norm:nan - actor/lr:np.float32(1e-06)
""",
    )
    assert got.steps == [1, 2]
    assert got.points[0].values == {"loss": -0.125, "grad_norm_before_clip": 0.75, "lr": 1e-6}
    assert got.points[0].metrics == {"actor/entropy": 0.25, "critic/score/mean": 0.5}
    assert math.isnan(got.points[1].values["grad_norm_before_clip"])
    assert {point.stream for point in got.points} == {"main"}
    assert got.settings == {"max_norm": 1.5}


def test_actor_and_critic_are_two_streams() -> None:
    got = read(
        FORMAT,
        "step:4 - critic/vf_loss:2.5 - critic/grad_norm:9.5 - critic/lr:1e-05 - actor/pg_loss:0.5 - actor/grad_norm:0.25 - actor/lr:1e-06",
    )
    assert got.recorded("grad_norm_before_clip", "actor") == [0.25]
    assert got.recorded("grad_norm_before_clip", "critic") == [9.5]
    assert got.recorded("lr", "critic") == [1e-5]


def test_that_norms_are_means_of_several_updates_is_said() -> None:
    meaning = read(FORMAT, "step:4 - actor/grad_norm:0.25").meanings["grad_norm_before_clip"]
    assert meaning.averaged_over_steps is not None
    assert math.isnan(meaning.averaged_over_steps)


def test_others_with_such_lines_are_read() -> None:
    got = read(FORMAT, "step:4 - train/loss:0.5 - train/grad_norm:2.5 - train/lr:1e-06")
    assert got.points[0].values == {"loss": 0.5, "grad_norm_before_clip": 2.5, "lr": 1e-6}
