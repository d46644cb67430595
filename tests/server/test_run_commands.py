"""`gradsight show`, `compare` and `tail` against a real server: what a person reads, JSON, exit codes, complaints."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradsight_server import commands
from tests.server.api.kit import RUN, Running, running
from tests.server.api.trainings import ADAM, FP16, fp16_goes_wrong, healthy, too_tight

Captured = pytest.CaptureFixture[str]
OTHER = "f" * 32
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("runs")) as found:
        found.put(name="fine [bold]", project="lm", config={"lr": 1e-3, "model": {"depth": 2}}, streams={"main": ADAM})
        found.send(healthy() | {"events": [{"kind": "checkpoint", "step": 200, "message": "saved"}]})
        found.put(OTHER, name="tight", project="lm", config={"lr": 2e-3, "model": {"depth": 2}}, streams={"main": FP16})
        found.send(too_tight() | {"events": [{"kind": "finished", "step": 399}]}, run_id=OTHER)
        yield found


def run(*arguments: str) -> int:
    return commands.run(list(arguments))


def test_show_tells_what_a_run_is_and_how_far_it_is(server: Running, capsys: Captured) -> None:
    assert run("show", RUN, "--server", server.url) == 0
    said = capsys.readouterr().out
    for words in (
        "fine [bold]  lm",
        "last 399",
        "400 recorded, 400 applied",
        "lr=0.001",
        "AdamW",
        "norm before clip",
        "checkpoint",
        f"{server.url}/runs/{RUN}",
    ):
        assert words in said


def test_show_as_json_is_the_run_with_its_events(server: Running, capsys: Captured) -> None:
    assert run("show", RUN, "--json", "--server", server.url) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["id"], told["num_steps"]) == (RUN, 400)
    assert [event["kind"] for event in told["events"]] == ["checkpoint"]


def test_compare_shows_verdicts_and_only_what_differs(server: Running, capsys: Captured) -> None:
    assert run("compare", RUN, OTHER, "--server", server.url) == 0
    said = capsys.readouterr().out
    for words in ("fine [bold]", "tight", "too tight", "healthy", "config.lr", "stream.precision", "100 %"):
        assert words in said
    assert "depth" not in said
    assert run("compare", RUN, OTHER, "--json", "--server", server.url) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["differences"]["config.lr"] == [1e-3, 2e-3]
    assert [item["diagnosis"]["clipping"]["verdict"] for item in told["items"]] == ["healthy", "too_tight"]


def test_tail_shows_the_newest_steps(server: Running, capsys: Captured) -> None:
    assert run("tail", RUN, "-n", "3", "--no-follow", "--server", server.url) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["397", "398", "399"]
    assert run("tail", OTHER, "-n", "2", "--json", "--server", server.url) == 0  # it has finished: nothing to wait for
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["step"] for row in rows] == [398, 399]


def test_tail_follows_a_run_to_its_end(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.put(streams={"main": FP16})
        server.send(healthy(0, 20))
        command = [sys.executable, "-m", "gradsight_server.cli", "tail", RUN, "-n", "2", "--json"]
        with subprocess.Popen([*command, "--server", server.url], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            steps = [json.loads(process.stdout.readline())["step"] for _ in range(2)]
            wrong = fp16_goes_wrong()
            sent = {name: values[20:40] for name, values in wrong.items() if isinstance(values, list)}
            server.send(sent)
            server.send({"events": [{"kind": "finished", "step": 39}]})
            rest = [json.loads(line) for line in process.stdout]
            assert process.wait(DEADLINE_S) == 0
    assert steps == [18, 19]
    assert [row["step"] for row in rest] == sent["step"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("show", "e" * 32), 1, "no run"),
        (("show", "abc"), 2, "32 hex digits"),
        (("compare", RUN), 2, "2 to 8 runs, got 1"),
        (("compare", RUN, "e" * 32), 1, "no run"),
        (("tail", "e" * 32), 1, "no run"),
        (("tail", RUN, "--stream", "nope"), 1, "has no stream 'nope'; it has main."),
        (("runs", "--project", "nope"), 1, "there is no run of project 'nope'; there are 'lm'."),
    ],
)
def test_what_is_not_there_is_said_in_one_line(
    server: Running, arguments: tuple[str, ...], code: int, words: str, capsys: Captured
) -> None:
    assert run(*arguments, "--server", server.url) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
