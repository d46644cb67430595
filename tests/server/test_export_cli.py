"""`gradsight export` as a person meets it: a file that is whole or not there, and a line that says why."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradsight_server import exporting
from gradsight_server.commands import run
from gradsight_server.importers import own
from tests.server.api.kit import RUN, Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("db"), token="secret") as found:
        found.client.headers["Authorization"] = "Bearer secret"
        found.put(name="baseline")
        found.send({"step": [0, 1, 2], "grad_norm_before_clip": [1.0, "NaN", 3.0]})
        yield found


def export(server: Running, *arguments: str, token: str = "secret") -> int:
    return run(["export", RUN, *arguments, "--server", server.url, "--token", token])


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz", "run.csv", "run.csv.gz", "run.parquet"])
def test_the_name_of_the_file_says_what_to_write(
    server: Running, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    assert export(server, "-o", str(path)) == 0
    assert f"{path} holds run {RUN}" in capsys.readouterr().out
    opened = gzip.open if name.endswith(".gz") else open
    with opened(path, "rb") as file:
        head = file.read()
    assert own.recognise(path, head)
    assert list(own.messages(path))
    assert [found.name for found in tmp_path.iterdir()] == [name]


def test_without_a_name_the_file_is_called_after_the_run(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(server) == 0
    assert [found.name for found in tmp_path.iterdir()] == ["baseline-01234567.jsonl"]


def test_a_pipe_gets_nothing_but_the_run(server: Running, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert export(server, "-o", "-", "--format", "csv") == 0
    out = capfdbinary.readouterr().out
    assert out.count(b"\n") == 4
    assert out.startswith(b"stream,attempt,rank,step,")


def test_a_file_that_is_there_is_left_alone(
    server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.csv"
    path.write_text("mine")
    assert export(server, "-o", str(path)) == 2
    assert "is there already" in capsys.readouterr().err
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("-o", "run.xlsx"), 2, "run.xlsx"),
        (("--format", "xlsx"), 2, "'xlsx'"),
        (("-o", "no/such/folder/run.csv"), 2, "No such file or directory"),
        (("-o", "run.csv", "--stream", "critic"), 1, "critic"),
    ],
)
def test_what_cannot_be_written_is_said_in_a_line(
    server: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert export(server, *arguments) == code
    said = capsys.readouterr().err
    assert problem in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_server_no_run_and_no_token_are_told_apart(
    server: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "run.jsonl")
    assert run(["export", RUN, "-o", path, "--server", "http://127.0.0.1:9"]) == 1
    assert "no server answers" in capsys.readouterr().err
    assert export(server, "-o", path, token="wrong") == 2
    assert "--token" in capsys.readouterr().err
    assert run(["export", "f" * 32, "-o", path, "--server", server.url, "--token", "secret"]) == 1
    assert "no run" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_breaks_off_leaves_no_file(
    server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(*_: object, **__: object) -> Iterator[bytes]:
        yield json.dumps({"kind": "gradsight_run"}).encode() * 10_000
        raise RuntimeError("the database went away")

    monkeypatch.setattr("gradsight_server.api.export._pieces", lines)
    monkeypatch.setattr(exporting, "PIECE_BYTES", 1_000)
    assert export(server, "-o", str(tmp_path / "run.jsonl")) == 1
    assert "broke off" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
