"""Which number of a line is its step: none with a unit, none that counts or lasts, of fractions the one that rises."""

from pathlib import Path

import pytest

from tests.server.importers.kit import column, norms, only_part, read, steps

NUM = 60


def line_of(template: str, i: int) -> str:
    return template.format(i=i, left=NUM - i, ms=50 + i % 7, right=60 + i * 37 % 68, seen=128 * i, norm=f"1.{i:02}")


@pytest.mark.parametrize(
    "template",
    [
        " [>..]  Step: {ms}ms | Tot: 1m | Loss: 0.5 | grad_norm: {norm} | Acc: 30.1% ({right}/{seen}) {i}/391",
        "Epoch [1/3] Batch [{i}/391] Loss: 0.5 grad_norm: {norm} Correct: {right}/128",
        "[{i}/391] loss: 0.5 grad_norm: {norm} acc: {right}/128",
        "epoch 0 [{i}/50000] loss 0.5 grad_norm {norm} mem {ms}/80",
        "Step: {ms} ms | loss: 0.5 | grad_norm: {norm} | {i}/391 | queue {ms}/64",
        "iter {i:8d} loss 0.5 grad_norm: {norm} skipped iterations: 0",
        "iter: {i:6d} remaining steps: {left} loss 0.5 grad_norm: {norm}",
        "remaining steps {left} max steps 300 step {i} loss 0.5 grad_norm {norm}",
        "time per step: {ms} | iteration: {i} | loss: 0.5 | grad_norm: {norm}",
        "num_steps: 300, update: 9, iteration: {i}, loss: 0.5, grad_norm: {norm}",
        "num_updates={i} loss=0.5 grad_norm={norm}",
        "{i}/300 {ms}ms/step - loss: 0.5 - grad_norm: {norm} - acc: {right}/128",
    ],
)
def test_the_number_that_is_the_step_is_taken(tmp_path: Path, template: str) -> None:
    log = read(tmp_path, "".join(line_of(template, i) + "\n" for i in range(1, NUM)))
    part = only_part(log)
    assert steps(part) == list(range(1, NUM)), log.notes
    assert norms(part) == [float(f"1.{i:02}") for i in range(1, NUM)]
    assert column(part, "loss") == [0.5] * (NUM - 1)
    assert part.num_attempts == 1


@pytest.mark.parametrize(
    "template",
    [
        "Step: {ms}ms loss 0.5 grad_norm {norm}",
        "loss 0.5 grad_norm {norm} correct {right}/128",
        "loss 0.5 grad_norm {norm} acc: 30.1% ({right}/{seen})",
        "skipped iterations: 0 total steps: 300 loss 0.5 grad_norm {norm}",
    ],
)
def test_where_no_number_is_the_step_lines_are_counted(tmp_path: Path, template: str) -> None:
    log = read(tmp_path, "".join(line_of(template, i) + "\n" for i in range(1, NUM)))
    assert steps(only_part(log)) == list(range(NUM - 1))
    assert "no step numbers" in " ".join(log.notes)


def test_a_count_that_begins_again_with_an_epoch_is_counted_through(tmp_path: Path) -> None:
    lines = [
        f"Epoch: {epoch} | loss: 0.5 | grad_norm: 1.{i} | acc ({i * 7 % 5}/5) | {i}/4\n"
        for epoch in range(1, 10)
        for i in range(1, 5)
    ]
    assert steps(only_part(read(tmp_path, "".join(lines)))) == list(range(1, 37))


@pytest.mark.parametrize(
    "template",
    [
        "step {i} loss {i}.25\nstep {i} grad_norm {norm}\n",
        "step {i} grad_norm {norm}\nstep {i} loss {i}.25 lr 0.1\n",
        "Step {i}\n  loss: {i}.25\n  grad_norm: {norm}\n",
        "=== Step {i}/100 ===\nloss: {i}.25\ngrad_norm: {norm}\nval_loss: 1.0\n\n",
        "[step={i}/100]\n\ttrain/loss: {i}.25\n\toptim/grad_norm: {norm}\n",
        "step {i} loss {i}.25\nstep {i} eval loss: 9.0\nstep {i} grad_norm {norm}\n",
    ],
)
def test_a_steps_loss_on_one_line_and_its_norm_on_another_are_one_step(tmp_path: Path, template: str) -> None:
    part = only_part(read(tmp_path, "".join(line_of(template, i) for i in range(1, NUM))))
    assert steps(part) == list(range(1, NUM))
    assert norms(part) == [float(f"1.{i:02}") for i in range(1, NUM)]
    assert column(part, "loss") == [i + 0.25 for i in range(1, NUM)]


def test_a_loss_of_no_step_or_of_one_without_a_norm_makes_no_step(tmp_path: Path) -> None:
    lines = [f"loss {i}.5\nstep {i} loss 2.0\n" + f"step {i} grad_norm 1.{i}\n" * (i % 3 == 0) for i in range(9)]
    part = only_part(read(tmp_path, "begin\n" + "".join(lines)))
    assert steps(part) == [0, 3, 6]
    assert column(part, "loss") == [2.0, 2.0, 2.0]
