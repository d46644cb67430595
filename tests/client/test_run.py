"""Run: what it refuses, what it says, what it sends, and that it never disturbs the process it lives in."""

import math
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import gradsight
from gradsight import spool, wire
from gradsight.errors import ConfigurationError
from gradsight.given_layers import MAX_SETS
from gradsight.transport import MemoryTransport, send_spooled
from tests.client.conftest import NOBODY, layer_rows, rows, sent


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param({"project": ""}, "characters (none of them NUL), got ''", id="project"),
        pytest.param({"name": 7}, "characters (none of them NUL), got 7", id="name"),
        pytest.param({"tags": "one"}, "tags must be a list of texts, got 'one'", id="tags"),
        pytest.param({"config": [1]}, "config must be a mapping, got [1]", id="config"),
        pytest.param({"total_steps": 0}, "total_steps must be a whole number from 1 on, got 0", id="total_steps"),
        pytest.param({"spool_dir": 7}, "spool_dir must be the path of a folder, got 7", id="spool_dir"),
        pytest.param({"spool_dir": "a\0b"}, "spool_dir must be the path of a folder, got 'a", id="NUL in spool_dir"),
        pytest.param({"resume": "abc"}, "resume must be a run id of 32 hex digits, got 'abc'", id="resume"),
        pytest.param({"mode": "later"}, "mode must be 'online', 'offline' or 'disabled', got 'later'", id="mode"),
    ],
)
def test_wrong_arguments_are_refused_at_construction(arguments: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        gradsight.Run(**{"mode": "disabled", "spool_dir": tmp_path, **arguments})
    assert told in str(refused.value)


def test_every_rank_needs_one_run_id_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigurationError, match="all_ranks needs one GRADSIGHT_RUN_ID"):
        gradsight.Run(all_ranks=True, mode="disabled")


def test_without_a_server_it_says_so_once_and_spools(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with gradsight.Run(server=NOBODY, spool_dir=tmp_path) as run:
        for step in range(10):
            run.log_step(step, loss=1.0)
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"no server answers at {NOBODY}; spooling to {tmp_path}" in said.err
    assert rows(sent(run))["step"] == list(range(10))


def test_log_step_works_out_the_ratio_and_keeps_nonfinite_numbers(run: gradsight.Run) -> None:
    run.log_step(0, grad_norm_before_clip=4.0, max_norm=1.0, layer_norms={"a": 3.0, "b": None})
    run.log_step(1, grad_norm_before_clip=math.nan, max_norm=1.0, layer_norms={"a": math.inf, "b": 1.0})
    transport = sent(run)
    recorded = rows(transport)
    assert recorded["clip_coef"] == [pytest.approx(0.25), 1.0]
    assert math.isnan(float(str(recorded["grad_norm_before_clip"][1])))
    assert layer_rows(transport) == [(0, (3.0, -1.0)), (1, (math.inf, 1.0))]


@pytest.mark.parametrize("step", [-1, 2**53, 1.5, "1", None, True])
def test_a_wrong_step_is_counted_and_does_not_raise(step: Any, run: gradsight.Run) -> None:
    run.log_step(step, loss=1.0)
    run.log_step(0, loss=1.0)
    assert run.num_dropped == {"bad_value": 1}
    transport = sent(run)
    assert rows(transport)["step"] == [0]
    assert transport.batches[-1][2].dropped == {"bad_value": 1}


def test_a_value_that_is_no_number_is_counted(run: gradsight.Run) -> None:
    run.log_step(0, loss="high")  # type: ignore[arg-type]
    run.log_step(0, layer_norms=[1.0])  # type: ignore[arg-type]
    run.log_metrics(0, {"accuracy": "good"})  # type: ignore[dict-item]
    run.log_metrics(0, None)  # type: ignore[arg-type]
    run.log_event(7)  # type: ignore[arg-type]
    assert run.num_dropped == {"bad_value": 5}


@pytest.mark.parametrize(
    "given", [True, 1, 1.0, numpy.True_, numpy.int64(1), torch.tensor(True), torch.ones(1)], ids=repr
)
def test_a_step_is_skipped_by_any_kind_of_truth(given: Any, run: gradsight.Run) -> None:
    run.log_step(0, skipped=given)
    run.log_step(1, skipped=given == 0)
    assert rows(sent(run))["skipped"] == [True, False]


def test_each_choice_among_the_same_layers_is_kept(run: gradsight.Run) -> None:
    """As with experts, of which other ones are at work at each step."""
    chosen = [random.Random(step).sample(range(16), 4) for step in range(500)]
    for step, experts in enumerate(chosen):
        run.log_step(step, loss=1.0, layer_norms={f"expert.{expert}": float(expert + 1) for expert in experts})
    transport = sent(run)
    assert run.num_dropped == {}
    assert rows(transport)["step"] == list(range(500))
    assert norms_by_name(transport) == {
        step: {f"expert.{expert}": float(expert + 1) for expert in experts} for step, experts in enumerate(chosen)
    }


def test_a_step_without_layers_or_in_another_order_is_what_it_says(run: gradsight.Run) -> None:
    run.log_step(0, layer_norms={"a": 1.0, "b": 2.0})
    run.log_step(1, loss=1.0, layer_norms={})
    run.log_step(2, layer_norms={"b": 3.0, "a": None})
    run.log_step(3, stream="other", layer_norms={"a": 4.0, "b": 5.0})
    transport = sent(run)
    assert layer_rows(transport) == [(0, (1.0, 2.0)), (2, (-1.0, 3.0)), (3, (4.0, 5.0))]
    assert [batch.layers for _, _, batch in transport.batches if batch.layers] == [["a", "b"]]


def test_past_the_bound_of_sets_only_names_that_are_new_are_left_out_and_counted(run: gradsight.Run) -> None:
    for step in range(200):
        run.log_step(step, loss=1.0, layer_norms={"trunk": 1.0, f"of step {step}": 2.0})
    run.log_step(200, stream="other", loss=1.0, layer_norms={"of another stream": 1.0})
    transport = sent(run)
    assert run.num_dropped == {"too_many_layer_sets": 200 - MAX_SETS + 1}
    assert rows(transport)["step"] == list(range(200))
    assert rows(transport, "other")["step"] == [200]
    kept = norms_by_name(transport)
    assert list(kept) == list(range(200))
    assert kept[MAX_SETS - 1] == {"trunk": 1.0, f"of step {MAX_SETS - 1}": 2.0}
    assert kept[199] == {"trunk": 1.0}


def norms_by_name(transport: MemoryTransport) -> dict[int, dict[str, float]]:
    """By step the norms of the layers that had a gradient."""
    names: dict[str | None, list[wire.LayerNames]] = {}
    found: dict[int, dict[str, float]] = {}
    for _, _, batch in transport.batches:
        if batch.layers is not None:
            names[batch.layers_id] = batch.layers
        if isinstance(batch.layer_norms, bytes):
            values = memoryview(batch.layer_norms).cast("f").tolist()
            layers = names[batch.layers_id]
            for i, step in enumerate(batch.layer_step):
                row = values[i * len(layers) : (i + 1) * len(layers)]
                found[step] = {str(name): norm for name, norm in zip(layers, row, strict=True) if norm >= 0}
    return found


def test_metrics_stop_at_32_names(run: gradsight.Run) -> None:
    run.log_metrics(3, {f"m{i}": i for i in range(40)})
    assert run.num_dropped == {"bad_value": 8}
    metrics = [metric for _, _, batch in sent(run).batches for metric in batch.metrics]
    assert [(metric.step, metric.name, metric.value) for metric in metrics][:2] == [(3, "m0", 0.0), (3, "m1", 1.0)]
    assert len(metrics) == 32


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda run: run.log_step(1, stream=5, loss=1.0), id="stream as a number"),
        pytest.param(lambda run: run.log_step(1, stream=None, loss=1.0), id="no stream"),
        pytest.param(lambda run: run.log_step(1, layer_norms={"": 1.0}), id="layer without a name"),
        pytest.param(lambda run: run.log_step(1, layer_norms={"x" * 2000: 1.0}), id="layer with a huge name"),
        pytest.param(lambda run: run.log_step(1, layer_norms={1: 1.0}), id="layer named by a number"),
        pytest.param(lambda run: run.log_step(1, loss=torch.zeros(2)), id="a vector as a loss"),
        pytest.param(lambda run: run.log_metrics(1, {"a\ud800": 1.0}), id="half a surrogate pair"),
        pytest.param(lambda run: run.log_metrics(1, {"a": 1.0}, stream="a\0"), id="NUL in a stream"),
        pytest.param(lambda run: run.log_event("a\0b"), id="NUL in a kind"),
        pytest.param(lambda run: run.log_step(1, stream="..", loss=1.0), id="a way up as a stream"),
        pytest.param(lambda run: run.log_step(1, stream="a\nb", loss=1.0), id="two lines as a stream"),
        pytest.param(lambda run: run.log_metrics(1, {"a": 1.0}, stream="a/../b"), id="a way up in a stream"),
        pytest.param(lambda run: run.log_event("note", stream="."), id="a dot as a stream"),
        pytest.param(lambda run: run.log_step(1, skipped="no"), id="a text as a truth"),
        pytest.param(lambda run: run.log_step(1, skipped=2), id="two as a truth"),
        pytest.param(lambda run: run.log_step(1, skipped=math.nan), id="NaN as a truth"),
        pytest.param(lambda run: run.log_step(1, skipped=torch.zeros(2)), id="a vector as a truth"),
    ],
)
def test_a_bad_call_is_counted_and_harms_nothing_else(
    call: Callable[[gradsight.Run], None], run: gradsight.Run
) -> None:
    run.log_step(0, loss=1.0)
    call(run)
    run.log_step(2, loss=1.0)
    assert run.num_dropped == {"bad_value": 1}
    assert rows(sent(run))["step"] == [0, 2]


def test_an_odd_message_is_sent_as_text(run: gradsight.Run) -> None:
    run.log_event("note", message="a\0b\ud800" + "x" * 5000)
    events = [event for _, _, batch in sent(run).batches for event in batch.events]
    assert events[0].message.startswith("a\N{REPLACEMENT CHARACTER}b?x")
    assert len(events[0].message) == 4096


def test_a_loss_with_a_graph_is_logged_without_a_warning(run: gradsight.Run) -> None:
    run.log_step(0, loss=torch.ones((), requires_grad=True) * 2)  # type: ignore[arg-type]
    assert rows(sent(run))["loss"] == [2.0]


def test_a_run_of_other_streams_ends_on_one_of_them(run: gradsight.Run) -> None:
    run.log_step(0, stream="generator", loss=1.0)
    run.log_step(0, stream="discriminator", loss=1.0)
    streams = {stream for _, stream, _ in sent(run).batches}
    assert streams == {"generator", "discriminator"}


@pytest.mark.parametrize(("code", "status"), [(0, "finished"), (None, "finished"), (1, "failed")])
def test_leaving_the_block_by_exit_counts_by_its_code(code: int | None, status: str, tmp_path: Path) -> None:
    run = gradsight.Run(spool_dir=tmp_path, mode="offline", quiet=True)
    with pytest.raises(SystemExit), run:
        sys.exit(code)
    assert [event.kind for _, _, batch in sent(run).batches for event in batch.events] == [status]


def test_a_spool_that_cannot_be_written_is_told_at_the_start_and_counted_at_the_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder")
    run = gradsight.Run(server=NOBODY, spool_dir=tmp_path / "file" / "spool")
    assert "cannot be written" in capfd.readouterr().err
    run.log_step(0, loss=1.0)
    run.finish()
    assert run.num_dropped == {"spool_full": 1}
    assert capfd.readouterr() == ("", "")


def test_a_working_directory_that_is_gone_ends_no_training(tmp_path: Path) -> None:
    code = (
        "import gradsight, os\n"
        "os.rmdir(os.getcwd())\n"
        "with gradsight.Run(server='http://127.0.0.1:9', spool_dir='spool') as run: run.log_step(0, loss=1.0)\n"
        "assert run.num_dropped == {'spool_full': 1}, run.num_dropped\n"
    )
    (tmp_path / "gone").mkdir()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "gone", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cannot be written" in done.stderr


def test_a_greeting_that_cannot_be_said_ends_no_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull, "w") as closed:
        pass
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        gradsight.Run(spool_dir=tmp_path, mode="offline").finish()


def test_finishing_twice_ends_it_once_and_later_rows_are_counted(run: gradsight.Run) -> None:
    run.log_step(0, loss=1.0)
    run.finish()
    run.finish()
    run.log_step(1, loss=1.0)
    assert run.num_dropped == {"after_finish": 1}
    events = [event.kind for _, _, batch in sent(run).batches for event in batch.events]
    assert events == ["finished"]


def test_an_exception_in_the_block_gives_status_failed(tmp_path: Path) -> None:
    run = gradsight.Run(spool_dir=tmp_path, mode="offline", quiet=True)
    with pytest.raises(ZeroDivisionError), run:
        run.log_step(0, loss=1 / 0)
    assert [event.kind for _, _, batch in sent(run).batches for event in batch.events] == ["failed"]


def test_finish_refuses_another_status(run: gradsight.Run) -> None:
    with pytest.raises(ConfigurationError, match="status must be 'finished' or 'failed', got 'done'"):
        run.finish("done")  # type: ignore[arg-type]


def test_a_disabled_run_makes_no_thread_and_no_file(tmp_path: Path) -> None:
    before = threading.active_count()
    run = gradsight.Run(spool_dir=tmp_path, mode="disabled")
    run.log_step(0, loss=1.0)
    run.log_metrics(0, {"a": 1.0})
    run.log_event("note")
    run.finish()
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []


def test_ranks_beyond_zero_record_nothing_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not gradsight.Run(spool_dir=tmp_path, mode="offline").is_recording
    monkeypatch.setenv("GRADSIGHT_RUN_ID", "a" * 32)
    with gradsight.Run(spool_dir=tmp_path, mode="offline", all_ranks=True, quiet=True) as run:
        run.log_step(0, loss=1.0)
    assert run.id == "a" * 32
    assert [batch.rank for _, _, batch in sent(run).batches if batch.step] == [[1]]


def test_ranks_of_one_launch_share_an_attempt_and_a_restart_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradsight.launch import attempt_id

    monkeypatch.setenv("MASTER_PORT", "29500")
    first = attempt_id("a" * 32, all_ranks=True)
    assert attempt_id("a" * 32, all_ranks=True) == first
    monkeypatch.setenv("MASTER_ADDR", "\udcff")  # bytes that are not UTF-8
    assert attempt_id("a" * 32, all_ranks=True) != first
    monkeypatch.delenv("MASTER_ADDR")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert attempt_id("a" * 32, all_ranks=True) != first
    assert attempt_id("a" * 32, all_ranks=False) != attempt_id("a" * 32, all_ranks=False)


def test_an_attempt_id_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADSIGHT_ATTEMPT_ID", "\udcff")
    with pytest.raises(ConfigurationError, match="GRADSIGHT_ATTEMPT_ID must be a text"):
        gradsight.Run(spool_dir=tmp_path, mode="offline", quiet=True)


def test_resuming_is_a_new_attempt_of_the_same_run_and_keeps_its_name(tmp_path: Path) -> None:
    first = gradsight.Run("p", "n", config={"lr": 1}, spool_dir=tmp_path, mode="offline", quiet=True)
    first.log_step(0, loss=1.0)
    first.finish()
    second = gradsight.Run(resume=first.id, spool_dir=tmp_path, mode="offline", quiet=True)
    second.log_step(1, loss=1.0)
    transport = sent(second)
    assert second.id == first.id
    assert len({batch.attempt_id for _, _, batch in transport.batches}) == 2
    name_of_last = transport.runs[first.id][-1].name
    assert name_of_last is wire.UNSET


def test_config_shows_what_json_cannot_carry_as_text(tmp_path: Path) -> None:
    config = {"lr": 1e-3, "none": None, "path": Path("x"), "nan": math.nan, "nested": {"a": (1, 2)}, "big": 2**70}
    with gradsight.Run(config=config, spool_dir=tmp_path, mode="offline", quiet=True) as run:
        pass
    sent_config = sent(run).runs[run.id][0].config
    assert sent_config == {
        "lr": 1e-3,
        "none": None,
        "path": repr(Path("x")),
        "nan": "NaN",
        "nested": {"a": [1, 2]},
        "big": str(2**70),
    }


def script(code: str, tmp_path: Path, *, expected: int = 0) -> None:
    """Run a script of a user's, with its spool in the test's folder."""
    environment = {**os.environ, "GRADSIGHT_SPOOL_DIR": str(tmp_path), "GRADSIGHT_SERVER": NOBODY}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == expected, result.stderr


def events_and_steps(tmp_path: Path) -> tuple[list[str], list[int]]:
    transport = MemoryTransport()
    send_spooled(tmp_path, transport)
    batches = [batch for _, _, batch in transport.batches]
    events = [event.kind for batch in batches for event in batch.events]
    return events, [step for batch in batches for step in batch.step]


def test_a_script_that_forgets_to_finish_is_flushed_at_exit(tmp_path: Path) -> None:
    script("import gradsight\nrun = gradsight.Run()\nfor i in range(50): run.log_step(i, loss=1.0)", tmp_path)
    assert events_and_steps(tmp_path) == (["finished"], list(range(50)))


def test_a_script_that_dies_of_an_exception_is_failed(tmp_path: Path) -> None:
    code = "import gradsight\nrun = gradsight.Run()\nrun.log_step(0, loss=1.0)\nraise SystemError('no')"
    script(code, tmp_path, expected=1)
    assert events_and_steps(tmp_path) == (["failed"], [0])


def test_a_script_killed_outright_loses_at_most_the_newest_200_ms(tmp_path: Path) -> None:
    code = (
        "import gradsight, os, signal, time\n"
        "run = gradsight.Run()\n"
        "for i in range(100): run.log_step(i, loss=1.0)\n"
        "time.sleep(0.2)\n"
        "run.log_step(100, loss=1.0)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    script(code, tmp_path, expected=-9)
    events, steps = events_and_steps(tmp_path)
    assert events == []
    assert steps[:100] == list(range(100))


def test_a_forked_child_neither_ends_nor_repeats_its_parents_run(tmp_path: Path) -> None:
    code = (
        "import gradsight, os, sys, warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "run = gradsight.Run()\n"
        "for i in range(10): run.log_step(i, loss=1.0)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "for i in range(10, 20): run.log_step(i, loss=1.0)\n"
    )
    script(code, tmp_path)
    assert events_and_steps(tmp_path) == (["finished"], list(range(20)))


def test_a_forked_child_that_logs_has_a_spool_of_its_own(tmp_path: Path) -> None:
    code = (
        "import gradsight, os, sys, warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "run = gradsight.Run()\n"
        "for i in range(10): run.log_step(i, loss=1.0)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for i in range(100, 110): run.log_step(i, loss=2.0)\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    script(code, tmp_path)
    assert len(spool.pending(tmp_path)) == 2
    events, steps = events_and_steps(tmp_path)
    assert events == ["finished"]
    assert sorted(steps) == [*range(10), *range(100, 110)]


def test_show_puts_the_page_into_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of IPython only these two names are used; the stand-in writes down what they are given."""
    (tmp_path / "IPython").mkdir()
    (tmp_path / "IPython" / "__init__.py").touch()
    (tmp_path / "IPython" / "display.py").write_text(
        "shown = []\n\ndef IFrame(src, width, height):\n    return src, width, height\n\ndisplay = shown.append\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    monkeypatch.delitem(sys.modules, "IPython.display", raising=False)
    run = gradsight.Run(mode="disabled", server="http://127.0.0.1:8420")
    run.show(height=500)
    assert sys.modules["IPython.display"].shown == [(run.url, "100%", 500)]


@pytest.mark.parametrize("height", [0, -5, 1.5, "tall", True])
def test_show_refuses_a_height_that_is_none(height: Any) -> None:
    with pytest.raises(ConfigurationError, match="height must be a number of pixels"):
        gradsight.Run(mode="disabled").show(height=height)


def test_show_says_where_the_page_is_when_there_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    run = gradsight.Run(mode="disabled")
    with pytest.raises(ConfigurationError, match=f"open {run.url} in a browser"):
        run.show()


@pytest.mark.parametrize(
    "wrong",
    [
        {"grad_norm_before_clip": -1.0},
        {"grad_norm_before_clip": float("-inf")},
        {"layer_norms": {"a": -5.0}},
        {"layer_norms": {"a": float("nan"), "b": float("-inf")}},
    ],
)
def test_a_negative_norm_costs_its_own_step_alone(tmp_path: Path, wrong: dict[str, Any]) -> None:
    run = gradsight.Run(mode="offline", spool_dir=tmp_path, quiet=True)
    for step in range(20):
        run.log_step(step, **({"grad_norm_before_clip": 1.0} | (wrong if step == 10 else {})))
    run.finish()
    transport = MemoryTransport()
    send_spooled(tmp_path, transport)
    assert [step for _, _, batch in transport.batches for step in batch.step] == [*range(10), *range(11, 20)]
    assert run.num_dropped == {"bad_value": 1}
