"""A run written out and read into an empty database answers as it did: all of it as JSON lines, its steps as tables."""

import csv
import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from gradsight import wire
from gradsight_server.errors import NothingToReadError
from gradsight_server.exports.lines import BatchLine, RunLine
from gradsight_server.exports.table import COLUMNS
from gradsight_server.importers import own
from gradsight_server.store import export
from gradsight_server.store.database import Database
from tests.postgres import NewDatabase
from tests.server.api.kit import RUN, Running, running

FORMATS = ("jsonl", "csv", "parquet")
NUM_STEPS = 400
LAYERS = ["embed.weight", ["head.weight", "embed.tied"], "block.bias"]
BEGAN_S = 1.7e9


@pytest.fixture(scope="module")
def filled(new_database: NewDatabase) -> Iterator[Running]:
    """A server with one run that has everything a run can have."""
    with new_database("tables") as url, running(db=url) as server:
        server.put(
            project="lm",
            name="resumed twice, with commas",
            tags=["a", "b"],
            config={"lr": 3e-4, "sizes": [1, 2]},
            total_steps=1000,
            world_size=2,
            frameworks={"torch": "2.13.0"},
            started_at_s=BEGAN_S,
            streams={
                "main": {"policy": "global_norm(1.0)", "precision": "fp16", "optimizer": {"class": "AdamW", "lr": 0.1}},
                "critic": {"policy": None},
            },
        )
        server.checked(server.client.patch(f"/api/v1/runs/{RUN}", json={"notes": "why\nindeed", "archived": True}))
        for batch in steps_of("first", range(0, NUM_STEPS), rank=0):
            server.send(batch)
        for batch in steps_of("first", range(0, 40), rank=1):
            server.send(batch)
        for batch in steps_of("second", range(NUM_STEPS - 100, NUM_STEPS + 50), rank=0):
            server.send(batch)
        server.send({"step": [0, 5], "loss": [1.0, None], "attempt_id": "first"}, stream="critic")
        server.send({"attempt_id": "third", "attempt_started_at_s": BEGAN_S + 9e3})
        server.send(
            {
                "attempt_id": "second",
                "metrics": [{"step": i, "name": f"m{i % 40}", "value": i / 7} for i in range(20)]
                + [{"step": 3, "name": "m3", "value": "NaN"}],
                "events": [
                    {"kind": "note", "step": 3, "message": "hello", "wall_time_s": BEGAN_S + 3},
                    {"kind": "failed", "wall_time_s": BEGAN_S + 5e3},
                ],
            }
        )
        server.send({"attempt_id": "third", "events": [{"kind": "finished", "wall_time_s": BEGAN_S + 9.9e3}]})
        yield server


def steps_of(attempt_id: str, steps: range, *, rank: int) -> Iterator[dict[str, Any]]:
    """Batches with spikes, NaN, Infinity, skips, and layers every second step; of another set from step 200 on."""
    started_at_s = BEGAN_S + (1e3 if attempt_id == "second" else 0)
    for first in range(steps.start, steps.stop, 50):
        some = list(range(first, min(first + 50, steps.stop)))
        norm = [0.1 + (step * 7919 % 1000) / 500 + rank for step in some]
        odd: dict[int, Any] = {13: "NaN", 77: "Infinity", 150: None}
        layers = LAYERS if first < 200 else LAYERS[:2]
        yield {
            "attempt_id": attempt_id,
            "attempt_started_at_s": started_at_s,
            "sequence": first,
            "step": some,
            "wall_time_s": [started_at_s + 0.1 * step for step in some],
            "rank": [rank] * len(some),
            "loss": [2.0 - step / 1000 if step != 14 else "-Infinity" for step in some],
            "grad_norm_before_clip": [odd.get(step, value) for step, value in zip(some, norm, strict=True)],
            "max_norm": [1.0 if step % 3 else None for step in some],
            "clip_coef": [min(1.0, 1 / (value + 1e-6)) for value in norm],
            "loss_scale": [65536.0 for _ in some],
            "skipped": [step == 13 for step in some],
            "skip_reason": ["overflow" if step == 13 else None for step in some],
            "first_nonfinite_layer": ['a "b", c' if step == 13 else None for step in some],
            "num_nonfinite_layers": [int(step == 13) for step in some],
            "layers": layers,
            "layer_step": some[::2],
            "layer_norms": [
                ([0.1 * (1 + step % 9), "NaN" if step == 14 else 0.3, None if step % 4 else 1e-3])[: len(layers)]
                for step in some[::2]
            ],
            "dropped": {"queue": 3 + rank},
        }


def exported(server: Running, path: Path, **query: Any) -> Path:
    """The export in a file."""
    with server.client.stream("GET", f"/api/v1/runs/{RUN}/export", params=query) as answer:
        assert answer.status_code == 200
        with path.open("wb") as file:
            for piece in answer.iter_bytes():
                file.write(piece)
    return path


def replay(server: Running, messages: Iterable[own.Message]) -> None:
    """Sends what an export gives."""
    run_id = ""
    for line in messages:
        if isinstance(line, RunLine):
            run_id = line.run_id
            headers = {"Content-Type": wire.CONTENT_TYPE_MSGPACK}
            path = f"/api/v1/runs/{run_id}"
            server.checked(server.client.put(path, content=wire.encode(line.record), headers=headers))
            patch = {"notes": line.notes, "archived": line.is_archived}
            server.checked(server.client.patch(path, json=patch))
        else:
            body = wire.encode(line.batch)
            path = f"/api/v1/runs/{run_id}/streams/{line.stream}/batches"
            headers = {"Content-Type": wire.CONTENT_TYPE_MSGPACK}
            server.checked(server.client.post(path, content=body, headers=headers))


def answers(server: Running) -> dict[str, Any]:
    """What the server says of the run, but for when it was last heard of and what it makes of it in the background."""
    run = server.get(f"runs/{RUN}")
    for name in ("last_seen_s", "position", "verdict", "severity"):
        run.pop(name)
    found: dict[str, Any] = {"run": run}
    for attempt in (None, 1, 2):
        asked: dict[str, Any] = {} if attempt is None else {"attempt": attempt}
        columns = ",".join((*wire.FLOAT_COLUMNS, *wire.INTEGER_COLUMNS))
        found |= {
            f"series of {attempt}": server.get(f"runs/{RUN}/series", columns=columns, points=20, **asked),
            f"layers of {attempt}": server.get(f"runs/{RUN}/layers", points=20, **asked),
            f"exact layers of {attempt}": server.get(f"runs/{RUN}/layers", last_step=320, points=2000, **asked),
        }
    for step in (0, 13, 14, 77, 150, 320, 449):
        found[f"step {step}"] = server.get(f"runs/{RUN}/steps/{step}")
    found["ghost"] = server.get(f"runs/{RUN}/steps/350", attempt=1)
    found["critic"] = server.get(f"runs/{RUN}/steps/5", stream="critic")
    found["events"] = [event for event in server.get(f"runs/{RUN}/events")["items"] if event["kind"] != "verdict"]
    found["diagnosis"] = server.get(f"runs/{RUN}/diagnosis")
    return found


@pytest.fixture(scope="module")
def said(filled: Running) -> dict[str, Any]:
    return answers(filled)


def test_json_lines_bring_the_run_into_an_empty_database_as_it_was(
    filled: Running, said: dict[str, Any], new_database: NewDatabase, tmp_path: Path
) -> None:
    path = exported(filled, tmp_path / "run.jsonl")
    with new_database("tables") as url, running(db=url) as other:
        replay(other, own.messages(path))
        replay(other, own.messages(path))  # again: nothing changes
        assert answers(other) == said
        assert lines_of(exported(other, tmp_path / "again.jsonl")) == lines_of(path)


def test_a_compressed_export_is_read_like_any_other(filled: Running, tmp_path: Path) -> None:
    for format in ("jsonl", "csv"):
        path = exported(filled, tmp_path / f"run.{format}", format=format)
        packed = tmp_path / "packed"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        assert list(map(repr, own.messages(packed))) == list(
            map(repr, own.messages(path))
        )  # by their words: NaN is not itself


def lines_of(path: Path) -> list[Any]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[0].pop("exported_at_s")
    for line in lines:  # the server tells these by itself, when it likes
        events = line.get("batch", {}).get("events", [])
        events[:] = [event for event in events if event["kind"] != "verdict"]
    return lines


def test_tables_bring_the_steps_back(
    filled: Running, said: dict[str, Any], new_database: NewDatabase, tmp_path: Path
) -> None:
    for format in ("csv", "parquet"):
        with new_database("tables") as url, running(db=url) as other:
            replay(other, own.messages(exported(filled, tmp_path / f"run.{format}", format=format)))
            got = answers(other)
        same = [name for name in got if name.startswith("series")]
        counted = ("num_steps", "num_skipped", "num_clipped", "num_nonfinite", "last", "last_step")
        assert [got["run"][name] for name in counted] == [said["run"][name] for name in counted]
        if format == "parquet":
            same += [name for name in got if "layers" in name] + ["ghost", "critic"]
            same += [name for name in got if name.startswith("step ")]
            assert (got["run"]["name"], got["run"]["config"]) == (said["run"]["name"], said["run"]["config"])
            assert got["run"]["notes"] == said["run"]["notes"]
        else:  # layers are in no CSV
            assert {**got["step 13"], "layers": []} == {**said["step 13"], "layers": []}
        assert {name: got[name] for name in same} == {name: said[name] for name in same}


def test_csv_tells_nan_infinity_and_not_recorded_apart_and_keeps_every_rank_and_attempt(
    filled: Running, tmp_path: Path
) -> None:
    with exported(filled, tmp_path / "run.csv", format="csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    main = [row for row in rows if row["stream"] == "main"]
    assert len(main) == NUM_STEPS + 40 + 150
    first = {(int(row["step"]), row["rank"]): row for row in main if row["attempt"] == "1"}
    norms = [first[step, "0"]["grad_norm_before_clip"] for step in (13, 77, 150)]
    assert norms == ["NaN", "Infinity", ""]
    assert first[14, "0"]["loss"] == "-Infinity"
    assert (first[13, "0"]["skipped"], first[12, "0"]["skipped"]) == ("true", "false")
    assert first[13, "0"]["first_nonfinite_layer"] == 'a "b", c'
    assert {rank for _, rank in first} == {"0", "1"}
    assert len({row["attempt_id"] for row in main}) == 2


def test_parquet_holds_layer_norms_as_lists_and_names_them(filled: Running, tmp_path: Path) -> None:
    file = pq.ParquetFile(exported(filled, tmp_path / "run.parquet", format="parquet"))
    known = file.schema_arrow.metadata
    assert json.loads(known[b"gradsight_run"])["record"]["name"] == "resumed twice, with commas"
    rows = {
        (row["attempt"], row["rank"], row["step"]): row for row in file.read().to_pylist() if row["stream"] == "main"
    }
    names = json.loads(known[b"gradsight_layers"])
    assert names[rows[1, 0, 0]["layers_id"]] == [["embed.weight"], ["head.weight", "embed.tied"], ["block.bias"]]
    assert rows[1, 0, 1]["layer_norms"] is None
    norms = rows[1, 0, 14]["layer_norms"]
    assert norms[0] == np.float32(0.1 * 6)
    assert np.isnan(norms[1])
    assert norms[2] is None
    assert np.isnan(rows[1, 0, 13]["grad_norm_before_clip"])
    assert rows[1, 0, 150]["grad_norm_before_clip"] is None


def test_one_stream_may_be_asked_for(filled: Running, tmp_path: Path) -> None:
    lines = list(own.messages(exported(filled, tmp_path / "run.jsonl", stream="critic")))
    assert isinstance(lines[0], RunLine)
    assert lines[0].stream == "critic"
    assert {line.stream for line in lines if isinstance(line, BatchLine)} == {"critic"}
    answer = filled.client.get(f"/api/v1/runs/{RUN}/export", params={"stream": "actor"})
    assert (answer.status_code, "main, critic" in answer.text) == (404, True)


def test_what_cannot_be_exported_is_refused_in_words(filled: Running) -> None:
    assert filled.client.get(f"/api/v1/runs/{'f' * 32}/export").status_code == 404
    refused = filled.client.get(f"/api/v1/runs/{RUN}/export", params={"format": "xlsx"})
    assert (refused.status_code, "jsonl" in refused.text) == (422, True)


@pytest.mark.parametrize("format", FORMATS)
def test_exports_are_recognised_by_what_is_in_them(filled: Running, tmp_path: Path, format: str) -> None:
    path = exported(filled, tmp_path / "named-otherwise", format=format)
    head = path.read_bytes()[:4096]
    assert own.recognise(path, head)
    assert not own.recognise(path, b'{"step": 1, "loss": 2.0}\n')
    assert not own.recognise(path, b"step,loss,grad_norm\n")
    cut = tmp_path / "cut"
    cut.write_bytes(head)
    assert own.recognise(cut, head) == (format != "parquet")  # whose end says what is in it


def test_a_file_that_was_cut_off_is_said_to_be(filled: Running, tmp_path: Path) -> None:
    whole = exported(filled, tmp_path / "run.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    for cut in (b"".join(lines[:-1]), b"".join(lines[:5]), whole[: len(whole) // 2], gzip.compress(whole)[:-20]):
        path = tmp_path / "cut"
        path.write_bytes(cut)
        with pytest.raises(NothingToReadError, match="end"):
            list(own.messages(path))


def test_a_damaged_table_names_the_line_and_the_column(filled: Running, tmp_path: Path) -> None:
    lines = exported(filled, tmp_path / "run.csv", format="csv").read_text().splitlines(keepends=True)
    path = tmp_path / "damaged.csv"
    path.write_text("".join([*lines[:7], lines[7].replace("main,1,0,3,", "main,1,0,three,"), *lines[8:]]))
    with pytest.raises(NothingToReadError, match=r"damaged.csv:8: step .*'three'"):
        list(own.messages(path))
    path.write_text(lines[0].replace("loss,", "lost,") + lines[1])
    with pytest.raises(NothingToReadError, match="lost"):
        list(own.messages(path))


def test_slices_are_bounded_and_give_each_step_once_whatever_their_size(
    filled: Running, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = list(own.messages(exported(filled, tmp_path / "run.jsonl")))
    reads = count_rows(monkeypatch)
    for rows, num_bytes in ((7, 1), (64, 10_000)):
        monkeypatch.setattr(export, "SLICE_ROWS", rows)
        monkeypatch.setattr(export, "SLICE_BYTES", num_bytes)
        assert by_step(own.messages(exported(filled, tmp_path / "sliced.jsonl"))) == by_step(whole)
        assert max(reads) <= rows
        reads.clear()


def count_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each slice that is read from now on has."""
    found: list[int] = []
    real = export.next_slice

    def counting(*args: Any, **options: Any) -> export.Slice:
        part = real(*args, **options)
        found.append(len(part.rows))
        return part

    monkeypatch.setattr(export, "next_slice", counting)
    return found


def by_step(messages: Iterable[own.Message]) -> dict[Any, Any]:
    """(stream, attempt, rank, step) → what is said of it; each is said once."""
    found: dict[Any, Any] = {}
    for line in messages:
        if not isinstance(line, BatchLine):
            continue
        batch = line.batch
        rank = batch.rank[0] if isinstance(batch.rank, list) and batch.rank else 0
        for i, step in enumerate(batch.step):
            said = {name: values[i] for name, values in batch.columns.items() if values[i] is not None}
            key = (line.stream, batch.attempt_id, rank, step)
            assert found.setdefault(key, said) == said or not said  # but for a step that only says whose layers come
        if isinstance(batch.layer_norms, bytes):
            size = len(batch.layer_norms) // len(batch.layer_step)
            for i, step in enumerate(batch.layer_step):
                of_layers = ("layers", line.stream, batch.attempt_id, rank, step)
                assert of_layers not in found
                found[of_layers] = (batch.layers_id, batch.layer_norms[i * size : (i + 1) * size])
    return found


def test_layers_without_steps_are_exported_as_the_ranks_that_had_them(
    new_database: NewDatabase, tmp_path: Path
) -> None:
    with new_database("tables") as url, running(db=url) as server:
        server.put()
        server.send({"step": [5], "rank": [3], "loss": [1.0]})
        server.send({"step": [5], "rank": [3], "layers": ["a"], "layer_step": [90], "layer_norms": [[2.0]]})
        server.send({"layers": ["a"], "layer_step": [100_000, 7_000_000], "layer_norms": [[1.0], [None]]})
        for format in ("jsonl", "parquet"):
            found = by_step(own.messages(exported(server, tmp_path / f"run.{format}", format=format)))
            layers = {key[3:] for key in found if key[0] == "layers"}
            assert layers == {(3, 90), (0, 100_000), (0, 7_000_000)}, format


def test_steps_that_retention_has_removed_are_said_to_be_missing(new_database: NewDatabase, tmp_path: Path) -> None:
    from gradsight_server.store import retention

    with new_database("tables") as url:
        with running(db=url) as server:
            server.put()
            server.send({"step": list(range(5000)), "grad_norm_before_clip": [1.0] * 5000})
        database = Database(url)
        retention.sweep(database, retention.Keep(steps=2048), now_s=0.0)
        database.close()
        with running(db=url) as server:
            head, *rest = own.messages(exported(server, tmp_path / "run.jsonl"))
    assert isinstance(head, RunLine)
    [removed] = head.removed
    steps = [step for line in rest if isinstance(line, BatchLine) for step in line.batch.step]
    assert (removed.stream, removed.attempt) == ("main", 1)
    assert steps == list(range(removed.before_step, 5000))
    assert removed.before_step > 2000


def test_a_run_without_steps_can_be_exported(new_database: NewDatabase, tmp_path: Path) -> None:
    with new_database("tables") as url, running(db=url) as server:
        server.put(name="empty")
        for format in FORMATS:
            lines = list(own.messages(exported(server, tmp_path / f"run.{format}", format=format)))
            assert len(lines) == (0 if format == "csv" else 1)


def test_what_a_browser_saves_is_named_after_the_run(filled: Running) -> None:
    answer: httpx.Response = filled.client.get(f"/api/v1/runs/{RUN}/export", params={"format": "csv"})
    assert answer.headers["content-disposition"] == ('attachment; filename="resumed-twice-with-commas-01234567.csv"')
