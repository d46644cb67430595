"""What logs do to their numbers, kind by kind: missing, rounded, going back, copied, placeholders, stale, scaled."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gradsight import wire
from gradsight_server.importers.assembly import MAX_RUNS, NUM_HELD, Assembly
from gradsight_server.importers.items import Item, Meaning, Point, Restart, Setting, Unread
from gradsight_server.importers.logs import Gathering, Part
from gradsight_server.importers.notes import notes_of
from gradsight_server.importers.placing import MAX_TURNS
from tests.server.importers.kit import column, norms, steps


def assembled(items: Iterable[Item], *, max_norm: float | None = None) -> tuple[list[Part], str]:
    """The parts of a log that says this, and all notes in one text."""
    gathering = Gathering()
    assembly = Assembly(gathering, name="a.log", max_norm=max_norm)
    assembly.take_all(items)
    assembly.close()
    return list(gathering.parts(assembly.told.settings)), "\n".join(notes_of(assembly))


def one(items: Iterable[Item], *, max_norm: float | None = None) -> tuple[Part, str]:
    (part,), notes = assembled(items, max_norm=max_norm)
    return part, notes


def points(numbers: Iterable[float | None], **values: float) -> list[Item]:
    """Points with these steps and different norms."""
    return [
        Point(line, step, {"grad_norm_before_clip": 1.0 + line / 100, "loss": 9.0 - line / 100} | values)
        for line, step in enumerate(numbers, 1)
    ]


# Step numbers


def test_points_without_a_number_are_counted_from_0() -> None:
    part, notes = one(points([None] * 4))
    assert steps(part) == [0, 1, 2, 3]
    assert "no step numbers" in notes


def test_a_point_without_a_number_comes_after_the_one_before() -> None:
    part, notes = one(points([None, None, math.nan, -4, 2e300, 1.5, 20, None]))
    assert steps(part) == [0, 1, 2, 3, 4, 5, 20, 21]
    assert "3 lines without a step number" in notes
    assert "4 lines with a step that is no whole number" in notes


def test_an_epoch_that_begins_again_is_another_run() -> None:
    items = [
        Point(i, None, {"grad_norm_before_clip": 1.0 + i}, epoch=epoch)
        for i, epoch in enumerate([0.1, 0.2, 0.3, 0.1, 0.2])
    ]
    found, notes = assembled(items)
    assert [steps(part) for part in found] == [[0, 1, 2], [0, 1]]
    assert "Another run begins at line 3" in notes


def test_steps_that_go_back_are_another_attempt_which_takes_the_place_of_the_older() -> None:
    part, notes = one(points([6880, 6890, 6900, 7010, 7020, 6900, 6910, 6920]))
    assert (steps(part), part.num_attempts) == ([6880, 6890, 6900, 6910, 6920], 2)
    assert norms(part) == [1.01, 1.02, 1.06, 1.07, 1.08]
    assert notes == "Steps go back from 7,020 to 6,900 at line 6: another attempt at the run."


def test_of_many_attempts_each_counts_up_to_where_a_newer_one_begins() -> None:
    numbers = [10, 20, 30, 40, 50, 60, 30, 40, 50, 40, 50, 70]
    items: list[Item] = [
        Point(
            i, step, {"grad_norm_before_clip": 1.0 + i}, {"x": float(i)}, skip_reason=str(i), layer_norms={"a": 1.0 + i}
        )
        for i, step in enumerate(numbers)
    ]
    others = [replace(item, rank=1, metrics={}) for item in items if isinstance(item, Point)]
    part, _ = one([item for pair in zip(items, others, strict=True) for item in pair])
    kept = [0, 1, 6, 9, 10, 11]
    assert (steps(part), part.num_attempts) == ([10, 20, 30, 40, 50, 70], 3)
    assert norms(part) == [1.0 + i for i in kept]
    assert part.steps.skip_reason == tuple(map(str, kept))
    assert part.context.metrics["x"].values.tolist() == kept
    assert part.steps.layers is not None
    assert part.steps.layers.norms[:, 0].tolist() == [1.0 + i for i in kept]


def test_the_steps_of_a_newer_attempt_are_judged_alone() -> None:
    items = points([*range(100, 160), *range(120, 140)])
    for item in items[20:60]:
        assert isinstance(item, Point)
        item.values["grad_norm_before_clip"] = math.nan
    part, _ = one(items)
    assert steps(part) == list(range(100, 140))
    assert None not in norms(part)
    assert not any(map(math.isnan, (norm or 0.0 for norm in norms(part))))


@pytest.mark.parametrize(("first", "second"), [([0, 1, 2], [0, 1]), ([10, 20, 30], [10, 20]), ([7000, 7010], [10, 20])])
def test_steps_that_begin_again_are_another_run(first: Sequence[int], second: Sequence[int]) -> None:
    found, notes = assembled(points([*first, *second]))
    assert [(steps(part), part.num_attempts) for part in found] == [(list(first), 1), (list(second), 1)]
    assert "Another run begins" in notes


@pytest.mark.parametrize(
    ("second", "attempts"), [([30, 40], [2]), ([40, 50], [2]), ([10, 20], [1, 1]), ([5, 15], [1, 1])]
)
def test_a_banner_tells_a_launch_from_a_slip(second: Sequence[int], attempts: list[int]) -> None:
    first = points([10, 20, 30])
    found, _ = assembled([Restart(0, "banner"), *first, Restart(4, "banner"), *points(second)])
    assert [part.num_attempts for part in found] == attempts


def test_a_run_of_another_name_is_another_run() -> None:
    items = [
        Setting(0, "run_name", "a", "name"),
        *points([5, 10]),
        Setting(3, "run_name", "b", "name"),
        *points([15, 20]),
    ]
    found, _ = assembled(items)
    assert [(part.run_name, steps(part)) for part in found] == [("a", [5, 10]), ("b", [15, 20])]


def test_numbers_rounded_to_three_digits_are_counted_through() -> None:
    true = list(range(0, 12_000, 10))
    part, notes = one(points([float(f"{step:.3g}") for step in true]))
    assert steps(part) == true
    assert part.num_attempts == 1
    assert "Step numbers are rounded in this log" in notes


def test_numbers_like_1k_are_counted_through() -> None:
    true = list(range(200, 10_200, 200))
    part, notes = one(points([float(step // 1000 * 1000 if step > 999 else step) for step in true]))
    assert steps(part) == true
    assert "rounded" in notes


def test_a_log_that_begins_rounded_keeps_all_its_points() -> None:
    part, _ = one([Meaning("step", "step", significant_digits=3), *points([20600.0] * 5 + [20700.0] * 5 + [20800.0])])
    assert len(part.steps.step) == 11
    assert sorted(set(steps(part))) == steps(part)
    assert abs(steps(part)[-1] - 20800) <= 100


def test_steps_counted_in_each_epoch_are_counted_through() -> None:
    items = [
        Point(i, step, {"grad_norm_before_clip": 1.0 + i}, epoch=epoch)
        for i, (epoch, step) in enumerate((epoch, step) for epoch in range(3) for step in range(0, 1000, 100))
    ]
    part, notes = one(items)
    assert (steps(part), part.num_attempts) == (list(range(0, 3000, 100)), 1)
    assert "counted anew in each epoch" in notes


def test_an_epoch_that_is_no_number_says_nothing() -> None:
    items = [Point(i, step, {"grad_norm_before_clip": 1.0}, epoch=math.nan) for i, step in enumerate([50, 60, 30, 40])]
    part, _ = one(items)
    assert (steps(part), part.num_attempts) == ([30, 40], 2)


def test_a_log_of_ever_new_attempts_stays_bounded() -> None:
    found, notes = assembled(points([step for i in range(3 * MAX_TURNS) for step in (100 + i % 7, 90 - i % 5)]))
    assert sum(len(part.steps.step) for part in found) <= 6 * MAX_TURNS
    assert "more places where a run or an attempt begins" in notes
    found, notes = assembled(points([0, 1, 2] * (MAX_RUNS + 500)))
    assert len(found) <= MAX_RUNS


# One step in parts, ranks, streams


def test_parts_of_a_step_are_put_together() -> None:
    items = [
        Point(1, 1, {"loss": 2.0}),
        Point(2, 1, {"grad_norm_before_clip": 3.0}, {"val_loss": 9.0}),
        Point(3, 2, {"loss": 1.0}),
        Point(4, 2, {}, {"val_loss": 8.0}),
    ]
    part, _ = one(items)
    assert (steps(part), norms(part), column(part, "loss")) == ([1, 2], [3.0, None], [2.0, 1.0])
    assert part.context.metrics["val_loss"].values.tolist() == [9.0, 8.0]


def test_an_evaluation_is_no_step_wherever_it_stands() -> None:
    items = [*points([10, 20]), Point(3, 15, {}, {"val_loss": 1.0}), Point(4, None, {}, {"acc": 0.5}), *points([30])]
    part, _ = one(items)
    assert (steps(part), part.num_attempts) == ([10, 20, 30], 1)
    assert part.context.metrics["val_loss"].step.tolist() == [15]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0)])
def test_equal_copies_by_ranks_are_one_step(order: Sequence[int]) -> None:
    items = [
        Point(0, step, {"grad_norm_before_clip": 2.0 + step, "skipped": float(step == 1)}, rank=rank)
        for step in range(3)
        for rank in order
    ]
    part, notes = one(items)
    assert (norms(part), column(part, "skipped")) == ([2.0, 3.0, 4.0], [0.0, 1.0, 0.0])
    assert part.context.rank_norms == {}
    assert "9 lines by other ranks or loggers repeat" in notes


def test_ranks_that_differ_are_spread() -> None:
    items = [
        Point(0, step, {"grad_norm_before_clip": 2.0 + rank}, rank=rank + 4) for step in range(3) for rank in range(4)
    ]
    part, notes = one(items)
    assert norms(part) == [2.0, 2.0, 2.0], "the lowest rank there is stands for the run"
    assert {rank: values.tolist() for rank, values in part.context.rank_norms.items()} == {
        5: [3.0] * 3, 6: [4.0] * 3, 7: [5.0] * 3,
    }  # fmt: skip
    assert "4 ranks wrote this log" in notes


def test_copies_by_ranks_that_do_not_say_who_they_are() -> None:
    same = [Point(0, step, {"grad_norm_before_clip": 2.0 + step}) for step in range(10, 130, 10) for _ in range(4)]
    part, notes = one(same)
    assert (steps(part), norms(part)) == (list(range(10, 130, 10)), [2.0 + step for step in range(10, 130, 10)])
    assert "repeat what a step has" in notes
    different = [
        Point(0, step, {"grad_norm_before_clip": 2.0 + rank}) for step in range(10, 130, 10) for rank in range(4)
    ]
    part, notes = one(different)
    assert (steps(part), part.num_attempts) == (list(range(10, 130, 10)), 1)
    assert norms(part) == [5.0] * 12, "of micro-batches the last has the whole gradient"
    assert part.context.rank_norms == {}
    assert "36 lines tell of a step again, with other numbers and no rank: the last line of a step is kept" in notes
    assert "ranks wrote" not in notes


def test_a_norm_that_is_not_finite_is_kept_whichever_line_of_a_step_it_is_on() -> None:
    for i, norm in enumerate([1.0, math.nan, math.inf]):
        lines = [norm if k == i else 2.0 for k in range(3)]
        part, _ = one([Point(k, 7, {"grad_norm_before_clip": value}) for k, value in enumerate(lines)])
        assert [str(found) for found in norms(part)] == [str(norm if i else 2.0)]


def test_a_rank_alone_whose_norm_is_not_finite_is_told() -> None:
    items: list[Item] = [
        Point(0, step, {"grad_norm_before_clip": math.nan if (rank, step) in ((1, 50), (1, 51)) else 2.0}, rank=rank)
        for step in range(40, 60)
        for rank in range(3)
    ]
    _, notes = one(items)
    assert "The norm of rank 1 is not finite on 2 lines (the first at step 50) where that of the main rank is." in notes
    assert "rank 2" not in notes


def test_a_line_that_says_a_part_of_a_step_again_is_no_other_line_of_it() -> None:
    items: list[Item] = [
        Point(1, 1, {"loss": 2.0, "grad_norm_before_clip": 3.0}), Point(2, 1, {"loss": 2.0, "lr": 0.5}),
    ]  # fmt: skip
    part, notes = one(items)
    assert (norms(part), column(part, "lr"), notes) == ([3.0], [0.5], "")


def test_two_streams_resume_together() -> None:
    items = [
        Point(0, step, {"grad_norm_before_clip": 1.0}, stream=stream)
        for numbers in ((10, 20, 30), (20, 30, 40))
        for step in numbers
        for stream in ("actor", "critic")
    ]
    found, _ = assembled(items)
    assert [(part.stream, steps(part), part.num_attempts) for part in found] == [
        ("actor", [10, 20, 30, 40], 2),
        ("critic", [10, 20, 30, 40], 2),
    ]


# Placeholders and repeats


def test_a_norm_of_zero_on_each_line_while_the_loss_moves_is_not_recorded() -> None:
    part, notes = one(points(range(50), grad_norm_before_clip=0.0, loss_scale=-1.0, skipped=0.0))
    assert part.steps.grad_norm_before_clip is None
    assert part.steps.loss_scale is None
    assert "The norm is 0 on 50 lines while the loss moves" in notes
    assert "The loss scale is 0 or negative on 50 lines" in notes


def test_a_norm_of_zero_among_others_or_beside_a_still_loss_is_one() -> None:
    part, _ = one([*points(range(5)), *points([5], grad_norm_before_clip=0.0)])
    assert norms(part)[-1] == 0.0
    part, _ = one(points(range(5), grad_norm_before_clip=0.0, loss=1.0))
    assert norms(part) == [0.0] * 5


def test_zeros_at_the_beginning_only_are_not_recorded_either_where_they_fill_what_is_looked_at() -> None:
    zeros = points(range(NUM_HELD + 10), grad_norm_before_clip=0.0)
    part, _ = one([*zeros, *points(range(NUM_HELD + 10, NUM_HELD + 20))])
    assert norms(part)[: NUM_HELD + 10] == [None] * (NUM_HELD + 10)
    assert None not in norms(part)[NUM_HELD + 10 :]


def test_minus_one_among_norms_is_not_finite_and_alone_a_placeholder() -> None:
    part, notes = one([*points(range(5)), *points([5], grad_norm_before_clip=-1.0)])
    assert math.isnan(norms(part)[-1] or 0.0)
    assert "how DeepSpeed writes" in notes
    part, notes = one(points(range(5), grad_norm_before_clip=-1.0, skipped=0.0))
    assert part.steps.grad_norm_before_clip is None
    assert "negative on 5 lines" in notes


def test_a_skipped_step_that_repeats_the_norm_before_has_none() -> None:
    items: list[Item] = [
        Point(i, i, {"grad_norm_before_clip": norm, "skipped": skipped})
        for i, (norm, skipped) in enumerate([(2.0, 0.0), (2.0, 1.0), (2.0, 1.0), (2.0, 0.0), (3.0, 1.0)])
    ]
    part, notes = one(items)
    assert norms(part) == [2.0, None, None, 2.0, 3.0]
    assert "On 2 lines a skipped step repeats the norm" in notes


@pytest.mark.parametrize("norm", [math.inf, math.nan])
def test_skipped_steps_that_are_not_finite_one_after_another_repeat_nothing(norm: float) -> None:
    items: list[Item] = [
        Point(i, i, {"grad_norm_before_clip": norm if 3 <= i < 9 else 1.0 + i, "skipped": float(3 <= i < 9)})
        for i in range(12)
    ]
    part, notes = one(items)
    assert [str(found) for found in norms(part)[3:9]] == [str(norm)] * 6
    assert notes == ""


def test_a_norm_known_to_hold_the_loss_scale_is_divided_by_it() -> None:
    meaning = Meaning("grad_norm_before_clip", "scaled_norm", is_scaled=True)
    part, notes = one([meaning, *points([1], grad_norm_before_clip=512.0, loss_scale=256.0), *points([2])])
    assert norms(part) == [2.0, 1.01]
    assert "still multiplied by the loss scale" in notes
    assert "The norm of 1 line was divided" in notes


# Thresholds


def test_the_threshold_in_the_configuration_is_used_and_said() -> None:
    items: list[Item] = [
        Setting(1, "max_norm", 5.0, "clip_grad"), Setting(2, "max_norm", 1.0, "clip_grad"), *points(range(3)),
    ]  # fmt: skip
    part, notes = one(items)
    assert column(part, "max_norm") == [1.0] * 3, "the last wins"
    assert part.context.record.policy == "global_norm(1.0)"
    assert notes == "max_norm 1 is taken from the log's configuration (clip_grad, line 2)."
    part, notes = one(items, max_norm=2.0)
    assert (column(part, "max_norm"), part.context.record.policy, notes) == ([2.0] * 3, "global_norm(2.0)", "")


@pytest.mark.parametrize(("algorithm", "policy"), [("value", "value(0.25)"), ("norm", "global_norm(0.25)")])
@pytest.mark.parametrize("order", [1, -1])
def test_a_threshold_of_each_element_is_none_of_the_norm(algorithm: str, policy: str, order: int) -> None:
    settings: list[Item] = [
        Setting(1, "max_norm", 0.25, "gradient_clip_val"),
        Setting(2, "clip_algorithm", algorithm, "gradient_clip_algorithm"),
    ]
    part, notes = one([*settings[::order], *points(range(3))])
    assert column(part, "max_norm") == [None if algorithm == "value" else 0.25] * 3
    assert part.context.record.policy == policy
    assert ("Each element is clipped to 0.25" in notes) == (algorithm == "value")


def test_a_configuration_that_comes_late_counts_from_the_beginning() -> None:
    part, _ = one([*points(range(3)), Setting(4, "max_norm", 1.0, "clip"), *points([3])])
    assert column(part, "max_norm") == [1.0] * 4


@pytest.mark.parametrize("value", [0.0, None, -1.0])
def test_clipping_may_be_said_to_be_off(value: float | None) -> None:
    part, notes = one([Setting(7, "max_norm", value, "clip_norm"), *points(range(3))])
    assert (part.steps.max_norm, part.context.record.policy) == (None, None)
    assert "Clipping is off by the log's configuration (clip_norm, line 7)" in notes


def test_each_run_and_stream_has_its_own_configuration() -> None:
    items: list[Item] = [
        Restart(0, "banner"), Setting(1, "max_norm", 5.0, "clip"), Setting(1, "precision", "fp16", "fp16"),
        *points([1, 2, 3]),
        Restart(9, "banner"), Setting(10, "max_norm", 1.0, "clip"), *points([1, 2, 3]),
    ]  # fmt: skip
    found, _ = assembled(items)
    assert [column(part, "max_norm")[0] for part in found] == [5.0, 1.0]
    assert [part.context.record.precision for part in found] == ["fp16", wire.UNSET]
    by_stream: list[Item] = [Setting(1, "max_norm", 5.0, "clip", stream="critic"), Setting(2, "max_norm", 1.0, "clip")]
    both = [Point(0, 1, {"grad_norm_before_clip": 1.0}, stream=stream) for stream in ("actor", "critic")]
    found, _ = assembled([*by_stream, *both])
    assert {part.stream: column(part, "max_norm") for part in found} == {"actor": [1.0], "critic": [5.0]}


def test_the_rest_of_the_configuration_is_kept() -> None:
    settings: dict[str, Any] = {
        "optimizer": "AdamW", "lr": 1e-3, "precision": "fp16", "scaler": "dynamic(init_scale=65536.0)",
        "growth_interval": 1000.0, "run_name": "x\0y",
    }  # fmt: skip
    part, _ = one([*(Setting(1, name, value, name) for name, value in settings.items()), *points([1])])
    record = part.context.record
    assert (record.optimizer, record.precision) == (wire.Optimizer(class_name="AdamW", lr=1e-3), "fp16")
    assert (record.scaler, part.context.growth_interval, part.run_name) == ("dynamic(init_scale=65536.0)", 1000, "xy")
    part, _ = one(
        [Setting(1, "loss_scale", 512.0, "loss_scale"), Setting(1, "clip_value", 0.5, "clip_value"), *points([1])]
    )
    assert (part.context.record.scaler, part.context.record.policy) == ("static(512.0)", "value(0.5)")


def test_a_clip_ratio_gives_the_threshold_and_its_absence_means_not_clipped() -> None:
    items: list[Item] = [
        Point(i, i, {"grad_norm_before_clip": norm} | ({"clip_coef": round(1.0 / norm, 4)} if norm > 1 else {}))
        for i, norm in enumerate([0.5, 4.0, 0.25, 3.0, 1.7])
    ]
    part, notes = one(items)
    assert column(part, "max_norm") == [1.0] * 5
    assert column(part, "clip_coef") == [1.0, 0.25, 1.0, 0.3333, 0.5882]
    assert "worked out from the clip ratio" in notes
    assert "2 lines without it count as not clipped" in notes


def test_a_clip_ratio_on_each_line_leaves_absent_ones_alone() -> None:
    items: list[Item] = [
        Point(i, i, {"grad_norm_before_clip": 2.0} | ({} if coef is None else {"clip_coef": coef}))
        for i, coef in enumerate([0.5, 1.0, None])
    ]
    part, _ = one(items)
    assert column(part, "clip_coef") == [0.5, 1.0, None]


# What is said


def test_meanings_are_said_once_each() -> None:
    meanings: list[Item] = [
        Meaning("grad_norm_before_clip", "gnorm", stage="after_clip"),
        Meaning("grad_norm_before_clip", "gnorm", stage="after_clip"),
        Meaning("loss", "lm loss", averaged_over_steps=10, remark="Of applied steps."),
        Meaning("lr", "lr", is_per_epoch=True, significant_digits=3),
        Meaning("grad_norm_before_clip", "x", stage="unknown", averaged_over_steps=math.nan),
        Meaning("metric", "clip", remark="A percentage."),
    ]
    _, notes = one([*meanings, *points([1])])
    assert notes.splitlines() == [
        "gnorm is taken after clipping.",
        "lm loss is a mean over 10 steps. Of applied steps.",
        "lr is one value an epoch, rounded to 3 digits.",
        "x is logged without saying whether it is before or after clipping; it is taken as before, "
        "a mean over several steps.",
        "clip: A percentage.",
    ]


def test_lines_that_could_not_be_read_are_counted_and_shown() -> None:
    unread: list[Item] = [Unread(line, f"broken\n{line}.") for line in range(1, 1_001)]
    _, notes = one([*unread, *points([1])])
    assert notes == (
        "1,000 lines could not be read: line 1, broken 1; line 2, broken 2; line 3, broken 3; line 4, broken 4; "
        "line 5, broken 5; …."
    )


@pytest.mark.parametrize("every", [1, 4])
def test_minus_infinity_is_a_norm_that_is_not_finite(every: int) -> None:
    items = [
        Point(i, i, {"loss": 9.0 - i / 100, "grad_norm_before_clip": -math.inf if i % every == 0 else 1.0 + i})
        for i in range(40)
    ]
    part, notes = one(items)
    assert [norm is not None and math.isnan(norm) for norm in norms(part)] == [i % every == 0 for i in range(40)]
    assert "placeholder" not in notes
