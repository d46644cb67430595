"""A log sent to the server: its verdict, its runs if it is to be kept, and clear words where it cannot be read."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gradsight_server.schemas import ImportAnswer
from tests.server.api.kit import Running, running
from tests.server.api.trainings import too_tight

IMPORTS = "/api/v1/imports"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("imports"), max_import_bytes=200_000) as found:
        yield found


def a_log(num_steps: int = 300) -> bytes:
    batch = too_tight()
    names = ("step", "loss", "grad_norm_before_clip")
    rows = list(zip(*(batch[name] for name in names), strict=True))[:num_steps]
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows).encode()


def post(server: Running, body: bytes, **query: Any) -> dict[str, Any]:
    answer: dict[str, Any] = server.checked(server.client.post(IMPORTS, content=body, params=query))
    ImportAnswer.model_validate(answer)
    return answer


def refused(server: Running, body: bytes, **query: Any) -> tuple[int, str, str]:
    answer = server.client.post(IMPORTS, content=body, params=query)
    told = answer.json()
    return answer.status_code, told["error"], told["detail"]


def test_a_log_gets_its_verdict_and_leaves_nothing(server: Running) -> None:
    before = server.get("runs")["num_runs"]
    answer = post(server, a_log(), name="mine.jsonl", max_norm=0.02)
    assert answer["format"]["name"] == "jsonl"
    assert answer["kept"] is False
    (part,) = answer["runs"]
    assert (part["name"], part["stream"], part["num_steps"], part["run_id"], part["url"]) == (
        "mine.jsonl", "main", 300, None, None,
    )  # fmt: skip
    assert part["diagnosis"]["clipping"]["verdict"] == "too_tight"
    line = part["sparkline"]
    assert len(line["step"]) == len(line["norm"]) == len(line["max_norm"]) == len(line["num_nonfinite"]) == 64
    assert line["max_norm"][0] == 0.02
    assert server.get("runs")["num_runs"] == before


def test_a_kept_log_is_a_run_and_again_the_same_one(server: Running) -> None:
    (part,) = post(server, a_log(), name="kept.jsonl", keep=True, project="logs")["runs"]
    run = server.get(f"runs/{part['run_id']}")
    assert (run["name"], run["project"], run["num_steps"], run["status"]) == ("kept.jsonl", "logs", 300, "finished")
    assert part["url"] == f"/runs/{part['run_id']}"
    assert run["config"]["import"]["format"] == "jsonl"
    diagnosis = server.get(f"runs/{part['run_id']}/diagnosis")
    assert diagnosis["range"] == part["diagnosis"]["range"]
    again = post(server, gzip.compress(a_log()), name="kept.jsonl", keep=True)["runs"][0]
    assert again["run_id"] == part["run_id"]
    assert server.get(f"runs/{part['run_id']}")["num_steps"] == 300
    other = post(server, a_log(), name="other.jsonl", keep=True)["runs"][0]
    assert other["run_id"] != part["run_id"]


def test_several_runs_and_streams_are_parts(server: Running) -> None:
    rows = [
        {"step": step, "stream": stream, "grad_norm": 1.0 + step}
        for _ in range(2)
        for step in range(5)
        for stream in ("critic", "actor")
    ]
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    answer = post(server, body, name="gan", keep=True)
    told = [(part["name"], part["run"], part["stream"], part["num_steps"]) for part in answer["runs"]]
    assert sorted(told) == [
        ("gan", 1, "actor", 5), ("gan", 1, "critic", 5), ("gan #2", 2, "actor", 5), ("gan #2", 2, "critic", 5),
    ]  # fmt: skip
    assert len({part["run_id"] for part in answer["runs"]}) == 2
    assert any("Another run begins" in note for note in answer["notes"])


def test_columns_and_format_may_be_named(server: Running) -> None:
    answer = post(server, b"it,g\n1,2.5\n2,3.5\n", map="norm=g,step=it", format="csv_table")
    assert answer["runs"][0]["diagnosis"]["clipping"]["norm"]["max"] == 3.5


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_an_export_with_a_stream_that_no_server_takes_is_refused(server: Running, format: str) -> None:
    (part,) = post(server, a_log(), name="named.jsonl", keep=True)["runs"]
    export = server.client.get(f"/api/v1/runs/{part['run_id']}/export", params={"format": format}).content
    changed = export.replace(b'"stream":"main"', b'"stream":".."').replace(b"\nmain,", b"\n..,")
    status, _, told = refused(server, changed, name="export", keep=True)
    assert (status, told.startswith("stream must be"), "'..'" in told) == (422, True, True), told


def test_an_export_comes_back_as_the_run_it_was(server: Running) -> None:
    (part,) = post(server, a_log(), name="exported.jsonl", keep=True)["runs"]
    export = server.client.get(f"/api/v1/runs/{part['run_id']}/export").content
    answer = post(server, export, name="export.jsonl", keep=True)
    assert answer["format"]["name"] == "gradsight"
    assert [one["run_id"] for one in answer["runs"]] == [part["run_id"]]
    assert server.get(f"runs/{part['run_id']}")["num_steps"] == 300


REFUSALS: list[tuple[bytes, dict[str, Any], int, str, str]] = [
    (b"", {}, 422, "NoTrainingLog", "is empty"),
    (b"step 1 loss=2 lr=3\n", {"name": "a.log"}, 422, "NoTrainingLog", "'a.log': no gradient norm or loss scale"),
    (b'{"step": 1, "loss": 2}\n', {}, 422, "NoTrainingLog", "found: loss."),
    (b"\x00\x01\x02\x03" * 100, {}, 422, "NoTrainingLog", "is no text"),
    (b"PK\x03\x04....", {}, 422, "NoTrainingLog", "damaged"),
    (b"x", {"format": "nope"}, 422, "InvalidRequest", "--format must be"),
    (b"x", {"map": "nope"}, 422, "InvalidRequest", "--map must be"),
    (b"x", {"max_norm": 0}, 422, "InvalidRequest", "max_norm"),
    (b"x" * 200_001, {}, 413, "BodyTooLarge", "larger than"),
    (gzip.compress(b"x" * 900_000), {}, 413, "BodyTooLarge", "larger than"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=[f"{case[3]}-{i}" for i, case in enumerate(REFUSALS)])
def test_what_cannot_be_read_is_said(server: Running, case: tuple[bytes, dict[str, Any], int, str, str]) -> None:
    body, query, status, error, words = case
    before = server.get("runs")["num_runs"]
    found = refused(server, body, keep=True, **query)
    assert found[:2] == (status, error), found
    assert words in found[2]
    assert server.get("runs")["num_runs"] == before, "nothing is left of it"


def test_reading_ends_in_time(tmp_path: Path) -> None:
    with running(tmp_path, max_import_s=1e-9) as server:
        assert refused(server, a_log())[:2] == (413, "LogTooLong")
        assert refused(server, gzip.compress(a_log()))[:2] == (413, "LogTooLong")
        assert refused(server, b"[" + b",".join(a_log().splitlines()) + b"]")[:2] == (413, "LogTooLong")


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    with running(tmp_path, token="secret") as server:
        assert httpx.post(f"{server.url}{IMPORTS}", content=a_log(), trust_env=False).status_code == 401
