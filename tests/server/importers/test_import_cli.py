"""`gradsight import`: logs become runs; again they change nothing, grown they add; watched they are live."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradsight_server import commands
from gradsight_server.importers.importing import Wish
from gradsight_server.importing import import_all
from tests.server.api.kit import DEADLINE_S, Running, running
from tests.server.importers.kit import write

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("imports")) as found:
        yield found


def run(server: Running, *arguments: str | Path) -> int:
    return commands.run(["import", *map(str, arguments), "--server", server.url])


def imported(server: Running, capsys: Captured, *arguments: str | Path) -> list[dict[str, Any]]:
    """What `--json` says of each log."""
    capsys.readouterr()
    assert run(server, *arguments, "--json") == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def only_run(server: Running, capsys: Captured, *arguments: str | Path) -> dict[str, Any]:
    """The run on the server that a log became."""
    (log,) = imported(server, capsys, *arguments)
    (made,) = log["runs"]
    found: dict[str, Any] = server.get(f"runs/{made['run_id']}")
    return found


def rows(*steps: int, **columns: float) -> list[dict[str, Any]]:
    return [{"step": step, "loss": 2.0 - step / 100, "grad_norm": 1.0 + step / 100} | columns for step in steps]


def exact(server: Running, run_id: str, *columns: str, **query: Any) -> dict[str, list[Any]]:
    found = server.get(f"runs/{run_id}/series", columns=",".join(columns), points=10_000, **query)
    assert found["bucket_steps"] == 1
    return {"step": found["step"]} | {name: found["columns"][name]["max"] for name in columns}


def test_a_log_becomes_a_run(server: Running, tmp_path: Path, capsys: Captured) -> None:
    path = write(tmp_path, rows(*range(100)), "first.jsonl")
    assert run(server, path, "--project", "logs", "--max-norm", "1.5") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "first.jsonl: 100 steps, http://127.0.0.1" in said.out
    found = only_run(server, capsys, path)
    assert (found["name"], found["project"], found["tags"]) == ("first.jsonl", "logs", ["imported"])
    assert (found["num_steps"], found["num_clipped"], found["status"]) == (100, 49, "finished")
    assert found["streams_detail"]["main"]["record"].get("policy") is None or found["config"]["import"]
    columns = exact(server, found["id"], "loss", "grad_norm_before_clip")
    assert columns["step"] == list(range(100))
    assert columns["grad_norm_before_clip"][7] == 1.07


def test_the_same_log_again_changes_nothing_and_a_grown_one_adds(
    server: Running, tmp_path: Path, capsys: Captured
) -> None:
    path = write(tmp_path, rows(*range(50)), "grows.jsonl")
    first = only_run(server, capsys, path)
    again = only_run(server, capsys, path)
    assert {name: again[name] for name in ("id", "num_steps", "attempts", "config", "last")} == {
        name: first[name] for name in ("id", "num_steps", "attempts", "config", "last")
    }
    events = server.get(f"runs/{first['id']}/events")["items"]
    assert [event["kind"] for event in events] == ["finished"]
    write(tmp_path, rows(*range(3_000)), "grows.jsonl")
    grown = only_run(server, capsys, path)
    assert (grown["id"], grown["num_steps"], grown["status"]) == (first["id"], 3_000, "finished")


def test_a_row_that_was_not_complete_yet_is_completed(server: Running, tmp_path: Path, capsys: Captured) -> None:
    parts: list[dict[str, Any]] = [*rows(0, 1), {"step": 2, "grad_norm": 5.0}]
    path = write(tmp_path, parts, "parts.jsonl")
    found = only_run(server, capsys, path)
    write(tmp_path, [*parts, {"step": 2, "loss": 7.0}, *rows(3)], "parts.jsonl")
    only_run(server, capsys, path)
    assert exact(server, found["id"], "loss", "grad_norm_before_clip")["loss"] == [2.0, 1.99, 7.0, 1.97]


def test_attempts_ranks_streams_layers_metrics_and_settings_arrive(
    server: Running, tmp_path: Path, capsys: Captured
) -> None:
    text = "--max_grad_norm 0.5\n" + "".join(
        f"[rank{rank}] step {step} loss={2 - step / 10} grad_norm={1 + rank * (step == 3)} val_loss={step}\n"
        for steps in (range(2, 6), range(4, 8))
        for step in steps
        for rank in range(2)
    )
    found = only_run(server, capsys, write(tmp_path, text, "ranks.log"))
    assert [attempt["number"] for attempt in found["attempts"]] == [1, 2]
    assert found["streams_detail"]["main"]["record"]["policy"] == "global_norm(0.5)"
    assert exact(server, found["id"], "max_norm")["max_norm"] == [0.5] * 6
    assert exact(server, found["id"], "loss", attempt=1)["step"] == [2, 3, 4, 5]
    told = found["config"]["import"]
    assert told["settings"] == {"max_grad_norm": 0.5}
    assert any("Steps go back from 5 to 4 at line" in note for note in told["notes"])
    assert any("2 ranks wrote this log" in note for note in told["notes"])


def test_a_stream_of_a_log_gets_the_nearest_name_a_stream_may_have(
    server: Running, tmp_path: Path, capsys: Captured
) -> None:
    log = [row | {"stream": name} for name in ("..", "an\tactor", "a/./b", "critic") for row in rows(*range(3))]
    found = only_run(server, capsys, write(tmp_path, log, "odd streams.jsonl"))
    assert sorted(found["streams"]) == ["_", "a/_/b", "an actor", "critic"]


def test_names_that_other_programs_gave_cannot_break_it(server: Running, tmp_path: Path, capsys: Captured) -> None:
    odd = [
        {"step": 0, "grad_norm": "NaN", "\u0000": 1, "a" * 5000: 2, "stream": "x\u0000y", "wall_time": -5},
        {"step": 1e300, "grad_norm": -1, "loss": 10**400, "rank": 10**12, "skipped": "yes", "num_nonfinite_layers": -3},
        {"step": 2, "grad_norm": "Infinity", "\ud800": 3, "skip_reason": "nonsense", "first_nonfinite_layer": "\u0000"},
    ]
    (log,) = imported(server, capsys, write(tmp_path, odd, "odd.jsonl"))
    assert sum(made["num_steps"] for made in log["runs"]) == 3


def test_folders_patterns_and_pipes(
    server: Running, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write(tmp_path / "a", rows(1, 2), "progress.jsonl")
    write(tmp_path / "b", rows(1, 2), "progress.jsonl")
    write(tmp_path / "b", "step,loss\n1,2\n", "no.csv")
    of_folder = imported(server, capsys, tmp_path)
    of_pattern = imported(server, capsys, str(tmp_path / "*" / "*.jsonl"))
    assert of_folder == of_pattern
    assert len({made["run_id"] for log in of_folder for made in log["runs"]}) == 2, "one folder is not another"
    with (tmp_path / "a" / "progress.jsonl").open() as pipe:
        monkeypatch.setattr("sys.stdin", pipe)
        (log,) = imported(server, capsys, "-")
    assert log["runs"][0]["name"] == "standard input"


def test_what_cannot_be_read_is_one_line_and_the_rest_is_imported(
    server: Running, tmp_path: Path, capsys: Captured
) -> None:
    good = write(tmp_path, rows(1, 2), "good.jsonl")
    bad = write(tmp_path, "step,loss\n1,2\n", "bad.csv")
    assert run(server, bad, good, "nope.log") == 1
    said = capsys.readouterr()
    first, second = said.err.splitlines()
    assert "no gradient norm or loss scale found; found: loss." in first
    assert "no file 'nope.log'" in second
    assert "good.jsonl: 2 steps" in said.out


@pytest.mark.parametrize(
    ("options", "code", "named"),
    [
        (("--format", "nope"), 2, "--format"), (("--map", "x"), 2, "--map"), (("--map", "nope=x"), 2, "--map"),
        (("--max-norm", "-1"), 2, "--max-norm"), (("--server", "http://127.0.0.1:9"), 1, "no server answers"),
        (("--watch", "-"), 2, "--watch"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line(tmp_path: Path, options: Sequence[str], code: int, named: str, capsys: Captured) -> None:
    path = write(tmp_path, rows(1, 2))
    server = [] if "--server" in options else ["--server", "http://127.0.0.1:9"]
    assert commands.run(["import", str(path), *options, *server]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line


def test_a_token_is_sent_and_a_wrong_one_said(tmp_path: Path, capsys: Captured) -> None:
    path = write(tmp_path, rows(1, 2))
    with running(tmp_path, token="secret") as server:
        assert run(server, path) == 2
        assert "wants its token" in capsys.readouterr().err
        assert run(server, path, "--token", "secret") == 0


def until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not happens():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.02)


class Watching:
    """`import --watch` in a thread."""

    def __init__(self, server: Running, *paths: Path) -> None:
        self.stop = threading.Event()
        self.code: int | None = None
        self._paths = [str(path) for path in paths]
        self._server = server
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self.code = import_all(
            self._paths, server=self._server.url, token=None, log_format="auto", wish=Wish(), watch=True, stop=self.stop
        )

    def __enter__(self) -> "Watching":
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def num_steps(server: Running, name: str) -> int:
    found = [one["num_steps"] for one in server.get("runs", q=name)["items"]]
    return sum(found) if found else -1


@pytest.mark.parametrize(
    ("name", "head"), [("live.jsonl", ""), ("live.csv", "step,loss,grad_norm\n"), ("live.log", "hello\n")]
)
def test_a_log_is_followed_while_it_grows(
    server: Running, tmp_path: Path, capsys: Captured, name: str, head: str
) -> None:
    def lines(*steps: int) -> str:
        match name:
            case "live.jsonl":
                return "".join(json.dumps(row) + "\n" for row in rows(*steps))
            case "live.csv":
                return "".join(f"{step},1.5,{1 + step / 10}\n" for step in steps)
            case _:
                return "".join(f"step {step}: grad_norm={1 + step / 10}\n" for step in steps)

    path = tmp_path / name
    path.write_text(head)
    with Watching(server, path) as watching:
        with path.open("a") as file:
            file.write(lines(0, 1, 2))
            file.flush()
            until(lambda: num_steps(server, name) == 3)
            whole = lines(3, 4)
            file.write(whole[:-4])
            file.flush()
            until(lambda: num_steps(server, name) == 4)
            file.write(whole[-4:])
            file.flush()
            until(lambda: num_steps(server, name) == 5)
            assert server.get("runs", q=name)["items"][0]["status"] == "running"
        path.write_text(head + lines(0, 1) + lines(2, 3, 4, 5))  # another file of its name
    assert watching.code == 0
    said = capsys.readouterr().out.splitlines()
    assert len([line for line in said if f"{name}, {server.url}/runs/" in line]) >= 1
    assert num_steps(server, name) >= 6


def test_a_document_is_read_again_when_it_has_changed(server: Running, tmp_path: Path) -> None:
    path = tmp_path / "document.json"
    path.write_text(json.dumps(rows(0, 1)))
    with Watching(server, path):
        until(lambda: num_steps(server, "document.json") == 2)
        path.write_text(json.dumps(rows(0, 1, 2)))
        until(lambda: num_steps(server, "document.json") == 3)


def test_watching_waits_for_a_log_that_has_not_begun(server: Running, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "late.jsonl"
    with Watching(server, path):
        until(lambda: "waiting" in capsys.readouterr().err)
        write(tmp_path, rows(0, 1), "late.jsonl")
        until(lambda: num_steps(server, "late.jsonl") == 2)
