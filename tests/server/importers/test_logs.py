"""Logs in every odd shape: what is there is read, what isn't is not made up, and nothing raises but one clear error."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradsight_server.diagnosis import diagnose
from gradsight_server.errors import NothingToReadError
from gradsight_server.importers.logs import read_logs
from tests.server.importers.kit import column, norms, only_part, read, steps, write


def test_json_lines_and_csv_say_the_same(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"step": 5, "loss": 1.5, "grad_norm": 2.0}, {"step": 10, "loss": 1.25, "grad_norm": None}
    ]  # fmt: skip
    table = "step,loss,grad_norm\n5,1.5,2.0\n10,1.25,\n"
    for content in (rows, table, "﻿" + table, table.replace(",", ";"), table.replace(",", "\t").replace("\n", "\r\n"),
                    json.dumps(rows), json.dumps(rows, indent=2), json.dumps({"a": 1, "history": rows}), "\n\n" + table,
                    json.dumps({name: [row[name] for row in rows] for name in rows[0]}), f"# {table}",
                    table.encode("utf-16")):  # fmt: skip
        log = read(tmp_path, content)
        part = only_part(log)
        assert steps(part) == [5, 10], content
        assert norms(part) == [2.0, None], "an empty cell is not a zero"
        assert column(part, "loss") == [1.5, 1.25]
        assert log.notes == ()


def test_our_own_columns_are_taken_by_their_names(tmp_path: Path) -> None:
    row = {
        "step": 0,
        "grad_norm_before_clip": "Infinity",
        "grad_norm": 1.0,
        "max_norm": 1.0,
        "loss_scale": 1024,
        "skipped": "true",
        "skip_reason": "overflow",
        "first_nonfinite_layer": "head",
        "num_nonfinite_layers": 2,
    }
    part = only_part(read(tmp_path, [row]))
    assert norms(part) == [np.inf], "ours goes before another's"
    assert column(part, "skipped") == [1.0]
    assert (part.steps.skip_reason, part.steps.first_nonfinite_layer) == (("overflow",), ("head",))


def test_names_are_told_or_given(tmp_path: Path) -> None:
    rows = [{"it": 3, "train": {"gradNorm": "1,024.5", "x": 1.0}, "my_scale": "2K"}]
    part = only_part(read(tmp_path, rows))
    assert (steps(part), norms(part), list(part.context.metrics)) == ([3], [1024.5], ["train/x", "my_scale"])
    part = only_part(read(tmp_path, rows, loss_scale="my_scale", grad_norm_before_clip="train/x"))
    assert (norms(part), column(part, "loss_scale")) == ([1.0], [2000.0])
    part = only_part(
        read(tmp_path, "tick 7: wobble=2.5\ntick 8: wobble=3.5\n", grad_norm_before_clip="wobble", step="tick")
    )
    assert (steps(part), norms(part)) == ([7, 8], [2.5, 3.5])
    part = only_part(read(tmp_path, "7,2.5\n8,3.5\n", grad_norm_before_clip="2", step="1"))
    assert (steps(part), norms(part)) == ([7, 8], [2.5, 3.5])


def test_nan_is_a_value(tmp_path: Path) -> None:
    part = only_part(
        read(tmp_path, '{"step": 0, "grad_norm": NaN}\n{"step": 1, "grad_norm": "NaN"}\n{"step": 2, "loss": 1}\n')
    )
    found = part.steps.grad_norm_before_clip
    assert found is not None
    assert found.nonfinite.tolist() == [True, True, False]


def test_cells_that_are_no_numbers_are_said(tmp_path: Path) -> None:
    content = '{"step": 0, "grad_norm": 1.0}\nhello\n{"step": 1, "grad_norm": "abc"}\n{"step": 2, "loss": 3.0, "gr'
    log = read(tmp_path, content)
    assert steps(only_part(log)) == [0]
    assert log.notes == (
        "3 lines could not be read: line 2, no JSON object; line 3, grad_norm must be a number, got 'abc'; "
        "line 4, no JSON object.",
    )


def test_rows_of_another_length_are_said(tmp_path: Path) -> None:
    log = read(tmp_path, "step,grad_norm\n0,1.0\n1\n2,3.0,4.0\n3,1.5\nstep,grad_norm\n4,1.0\n5,2.\n")
    assert steps(only_part(log)) == [0, 3, 4, 5]
    assert "2 lines could not be read: line 3, 1 cells" in log.notes[-1]


def test_decimal_commas_are_read_where_a_semicolon_sets_cells_apart(tmp_path: Path) -> None:
    assert norms(only_part(read(tmp_path, "step;grad_norm;loss\n0;1,5;0,25\n1;2,5;1\n"))) == [1.5, 2.5]


def test_a_table_set_apart_by_blanks(tmp_path: Path) -> None:
    part = only_part(read(tmp_path, "step   loss  grad_norm\n   0   2.5        1.5\n   1   2.0        1.25\n"))
    assert (steps(part), norms(part)) == ([0, 1], [1.5, 1.25])


def test_whole_objects_of_an_array_that_breaks_off_are_read(tmp_path: Path) -> None:
    log = read(tmp_path, '[{"step": 0, "grad_norm": 1.0}, {"step": 1, "grad_norm": 2.0}, {"step": 2, "gr')
    assert norms(only_part(log)) == [1.0, 2.0]
    assert "breaks off" in log.notes[0]


def test_rows_that_say_nothing_are_no_steps(tmp_path: Path) -> None:
    rows = [
        {"step": 0, "grad_norm": 1.0},
        {"step": 0, "eval_loss": 3.0},
        {"step": 1, "note": "hi"},
        {"step": 1, "loss": None},
    ]
    part = only_part(read(tmp_path, rows))
    assert steps(part) == [0]
    assert part.context.metrics["eval_loss"].values.tolist() == [3.0]


def test_other_columns_are_metrics(tmp_path: Path) -> None:
    rows = [
        {"step": step, "grad_norm": 1.0, "val_loss": step / 10 if step % 2 else None, "note": "x"} for step in range(6)
    ]
    (name, metric), *rest = only_part(read(tmp_path, rows)).context.metrics.items()
    assert (name, rest, metric.step.tolist()) == ("val_loss", [], [1, 3, 5])


def test_lines_of_names_and_numbers_are_read_by_any_program(tmp_path: Path) -> None:
    text = """
        config: max_grad_norm=0.5
        INFO 12:01:33 | step 1,000 | loss 2.5 (2.61) | grad norm: 1.5 | lr=1e-4
        [rank0]: Epoch 1 [1100/5000] train_loss: tensor(2.25, device='cuda:0'), gnorm=nan
        encoder grad norm: 77.0
        1200/5000 [00:10<01:00, 5it/s, grad_norm=2.5e-1, loss=2]
    """
    log = read(tmp_path, text)
    part = only_part(log)
    assert log.format_name == "key_value"
    assert steps(part) == [1000, 1100, 1200]
    assert [None if norm is None else str(norm) for norm in norms(part)] == ["1.5", "nan", "0.25"]
    assert column(part, "loss") == [2.5, 2.25, 2.0]
    assert column(part, "max_norm")[0] == 0.5
    assert "max_norm 0.5 is taken from the log's configuration (max_grad_norm, line 2)." in log.notes


@pytest.mark.parametrize(
    "line",
    [
        "step {} loss 2.5{} grad_norm 1.{}", "step: {} loss: 2.5{} grad_norm: 1.{}",
        "step: {}, loss: 2.5{}, gnorm: 1.{}",
        "[2026-01-01 10:00:00] step: {}; loss: 2.5{}; grad_norm: 1.{}", "iter {} | loss 2.5{} | grad_norm 1.{}",
        "Iteration {}/50\tLoss: 2.5{}\tGradNorm: 1.{}", "step    {}  loss 2.5{}  gnorm 1.{}  lr 1e-4",
        "2026-01-01 10:00:00,123 - INFO - step {} loss: 2.5{} grad_norm: 1.{}",
        "[01/01 10:00:19 d2.utils.events]:  eta: 0:10:00  iter: {}  total_loss: 2.5{}  grad_norm: 1.{}  max_mem: 800M",
        "Step {}: loss = 2.5{}, grad_norm = 1.{}", "iteration {}/99 | lr: 3e-05 | train_loss: 2.5{} | grad_norm: 1.{}",
        '{{"log": "step: {} loss: 2.5{} grad_norm: 1.{}\\n", "stream": "stdout"}}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("numbers", [range(1), range(5), range(12)])
def test_a_line_of_numbers_is_no_header_and_no_other_tools(tmp_path: Path, line: str, numbers: range) -> None:
    log = read(tmp_path, "".join(line.format(i, i, i) + "\n" for i in numbers))
    part = only_part(log)
    assert (log.format_name, steps(part)) == ("key_value", list(numbers))
    assert norms(part) == [float(f"1.{i}") for i in numbers]


def test_a_printed_configuration_takes_no_log_from_its_tool(tmp_path: Path) -> None:
    rows = "".join(f"step {i} | loss: 2.{i} | lr 6e-4 | dt: 338.1ms\n" for i in range(20))
    with pytest.raises(NothingToReadError, match=r"no gradient norm or loss scale found; found: loss, lr, "):
        read(tmp_path, "fp16: {'loss_scale': 512}\nzero: {'loss_scale': 512}\n" + rows)


def test_a_table_with_its_newest_row_first_is_read_from_its_end(tmp_path: Path) -> None:
    log = read(tmp_path, "step,grad_norm\n" + "".join(f"{10 * i},1.{i}\n" for i in range(60, 0, -1)))
    part = only_part(log)
    assert (steps(part), part.num_attempts) == ([10 * i for i in range(1, 61)], 1)
    assert norms(part)[-1] == 1.6
    assert log.notes == ("step: The newest row comes first in this table; it is read from its end.",)


def test_a_header_with_numbers_in_it_is_one(tmp_path: Path) -> None:
    assert norms(only_part(read(tmp_path, "Unnamed: 0,step,grad_norm,0,1\n0,1,1.5,7,8\n1,2,2.5,7,8\n"))) == [1.5, 2.5]


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {epoch}/4 [{i}/9] loss=2.{n} grad_norm=1.{n}",
        "Epoch {epoch}: 10%|##   | {i}/9 [00:10<00:10, 9.1it/s, v_num=3, grad_norm=1.{n}]",
        "Epoch {epoch}/4\n{i}/9 [====>....] - loss: 2.{n} - grad_norm: 1.{n}",
        "# Epoch {epoch} of 4 #\nstep {i} grad_norm 1.{n}",
    ],
)
def test_a_bar_of_each_epoch_is_counted_through(tmp_path: Path, line: str) -> None:
    places = [(epoch, i) for epoch in range(1, 5) for i in range(1, 10)]
    text = "".join(line.format(epoch=epoch, i=i, n=10 * epoch + i) + "\n" for epoch, i in places)
    part = only_part(read(tmp_path, "here we go\n" + text))
    assert steps(part) == list(range(1, 37))
    assert part.num_attempts == 1


def test_how_many_steps_there_will_be_is_no_step(tmp_path: Path) -> None:
    rows = [{"current_steps": 10 * i, "total_steps": 3000, "grad_norm": 1.0 + i} for i in range(1, 4)]
    assert steps(only_part(read(tmp_path, rows))) == [10, 20, 30]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty"), ("  \n \n", "is empty"), ("step,grad_norm\n", "no rows below"),
        ("hello world\n", "no named numbers"), (b"\x89PNG\r\n\x1a\n\x00\x00\x01\x02", "is no text"),
        ("{broken\n{also", "no named numbers"), ("[1, 2, 3]", "no named numbers"), ('{"foo": 1}\n', "found: foo"),
        ("a,b\n1,2\n", "found: a, b"), ("{}\n", "no other numbers"),
        ('{"step": 1, "loss": null}\n', "no other numbers"),
        ("step 1: loss=2.5, lr: 0.1\n" * 5, "no gradient norm or loss scale found; found: loss, lr."),
        ('{"step": 1, "loss": 2.5, "lr": 0.1}\n', "no gradient norm or loss scale found; found: loss, lr."),
        ("Step 1: loss = 2.5, lr = 0.1\n" * 5, "found: loss, lr."), ("step 1 loss 2 gn 0.1\n" * 5, "found: loss, gn."),
        ("step,loss\n1,2.5\n", "found: loss"), ("[" * 100_000, "no"), ('step\n"' + "x" * 2_000_000, "no"),
        ('{"a":' * 50_000, "no"), ("grad_norm\n" * 100, "no"),
    ],
)  # fmt: skip
def test_nothing_to_read_is_one_clear_line(tmp_path: Path, content: str | bytes, said: str) -> None:
    with pytest.raises(NothingToReadError) as raised:
        read(tmp_path, content)
    assert said in str(raised.value)
    assert str(tmp_path / "log") in str(raised.value)
    assert "\n" not in str(raised.value)


def test_missing_files_and_empty_folders_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NothingToReadError, match="no file"):
        read_logs(tmp_path / "nope")
    with pytest.raises(NothingToReadError, match="folder without"):
        read_logs(tmp_path)


def test_a_folder_gives_each_log_in_it(tmp_path: Path) -> None:
    write(tmp_path, [{"step": 0, "grad_norm": 1.0}], "b.jsonl")
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep", "step,grad_norm\n1,2.0\n", "a.csv")
    write(tmp_path, "step,loss\n1,2.0\n", "loss_only.csv")
    write(tmp_path, "nothing here", "readme.txt")
    assert [Path(log.name).name for log in read_logs(tmp_path)] == ["b.jsonl", "a.csv"]


def test_code_and_settings_in_a_folder_are_no_runs(tmp_path: Path) -> None:
    for name, text in {
        "train.py": 'print(f"{step}: grad_norm: {norm:.3f}")\nclip(grad_norm=0.3)\nassert grad_norm == 0.5\n',
        "README.md": "At step 10 grad_norm = 1.5, at step 20 grad_norm = 1.25\n", "run.sh": "a --loss_scale=2\n" * 3,
        "config.yaml": "loss_scale: 512\nmax_grad_norm: 1\n", "nb.ipynb": '{"a": "grad_norm=1.5"}\n' * 3,
        "args.txt": "max_grad_norm=1.0, loss_scale=512\n", "note.txt": "At step 10 grad_norm was: grad_norm=1.5\n",
        "ds_config.json": '{"fp16": {"loss_scale": 512, "x": 1}, "gradient_clipping": 1.0}\n',
    }.items():  # fmt: skip
        write(tmp_path, text, name)
    with pytest.raises(NothingToReadError, match="folder without"):
        read_logs(tmp_path)
    write(tmp_path, "step 1 grad_norm=1.5\nstep 2 grad_norm=1.5\n", "out.log")
    assert [Path(log.name).name for log in read_logs(tmp_path)] == ["out.log"]


@pytest.mark.parametrize("begins", ["INFO | eval step", "Validation: step", "[01/01 10:00 val] step", "  eval - step"])
def test_a_line_of_an_evaluation_is_no_step(tmp_path: Path, begins: str) -> None:
    text = "".join(f"step={i} loss=2.0 grad_norm=1.{i}\n{begins}={i} val_loss=1.5 grad_norm=0.0\n" for i in range(4))
    log = read(tmp_path, "begin\n" + text)
    assert (norms(only_part(log)), log.notes) == ([1.0, 1.1, 1.2, 1.3], ())


@pytest.mark.parametrize("line", ["step {} | val loss: 2.5 | grad_norm: 1.{}", "step={} val: 2.5 - grad_norm=1.{}"])
def test_a_step_that_tells_of_an_evaluation_too_is_one(tmp_path: Path, line: str) -> None:
    log = read(tmp_path, "begin\n" + "".join(line.format(i, i) + "\n" for i in range(4)))
    assert norms(only_part(log)) == [1.0, 1.1, 1.2, 1.3]


def test_a_label_before_each_line_is_a_rank_where_several_tell_of_one_step(tmp_path: Path) -> None:
    text = "".join(f"{rank}: step={i} loss=2.0 grad_norm={i + rank}.5\n" for i in range(8) for rank in range(3))
    part = only_part(read(tmp_path, text))
    assert norms(part) == [i + 0.5 for i in range(8)]
    assert part.context.rank_norms[2].tolist() == [i + 2.5 for i in range(8)]
    part = only_part(read(tmp_path, "".join(f"{i}: step={i} loss=2.0 grad_norm={i}.5\n" for i in range(8))))
    assert (norms(part), part.context.rank_norms) == ([i + 0.5 for i in range(8)], {})


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 1, Step {}, Loss 2.5, Grad norm 1.{}", "step {} | loss 2.5 | grad norm 1.{} | loss scale 65,536",
        "step {} Train l2_norm/grad/global: 1.{} encoder grad norm 9 max grad norm 1.0",
    ],
)  # fmt: skip
def test_a_name_of_two_words_needs_no_sign_before_its_number(tmp_path: Path, line: str) -> None:
    part = only_part(read(tmp_path, "begin\n" + "".join(line.format(i, i) + "\n" for i in range(5))))
    assert (steps(part), norms(part)) == ([0, 1, 2, 3, 4], [1.0, 1.1, 1.2, 1.3, 1.4])


def test_what_a_tracker_sums_up_at_the_end_is_no_step(tmp_path: Path) -> None:
    text = "step=1 grad_norm=1.5\nstep=2 grad_norm=2.5\nwandb: Run summary:\n"
    text += "wandb:  train/grad_norm 2.5\n(Worker pid=3) wandb:  step 2\n(Worker pid=3) wandb: grad_norm 2.5\n"
    part = only_part(read(tmp_path, text))
    assert (steps(part), norms(part)) == ([1, 2], [1.5, 2.5])


def test_a_step_may_stand_beside_how_many_there_will_be(tmp_path: Path) -> None:
    rows = [{"global_step/max_steps": f"{10 * i}/100", "grad_norm": 1.0 + i} for i in range(1, 4)]
    log = read(tmp_path, rows)
    assert (steps(only_part(log)), log.notes) == ([10, 20, 30], ())


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("step,my_norm,loss\n1,2.5,3\n2,2.5,3\n", "step, my_norm, loss"),
        ('{"step": 1, "x": {"my_norm": 2.5}}\n{"step": 2, "x": {"my_norm": 2.5}}\n', "step, my_norm"),
        ("begin\nstep=1 my_norm=2.5\nstep=2 my_norm=2.5\n", "step, my_norm"),
    ],
)  # fmt: skip
def test_a_column_a_person_names_must_be_there(tmp_path: Path, content: str, names: str) -> None:
    norm = "x/my_norm" if "{" in content else "my_norm"
    wrongs: list[dict[str, str]] = [{"grad_norm_before_clip": "foo"}, {"grad_norm_before_clip": norm, "step": "foo"}]
    for wrong in wrongs:
        with pytest.raises(NothingToReadError) as raised:
            read(tmp_path, content, max_norm=None, **wrong)
        assert str(raised.value).endswith(f"no column 'foo'; found: {names}.")
    assert norms(only_part(read(tmp_path, content, grad_norm_before_clip=norm, step="step"))) == [2.5, 2.5]


def test_gradient_clip_algorithm_is_read(tmp_path: Path) -> None:
    log = read(tmp_path, "gradient_clip_val: 0.25\ngradient_clip_algorithm: value\nstep=1 grad_norm=1.5\n")
    assert only_part(log).context.record.policy == "value(0.25)"


def test_a_packed_log_is_read_like_another(tmp_path: Path) -> None:
    import gzip

    rows: list[dict[str, Any]] = [{"step": step, "grad_norm": 1.0 + step} for step in range(100)]
    raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert norms(only_part(read(tmp_path, gzip.compress(raw)))) == [1.0 + step for step in range(100)]


def test_what_a_log_tells_in_words_is_a_note(tmp_path: Path) -> None:
    line = "Train: [{}/9][{}/10]\tlr 0.001\tloss 2.0 (2.0)\tgrad_norm 1.5 ({})\tloss_scale 1024.0 (1024.0)\n"
    lines = [line.format(epoch, i, "1.5" if i < 5 else "inf") for epoch in range(7) for i in range(10)]
    log = read(tmp_path, "".join(lines))
    assert log.format_name == "swin"
    told = [note for note in log.notes if "not finite" in note]
    assert told[0] == "Line 6: The mean norm since the start of epoch 0 is inf: a step of it was not finite."
    assert (len(told), log.notes[-1]) == (5, "2 more lines like the last.")


def test_a_persons_word_on_columns_goes_over_a_tools_own_format(tmp_path: Path) -> None:
    text = "".join(f"s:{i} trl:2.5 lr:0.000600 norm:{i}.5 mine:{i + 100}.25\n" for i in range(60))
    part = only_part(read(tmp_path, text, grad_norm_before_clip="mine", step="s"))
    assert norms(part) == [i + 100.25 for i in range(60)]
    assert steps(part) == list(range(60))


@pytest.mark.parametrize(("power", "fits"), [(0.5, True), (0.25, False)])
def test_columns_of_layers_are_layers_and_must_add_up_to_the_total(tmp_path: Path, power: float, fits: bool) -> None:
    text = "step,grad_2.0_norm/fc.weight,grad_2.0_norm/fc.bias,grad_2.0_norm_total,grad_norm_percentile\n" + "".join(
        f"{i},{3.0 + i % 2},{4.0 + i % 3},{((3.0 + i % 2) ** 2 + (4.0 + i % 3) ** 2) ** power!r},99\n"
        for i in range(400)
    )
    part = only_part(read(tmp_path, text))
    assert part.steps.layers is not None
    assert part.steps.layers.names == ("fc.weight", "fc.bias")
    codes = [finding.code for finding in diagnose(part.steps).findings]
    assert ("layers_do_not_add_up" in codes) is not fits


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_of_a_long_table_with_its_newest_row_first_every_row_is_read(tmp_path: Path, kind: str) -> None:
    rows = [(i, 2.0 + i / 7, 1.0 + i % 5) for i in reversed(range(5_000))]
    names = ("step", "loss", "grad_norm")
    if kind == "csv":
        text = ",".join(names) + "\n" + "".join(f"{i},{loss!r},{norm!r}\n" for i, loss, norm in rows)
    else:
        text = "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    log = read(tmp_path, text)
    part = only_part(log)
    assert steps(part) == list(range(5_000))
    assert norms(part) == [norm for _, _, norm in reversed(rows)]
    assert part.num_attempts == 1
    assert "newest row comes first" in log.notes[0]


def test_two_optimizers_norms_in_one_row_are_two_streams(tmp_path: Path) -> None:
    rows = [
        {"it": i, "gen": {"grad_norm": 1.0 + i, "loss": 0.5}, "disc/grad_norm": 2.0 + i, "lr": 0.1, "fps": 9}
        for i in range(9)
    ]
    first, second = read(tmp_path, rows).parts
    assert (first.stream, second.stream) == ("generator", "discriminator")
    assert norms(first) == [1.0 + i for i in range(9)]
    assert norms(second) == [2.0 + i for i in range(9)]
    assert steps(first) == steps(second) == list(range(9))
    assert column(first, "lr") == column(second, "lr") == [0.1] * 9
    assert (column(first, "loss"), column(second, "loss")) == ([0.5] * 9, [None] * 9)
    assert (list(first.context.metrics), list(second.context.metrics)) == (["fps"], [])


def test_beside_a_norm_of_all_the_optimizers_norms_are_metrics(tmp_path: Path) -> None:
    rows = [{"it": i, "grad_norm": 3.0, "gen/grad_norm": 1.0, "disc/grad_norm": 2.0} for i in range(9)]
    assert norms(only_part(read(tmp_path, rows))) == [3.0] * 9


@pytest.mark.parametrize(
    "header",
    [
        "[batch={step}/900]:",
        "2024-05-01 10:00:00.123\thost:0\ttrain:967\tINFO\t[step={step}/900,epoch=0]",
        "[epoch=2/9][batch={within}/25]:",
        "=== Step {step} ===",
    ],
)
def test_a_step_on_a_line_of_its_own_is_that_of_the_lines_below(tmp_path: Path, header: str) -> None:
    text = "".join(
        header.format(step=i, within=i - 50)
        + f"\n\t Train loss/train/total: 2.5\n\t Train l2_norm/grad/global: {i}.5\n"
        f"\t loss scale: 1024\n"
        for i in range(50, 75)
    )
    part = only_part(read(tmp_path, text))
    assert steps(part) == list(range(50, 75))
    assert norms(part) == [i + 0.5 for i in range(50, 75)]
    assert column(part, "loss_scale") == [1024.0] * 25


def test_a_step_that_is_told_once_is_not_that_of_all_lines_after(tmp_path: Path) -> None:
    part = only_part(read(tmp_path, "Step 100:\n" + "".join(f"grad norm: {i}.5\n" for i in range(9))))
    assert norms(part) == [i + 0.5 for i in range(9)]


@pytest.mark.parametrize(
    ("whole", "cut", "rest"),
    [
        ("step {i} loss 2.0 grad_norm {i}.5\n", "step 9 loss 2.0 grad_norm 2", "00.5\n"),
        ("step,grad_norm\n{i},{i}.5\n", "9,1.000e", "-05\n"),
        ("step,grad_norm\n{i},{i}.5\n", "9,1.", "5\n"),
        ('{{"step": {i}, "grad_norm": {i}.5}}\n', '{"step": 9, "grad_norm": 2', "00.5}\n"),
        ("s:{i} trl:2.5 lr:0.0006 norm:{i}.5\n", "s:9 trl:2.5 lr:0.0006 norm:2", ".5\n"),
    ],
)
def test_a_number_that_the_end_of_the_file_cuts_is_not_taken(tmp_path: Path, whole: str, cut: str, rest: str) -> None:
    *head, line = whole.splitlines(keepends=True)
    text = "".join(head) + "".join(line.format(i=i) for i in range(9))
    log = read(tmp_path, text + cut)
    assert steps(only_part(log)) == list(range(9))
    assert ("no JSON object" if whole.startswith("{{") else "the last line is cut") in log.notes[-1]
    log = read(tmp_path, text + cut + rest)
    assert steps(only_part(log)) == list(range(10))
    assert "cut" not in " ".join(log.notes)


def test_a_last_line_without_an_end_that_is_whole_is_taken(tmp_path: Path) -> None:
    lines = ('{{"step": {i}, "grad_norm": {i}.5}}', "step {i} [grad_norm {i}.5]", "step {i} loss 2.0 grad_norm {i}.5")
    for line in lines:
        log = read(tmp_path, "\n".join(line.format(i=i) for i in range(9)))
        assert (steps(only_part(log)), log.notes) == (list(range(9)), ())


def test_words_at_the_end_of_a_cut_file_are_read(tmp_path: Path) -> None:
    text = "".join(f"step {i} loss 2.0 grad_norm {i}.5\n" for i in range(9))
    log = read(tmp_path, text + "took 12.5")
    assert (steps(only_part(log)), log.notes) == (list(range(9)), ())


def test_places_in_a_table_of_blanks_without_names(tmp_path: Path) -> None:
    text = "".join(f"{i} {i + 100.5} 2.0 {i}.5\n" for i in range(60))
    part = only_part(read(tmp_path, text, step="1", grad_norm_before_clip="4"))
    assert steps(part) == list(range(60))
    assert norms(part) == [i + 0.5 for i in range(60)]
    with pytest.raises(NothingToReadError, match="no column '9'; found: 1, 2, 3, 4"):
        read(tmp_path, text, step="1", grad_norm_before_clip="9")


def test_a_decimal_comma_in_a_line_is_said_and_none_of_it_taken(tmp_path: Path) -> None:
    lines = [f"step {i} loss 2.0 grad_norm {'12,5' if i == 3 else '0,956' if i == 4 else '1.5'} done" for i in range(9)]
    log = read(tmp_path, "\n".join([*lines, ""]))
    assert steps(only_part(log)) == [0, 1, 2, 5, 6, 7, 8]
    assert "2 lines could not be read" in log.notes[-1]


@pytest.mark.parametrize("digits", ["9" * 45, "1" + "0" * 300])
def test_a_norm_of_many_digits_is_read(tmp_path: Path, digits: str) -> None:
    for template in ("step {i} loss 2.0 grad_norm {norm} done\n", "step={i}, loss=2.0, grad_norm={norm}\n"):
        text = "".join(template.format(i=i, norm=digits if i == 4 else "1.5") for i in range(9))
        assert norms(only_part(read(tmp_path, text)))[4] == float(digits)


@pytest.mark.parametrize("odd", ["007.5", "\u0663.5", "7."])
def test_what_is_no_json_is_none_among_many_lines_either(tmp_path: Path, odd: str) -> None:
    text = "".join(f'{{"step": {i}, "grad_norm": {odd if i == 30 else "1.5"}}}\n' for i in range(60))
    log = read(tmp_path, text)
    assert steps(only_part(log)) == [i for i in range(60) if i != 30]
    assert "line 31, no JSON object" in log.notes[-1]


@pytest.mark.parametrize("num", [12, 3_000])
def test_a_table_newest_first_may_have_two_rows_a_step(tmp_path: Path, num: int) -> None:
    rows = (f"{i},{i}.25,\n{i},,{i}.5\n" for i in reversed(range(num)))
    part = only_part(read(tmp_path, "step,loss,grad_norm\n" + "".join(rows)))
    assert (steps(part), part.num_attempts) == (list(range(num)), 1)
    assert norms(part) == [i + 0.5 for i in range(num)]
    assert column(part, "loss") == [i + 0.25 for i in range(num)]


def test_ten_falling_steps_turn_a_table_round_read_as_columns_or_not(tmp_path: Path) -> None:
    falling = [*range(9, -1, -1), 50, *range(40, 30, -1)]
    for odd in (" ", "  "):
        rows = (f'{{"step":{odd if i % 2 else " "}{step}, "grad_norm": 1.5}}\n' for i, step in enumerate(falling))
        assert "newest row comes first" in read(tmp_path, "".join(rows)).notes[0]
