"""`gradsight diagnose`: on logs without a server, on runs with one; its JSON, its exit codes, its complaints."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

from gradsight_server import commands
from gradsight_server.diagnosis import Diagnosis
from gradsight_server.diagnosis_view import SPARK_COLUMNS, show, sparkline
from tests.server.api.kit import RUN, running
from tests.server.api.trainings import FP16, fp16_goes_wrong, healthy, too_tight

Captured = pytest.CaptureFixture[str]


def log(path: Path, batch: dict[str, Any], *columns: str) -> str:
    """A log of these columns of a batch, as JSON lines."""
    names = columns or ("step", "loss", "grad_norm_before_clip", "max_norm")
    rows = zip(*(batch[name] for name in names), strict=True)
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return str(path)


def run(*arguments: str) -> int:
    return commands.run(["diagnose", *arguments])


@pytest.fixture
def tight(tmp_path: Path) -> str:
    return log(tmp_path / "tight.jsonl", too_tight())


@pytest.fixture
def fine(tmp_path: Path) -> str:
    return log(tmp_path / "fine.jsonl", healthy())


def test_a_log_needs_no_server(tight: str, capsys: Captured) -> None:
    assert run(tight) == 0
    said = capsys.readouterr()
    assert said.err == ""
    for words in (
        "tight.jsonl",
        "400 recorded",
        "too tight",
        "100 % of the judged steps",
        "! warning",
        "Raise max_norm",
    ):
        assert words in " ".join(said.out.split())  # a long path pushes words to the next line
    assert any(len(line) - len(line.lstrip("▁▂▃▄▅▆▇█norm ")) >= SPARK_COLUMNS for line in said.out.splitlines())
    assert max(map(len, said.out.splitlines())) <= 100


def test_json_is_the_diagnosis_itself_and_an_array_for_several(tight: str, fine: str, capsys: Captured) -> None:
    assert run(tight, "--json") == 0
    one = json.loads(capsys.readouterr().out)
    assert msgspec.to_builtins(msgspec.convert(one, Diagnosis)) == one
    assert (one["clipping"]["verdict"], one["clipping"]["clip_fraction"]) == ("too_tight", 1.0)
    assert run(tight, fine, "--json") == 0
    several = json.loads(capsys.readouterr().out)
    assert [each["clipping"]["verdict"] for each in several] == ["too_tight", "healthy"]


def test_fail_on_asks_for_a_severity(tight: str, fine: str, tmp_path: Path, capsys: Captured) -> None:
    batch = fp16_goes_wrong()
    lost = log(tmp_path / "lost.jsonl", batch, "step", "loss", "grad_norm_before_clip", "loss_scale", "skipped")
    assert [run(fine, "--fail-on", "warning"), run(tight, "--fail-on", "warning")] == [0, 1]
    assert [run(tight, "--fail-on", "critical"), run(lost, "--fail-on", "critical")] == [0, 1]
    assert run(fine, tight, "--fail-on", "warning", "--json") == 1
    assert run(fine) == 0
    capsys.readouterr()


def test_a_threshold_for_a_log_that_does_not_tell_it(tmp_path: Path, capsys: Captured) -> None:
    path = log(tmp_path / "x.jsonl", too_tight(), "step", "loss", "grad_norm_before_clip")
    run(path, "--json")
    assert json.loads(capsys.readouterr().out)["clipping"]["verdict"] == "unknown"
    run(path, "--json", "--max-norm", "0.02")
    assert json.loads(capsys.readouterr().out)["clipping"]["verdict"] == "too_tight"


WRONG = [
    (("--max-norm", "0"), "--max-norm"),
    (("--max-norm", "nan"), "--max-norm"),
    (("--max-norm", "inf"), "--max-norm"),
    (("--max-norm", "x"), "--max-norm"),
    (("--fail-on", "info"), "--fail-on"),
    (("--nope",), "--nope"),
]


@pytest.mark.parametrize(("options", "named"), WRONG, ids=[" ".join(case[0]) for case in WRONG])
def test_wrong_use_is_one_line_and_exit_2(fine: str, options: tuple[str, ...], named: str, capsys: Captured) -> None:
    assert run(fine, *options) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert line.startswith("gradsight: ")
    assert named in line
    assert said.out == ""


def test_without_a_target_it_is_wrong_use(capsys: Captured) -> None:
    assert run() == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_bad_file_is_one_line_and_the_others_are_diagnosed(tight: str, tmp_path: Path, capsys: Captured) -> None:
    empty = tmp_path / "empty.csv"
    empty.touch()
    (tmp_path / "folder").mkdir()
    for bad, words in (
        (str(empty), "is empty"),
        ("nope.jsonl", "neither a file nor a run"),
        (str(tmp_path / "folder"), "a folder"),
    ):
        assert run(bad, tight) == 1
        said = capsys.readouterr()
        (line,) = said.err.splitlines()
        assert words in line
        assert "too tight" in said.out
    assert run(str(empty), tight, "--json") == 1
    nothing, found = json.loads(capsys.readouterr().out)
    assert (nothing, found["clipping"]["verdict"]) == (None, "too_tight")
    assert run(str(empty), "--json") == 1
    assert capsys.readouterr().out == ""


def test_a_log_of_several_runs_and_streams_is_told_apart(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "gan.jsonl"
    rows = [
        {"step": step, "stream": stream, "grad_norm": norm}
        for _ in range(2)
        for step in range(100)
        for stream, norm in (("generator", 1.0 + step % 7 / 10), ("discriminator", "NaN" if step > 60 else 1.0))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(str(path), "--json", "--max-norm", "2") == 0
    worst = json.loads(capsys.readouterr().out)
    assert worst["nonfinite"]["num_steps"] == 39, "the part that is worst off goes first"
    told = worst.pop("log")
    assert (told["format"], len(told["notes"])) == ("jsonl", 1)
    parts = [(part["run"], part["stream"], part["diagnosis"]["nonfinite"]["num_steps"]) for part in told["parts"]]
    assert parts == [(1, "generator", 0), (1, "discriminator", 39), (2, "generator", 0), (2, "discriminator", 39)]
    assert run(str(path)) == 0
    said = " ".join(capsys.readouterr().out.split())
    for words in ("run 1, stream generator", "run 2, stream discriminator", "Note: Another run begins"):
        assert words in said
    assert run(str(path), "--stream", "generator", "--fail-on", "critical") == 0
    assert run(str(path), "--fail-on", "critical") == 1
    capsys.readouterr()
    assert run(str(path), "--stream", "nope") == 1
    assert "has no stream 'nope'; it has generator, discriminator." in capsys.readouterr().err


def test_a_pipe_and_a_folder(fine: str, tight: str, tmp_path: Path, capsys: Captured) -> None:
    with open(fine) as log_file:
        done = subprocess.run(
            [sys.executable, "-m", "gradsight_server.cli", "diagnose", "-", "--json"],
            stdin=log_file,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert json.loads(done.stdout)["clipping"]["verdict"] == "healthy"
    assert run(str(tmp_path), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["clipping"]["verdict"] for each in found] == ["healthy", "too_tight"]


def test_a_threshold_in_the_log_is_used_and_said(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "clip_grad: 0.5\n" + "".join(f"step {i} loss={2 - i / 200} grad_norm={1.0 + i % 5}\n" for i in range(90))
    )
    assert run(str(path)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "too tight 100 %" in said
    assert "Note: max_norm 0.5 is taken from the log's configuration (clip_grad, line 1)." in said
    assert run(str(path), "--json", "--max-norm", "50") == 0
    assert json.loads(capsys.readouterr().out)["clipping"]["verdict"] == "inactive"
    assert run(str(path), "--format", "nope") == 2
    assert "--format must be auto or one of" in capsys.readouterr().err


def test_a_run_on_a_server(url: str, capsys: Captured) -> None:
    with running(db=url, token="secret") as server:
        server.client.headers["Authorization"] = "Bearer secret"
        server.put(name="a [bold]b[/bold]", streams={"main": FP16})
        server.send(fp16_goes_wrong())
        server.send(healthy(), stream="critic")
        options = ("--server", server.url, "--token", "secret")
        assert run(RUN, *options, "--fail-on", "critical") == 1
        said = capsys.readouterr().out
        for words in ("a [bold]b[/bold]", "model nan", "×", "✗ critical", "critic (--stream)"):
            assert words in said
        dashed = "-".join((RUN[:8], RUN[8:12], RUN[12:16], RUN[16:20], RUN[20:]))
        assert run(dashed, *options, "--json") == 0
        assert json.loads(capsys.readouterr().out) == server.get(f"runs/{RUN}/diagnosis")
        assert run(RUN, *options, "--json", "--stream", "critic") == 0
        assert json.loads(capsys.readouterr().out)["clipping"]["verdict"] == "healthy"
        for arguments, code, words in (
            ((RUN, "--server", server.url), 2, "wants its token"),
            ((RUN, *options, "--max-norm", "1"), 2, "--max-norm is for logs"),
            ((RUN, *options, "--stream", "nope"), 1, "no stream 'nope'"),
            (("f" * 32, *options), 1, "no run"),
            ((RUN, "--server", "http://127.0.0.1:9"), 1, "no server answers"),
        ):
            assert run(*arguments) == code
            (line,) = capsys.readouterr().err.splitlines()
            assert words in line


def test_as_a_process_it_works_without_torch_and_in_ascii(tight: str, tmp_path: Path) -> None:
    script = "import sys; sys.modules['torch'] = None; from gradsight_server.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", script, "diagnose", tight, "--fail-on", "warning"],
        env={"PATH": "/usr/bin", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "too tight" in done.stdout
    assert "▁" not in done.stdout


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits_the_terminal(width: int, tight: str, capsys: Captured) -> None:
    run(tight, "--json")
    diagnosis = json.loads(capsys.readouterr().out)
    console = Console(width=width, height=50, record=True, force_terminal=True, file=io.StringIO())
    show(console, "x", diagnosis, np.ones(10))
    assert max(len(line.rstrip()) for line in console.export_text().splitlines()) <= width


def test_the_sparkline_is_no_wider_than_the_terminal(tight: str, capsys: Captured) -> None:
    run(tight, "--json")
    diagnosis = json.loads(capsys.readouterr().out)
    console = Console(width=40, height=50, record=True, force_terminal=True, file=io.StringIO())
    show(console, "x", diagnosis, np.arange(1.0, 500.0))
    (line,) = (line for line in console.export_text().splitlines() if line.startswith("norm "))
    assert line.split()[1].endswith("█")
    assert len(line.split()[1]) == 27


def test_the_sparkline_shows_spikes_and_gaps() -> None:
    norms = np.ones(600)
    norms[300] = 50.0
    norms[500:520] = np.nan
    line = sparkline(norms)
    assert len(line) == SPARK_COLUMNS
    assert (line[30], line.count("█"), line[50:52], line.count("×")) == ("█", 1, "××", 2)
    assert sparkline(np.ones(5)) == "▁▁▁▁▁"
    assert sparkline(np.zeros(3)) == "▁▁▁"
    assert set(sparkline(np.array([1e-300, 1e300, 0.0]))) == {"▁", "█"}
    assert sparkline(np.array([np.nan])) == "×"


@pytest.mark.parametrize(
    ("places", "words"),
    [(range(0, 98, 2), "49 steps between 0 and 96"), (range(30, 40), "10 steps in a row"), ((7,), "of 1 step\n")],
)
def test_a_burst_says_what_of_it_is_counted(
    places: tuple[int, ...], words: str, tmp_path: Path, capsys: Captured
) -> None:
    rows = [f"{step},1.5,{'nan' if step in places else 2.0 + step / 100}\n" for step in range(98)]
    (tmp_path / "log.csv").write_text("step,loss,grad_norm\n" + "".join(rows))
    run(str(tmp_path / "log.csv"))
    assert words in "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
