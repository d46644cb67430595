# ruff: noqa: E501  (the lines of a log are as long as they are)
"""DeepSpeed 0.18 as the engine's `_report_progress` (runtime/engine.py), `update_scale` (runtime/fp16/loss_scaler.py) and
`step` of runtime/fp16/fused_optimizer.py and unfused_optimizer.py print; the `[deepscale]` wording is that of 0.3
(runtime/zero/stage3.py: `_overflow_clean_up`); configuration after `DeepSpeedConfig.print` (runtime/config.py)."""

from gradsight_server.importers.formats.deepspeed import FORMAT
from tests.server.importers.formats.reading import Reading, read

CONFIG = """
[2024-05-01 10:00:00,000] [INFO] [config.py:1003:print]   bfloat16_enabled ............. False
[2024-05-01 10:00:00,000] [INFO] [config.py:1003:print]   dynamic_loss_scale_args ...... {'init_scale': 4096, 'scale_window': 50, 'delayed_shift': 2, 'min_scale': 1}
[2024-05-01 10:00:00,000] [INFO] [config.py:1003:print]   fp16_enabled ................. True
[2024-05-01 10:00:00,000] [INFO] [config.py:1003:print]   gradient_clipping ............ 0.7
"""


def overflow(second: float, scale: int, after: int | None) -> str:
    did = f"reducing to {after}" if after else "but hysteresis is 2. Reducing hysteresis to 1"
    return f"[2024-05-01 10:00:{second:06.3f}] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {scale}, {did}"


def progress(second: float, step: int, skipped: int, lr: float = 1e-4) -> str:
    return f"[2024-05-01 10:00:{second:06.3f}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, skipped={skipped}, lr=[{lr}, {lr}], mom=[(0.9, 0.95), (0.9, 0.95)]"


def skips(got: Reading, stream: str = "main") -> list[float | None]:
    return [point.step for point in got.points if point.values.get("skipped") and point.stream == stream]


def test_overflows_are_placed_by_their_time_of_day() -> None:
    log = [
        overflow(1.0, 4096, None),
        overflow(2.0, 4096, 2048),
        progress(5.0, 5, 2),
        progress(10.0, 10, 2),
        overflow(12.0, 4096, 2048),
        progress(15.0, 15, 3, lr=2e-4),
        overflow(17.0, 2048, 1024),
    ]
    got = read(FORMAT, "\n".join(log))
    assert skips(got) == [1, 2, 12, 17]
    assert got.steps == [*range(1, 18)], "each step counts once one was skipped"
    assert [point.values["lr"] for point in got.points if "lr" in point.values] == [1e-4, 1e-4, 2e-4]


def test_a_skip_has_the_scale_tried_and_the_step_after_it_the_new_one() -> None:
    got = read(FORMAT, "\n".join([overflow(1.0, 4096, None), overflow(2.0, 4096, 2048), progress(5.0, 5, 2)]))
    assert got.column("loss_scale") == [4096, 4096, 2048, None, None]
    assert got.column("loss_scale_after") == [4096, 2048, None, None, None]
    assert {point.skip_reason for point in got.points if point.values["skipped"]} == {"overflow"}


def test_the_count_is_believed_where_lines_are_missing() -> None:
    got = read(FORMAT, "\n".join([progress(5.0, 10, 1), progress(9.0, 20, 4)]))
    assert len(skips(got)) == 4
    assert len([step for step in skips(got) if step is not None and step > 10]) == 3


def test_without_progress_lines_the_shortest_time_between_overflows_is_a_step() -> None:
    lines = [overflow(1.0, 64, None), overflow(1.5, 64, 32), overflow(4.0, 64, 32)]
    got = read(FORMAT, "\n".join(lines))
    assert skips(got) == [1, 2, 7]
    assert got.steps == list(range(1, 8))


def test_several_ranks_speak_of_one_overflow() -> None:
    lines = [
        "[2024-05-01 10:00:00,100] [INFO] [fused_optimizer.py:392:_update_scale] ",
        "Grad overflow on iteration 3",
        "Grad overflow on iteration 3",
        "[2024-05-01 10:00:00,101] [INFO] [fused_optimizer.py:393:_update_scale] Reducing dynamic loss scale from 512 to 256.0",
        "[2024-05-01 10:00:00,102] [INFO] [logging.py:128:log_dist] [Rank 0] Overflow detected. Skipping step. Attempted loss scale: 512, reducing to 256.0",
        "Grad overflow on iteration 3",
        "[2024-05-01 10:00:02,500] [INFO] [unfused_optimizer.py:281:_update_scale] Grad overflow on iteration: 4",
        "[2024-05-01 10:00:02,500] [INFO] [unfused_optimizer.py:207:step] [deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: 256.0, reducing to 128.0",
        progress(5.0, 10, 2),
    ]
    got = read(FORMAT, "\n".join(lines))
    assert skips(got) == [4, 5], "iterations count from 0"
    assert got.recorded("loss_scale_after") == [256, 128]


def test_ranks_without_a_number_are_told_by_saying_the_same_at_once() -> None:
    lines = [
        f"[2024-05-01 10:00:0{second},500] [INFO] [unfused_optimizer.py:207:step] [deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: {scale}, reducing to {scale / 2}"
        for second, scale in ((1, 64), (1, 64), (1, 64), (2, 32), (2, 32), (2, 32))
    ]
    assert len(skips(read(FORMAT, "\n".join(lines)))) == 2


def test_of_ranks_with_a_number_one_is_believed() -> None:
    lines = [
        f"[deepscale] OVERFLOW! Rank {rank} Skipping step. Attempted loss scale: {scale}, reducing to {after}"
        for scale, after in ((256, 256), (256, 128.0))
        for rank in (1, 0, 3, 2)
    ]
    got = read(FORMAT, "\n".join(lines))
    assert got.steps == [None, None], "nothing tells their numbers"
    assert got.column("loss_scale_after") == [256, 128]


def test_two_engines_are_two_streams() -> None:
    log = [
        overflow(1.0, 4096, None),
        overflow(1.2, 4096, None),
        overflow(2.0, 4096, 2048),
        overflow(2.2, 4096, 2048),
        overflow(3.0, 2048, 1024),
        progress(5.0, 5, 3, lr=1e-5),
        progress(5.2, 5, 2, lr=2e-5),
        overflow(7.2, 2048, 1024),
        progress(10.0, 10, 3, lr=1e-5),
        progress(10.2, 10, 3, lr=2e-5),
    ]
    got = read(FORMAT, "\n".join(log))
    assert skips(got, "engine-1") == [1, 2, 3]
    assert skips(got, "engine-2") == [1, 2, 7]
    assert got.recorded("loss_scale_after", "engine-2") == [4096, 2048, 1024]
    assert set(got.recorded("lr", "engine-2")) == {2e-5}


def test_configuration_is_settings() -> None:
    settings = read(FORMAT, CONFIG).settings
    assert settings["max_norm"] == 0.7
    assert settings["precision"] == "fp16"
    assert settings["scaler"] == "dynamic(init_scale=4096.0, growth_interval=50)"
    assert settings["growth_interval"] == 50


def test_counting_anew_is_another_launch() -> None:
    got = read(FORMAT, "\n".join([progress(5.0, 10, 3), progress(9.0, 20, 3), progress(20.0, 10, 1)]))
    assert len(skips(got)) == 4
    assert got.steps[-1] == 10


def test_a_cut_line_is_read_as_far_as_it_goes() -> None:
    got = read(FORMAT, progress(5.0, 10, 0) + "\n" + progress(6.0, 20, 0)[:85])
    assert got.steps == [10, 20], "without any skip a line is a point"
