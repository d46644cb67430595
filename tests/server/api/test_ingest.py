"""The wire contract over HTTP: both encodings in, and whatever is wrong named in a 4xx, with nothing stored."""

import gzip
import json
import socket
import subprocess
import uuid
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gradsight import wire
from gradsight.frames import Frame, read_frames
from gradsight.spool import Writer
from gradsight.transport import HttpTransport, send_spooled
from gradsight_server.api.ingest import flush_after_s
from tests.server.api.kit import BATCHES, RUN, Running, running, wait_until

JSON, MSGPACK = wire.CONTENT_TYPE_JSON, wire.CONTENT_TYPE_MSGPACK
BATCH: dict[str, Any] = {"step": [0, 1], "grad_norm_before_clip": [1.5, "NaN"], "loss": [2.0, None]}


def body(batch: Any, content_type: str) -> bytes:
    return msgspec.json.encode(batch) if content_type == JSON else msgspec.msgpack.encode(batch)


def post(server: Running, content: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = server.client.post(BATCHES, content=content, headers={"content-type": JSON} | named)
    return answer.status_code, answer.json()


def num_steps(server: Running) -> int:
    count: int = server.get(f"runs/{RUN}")["num_steps"]
    return count


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
def test_a_batch_is_stored_whichever_way_it_is_encoded(run_server: Running, content_type: str) -> None:
    status, answer = post(run_server, body(BATCH, content_type), content_type=content_type)
    assert (status, answer["accepted_steps"], answer["last_step"]) == (200, 2, 1)
    assert answer["flush_after_s"] == 0.25
    series = run_server.get(f"runs/{RUN}/series", columns="grad_norm_before_clip,loss")
    assert series["step"] == [0, 1]
    assert series["columns"]["grad_norm_before_clip"]["mean"] == [1.5, None]
    assert series["columns"]["grad_norm_before_clip"]["num_nonfinite"] == [0, 1]
    assert series["columns"]["loss"]["mean"] == [2.0, None]


def test_the_answer_is_messagepack_for_who_asks_for_it(run_server: Running) -> None:
    headers = {"content-type": MSGPACK, "accept": MSGPACK}
    answer = run_server.client.post(BATCHES, content=body(BATCH, MSGPACK), headers=headers)
    assert answer.headers["content-type"] == MSGPACK
    assert wire.decode(answer.content, wire.Answer).accepted_steps == 2


def test_a_charset_of_utf8_is_fine(run_server: Running) -> None:
    assert post(run_server, body(BATCH, JSON), content_type="application/json; charset=UTF-8")[0] == 200


def test_a_stream_name_may_have_slashes(run_server: Running) -> None:
    run_server.send(BATCH, stream="main/layer.0*")
    assert run_server.get(f"runs/{RUN}")["streams"] == ["main/layer.0*"]


WRONG: list[tuple[str, Any, str]] = [
    ("lengths", {"step": [0, 1], "loss": [1.0]}, "loss has 1 values, step has 2"),
    ("unknown column", {"step": [0], "grad_norm": [1.0]}, "grad_norm"),
    ("negative step", {"step": [-1], "loss": [1.0]}, "step[0]"),
    ("step past 2^53", {"step": [2**53], "loss": [1.0]}, "step[0]"),
    ("not a number", {"step": [0], "loss": ["seven"]}, "loss[0]"),
    ("NaN as a step", {"step": ["NaN"], "loss": [1.0]}, "step[0]"),
    ("half a step", {"step": [0.5], "loss": [1.0]}, "step[0]"),
    ("a list", [1, 2], "Expected `object`"),
    ("layer rows", {"step": [0], "layers": ["a"], "layer_step": [0], "layer_norms": [[1.0, 2.0]]}, "layer_norms"),
    ("huge name", {"step": [0], "layers": ["x" * 2000], "layer_step": [0], "layer_norms": [[1.0]]}, "layers"),
    ("event without kind", {"events": [{"message": "x"}]}, "kind"),
]


@pytest.mark.parametrize("content_type", [JSON, MSGPACK])
@pytest.mark.parametrize(("batch", "named"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_batch_is_refused_by_the_name_of_its_field(
    run_server: Running, batch: Any, named: str, content_type: str
) -> None:
    status, answer = post(run_server, body(batch, content_type), content_type=content_type)
    assert (status, answer["error"]) == (422, "Wire")
    assert named in answer["detail"]
    assert num_steps(run_server) == 0


@pytest.mark.parametrize(
    "content",
    [b"", b'{"step":[0', b"{'step': [0]}", b'{"step":[0],"loss":[NaN]}', b"\xff\xfe", b'{"step":[0],"loss":["\xff"]}'],
)
def test_a_body_that_is_not_whole_json_is_refused(run_server: Running, content: bytes) -> None:
    status, answer = post(run_server, content)
    assert (status, answer["error"]) == (422, "Wire")
    assert "body" in answer["detail"]


@pytest.mark.parametrize(
    "given", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", ""]
)
def test_another_content_type_is_refused_by_name(run_server: Running, given: str) -> None:
    status, answer = post(run_server, body(BATCH, JSON), content_type=given)
    assert (status, answer["error"]) == (415, "UnsupportedMediaType")
    assert (given or "none") in answer["detail"]
    assert "application/json" in answer["detail"]


def test_a_batch_for_an_unknown_run_is_not_found(server: Running) -> None:
    status, answer = post(server, body(BATCH, JSON))
    assert (status, answer["error"]) == (404, "RunNotFound")
    assert server.client.get(f"/api/v1/runs/{RUN}").status_code == 404


@pytest.mark.parametrize(
    "name",
    ["a//b", "/a", "a/", "...", "a/.b", " ", "é", "\u2028", "%2F", "%2e%2e", "?x", "#x", "a;b", "a\\b", "a/batches"],
)
def test_a_stream_arrives_under_its_own_name(run_server: Running, name: str) -> None:
    transport = HttpTransport(run_server.url)
    transport.post_batch(RUN, name, wire.encode(wire.Batch(step=[0], loss=[1.0])))
    transport.close()
    assert run_server.get(f"runs/{RUN}")["streams"] == [name]


@pytest.mark.parametrize("name", ["s" * 257, "%2E", "%2E%2E", "a/%2E%2E/b", "a%0Ab", "%0A", "a%09b", "%C2%85", ""])
def test_a_stream_name_that_cannot_be_right_is_refused(run_server: Running, name: str) -> None:
    answer = run_server.client.post(f"/api/v1/runs/{RUN}/streams/{name}/batches", json=BATCH)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"].startswith("stream must be a text of 1 to 256 characters")
    assert run_server.get(f"runs/{RUN}")["streams"] == []


def test_a_run_with_such_a_stream_is_refused(run_server: Running) -> None:
    answer = run_server.client.put(f"/api/v1/runs/{RUN}", json={"streams": {"..": {}}})
    assert (answer.status_code, "streams" in answer.json()["detail"]) == (422, True)


def test_a_spool_with_such_a_stream_keeps_nothing_else_from_its_server(run_server: Running, tmp_path: Path) -> None:
    spooled = Writer(tmp_path / "spool" / RUN / "attempt")
    body = wire.encode(wire.Batch(step=[0], loss=[1.0]))
    for stream in ("..", "a\nb", "a/./b", "main"):
        spooled.append(Frame("batch", RUN, stream, 1, body))
    spooled.close()
    transport = HttpTransport(run_server.url)
    report = send_spooled(tmp_path, transport)
    transport.close()
    assert (report.num_refused, report.num_steps) == (3, 1)
    assert run_server.get(f"runs/{RUN}")["streams"] == ["main"]
    refused = read_frames(tmp_path / "refused" / f"{RUN}.frames", 0, 2**20).frames
    assert [frame.stream for frame in refused] == ["..", "a\nb", "a/./b"]


def test_gzip_is_read(run_server: Running) -> None:
    assert post(run_server, gzip.compress(body(BATCH, JSON)), content_encoding="gzip")[0] == 200
    assert num_steps(run_server) == 2


@pytest.mark.parametrize("cut", [1, 10, -1])
def test_half_a_gzip_is_refused(run_server: Running, cut: int) -> None:
    status, answer = post(run_server, gzip.compress(body(BATCH, JSON))[:cut], content_encoding="gzip")
    assert (status, answer["error"]) == (400, "BrokenBody")
    assert num_steps(run_server) == 0


def test_what_is_no_gzip_or_goes_on_after_it_is_refused(run_server: Running) -> None:
    for content in (body(BATCH, JSON), gzip.compress(body(BATCH, JSON)) + b"more"):
        status, answer = post(run_server, content, content_encoding="gzip")
        assert (status, answer["error"]) == (400, "BrokenBody")


def test_another_encoding_is_refused_by_name(run_server: Running) -> None:
    status, answer = post(run_server, body(BATCH, JSON), content_encoding="br")
    assert (status, answer["error"]) == (415, "UnsupportedMediaType")
    assert "'br'" in answer["detail"]


def test_a_zip_bomb_stays_small(run_server: Running) -> None:
    bomb = zlib.compressobj(wbits=31)
    content = b"".join(bomb.compress(bytes(2**20)) for _ in range(200)) + bomb.flush()
    assert len(content) < 2**18
    status, answer = post(run_server, content, content_encoding="gzip")
    assert (status, answer["error"]) == (413, "BodyTooLarge")


def test_a_body_over_the_limit_is_refused_also_where_it_does_not_say_its_length(tmp_path: Path) -> None:
    with running(tmp_path, max_body_bytes=1000) as server:
        server.put()
        whole = server.client.post(BATCHES, content=b" " * 1001, headers={"content-type": JSON})
        parts = server.client.post(BATCHES, content=iter([b" " * 600] * 2), headers={"content-type": JSON})
        for answer in (whole, parts):
            assert (answer.status_code, answer.json()["error"]) == (413, "BodyTooLarge")
            assert "1000" in answer.json()["detail"]


def test_a_large_body_is_decoded_off_the_event_loop_and_stored(run_server: Running) -> None:
    steps = list(range(20_000))
    run_server.send({"step": steps, "loss": [0.123456789] * 20_000, "lr": [1e-3] * 20_000})
    assert num_steps(run_server) == 20_000


def test_a_client_that_goes_away_in_mid_body_leaves_nothing(run_server: Running) -> None:
    host, port = run_server.url.removeprefix("http://").split(":")
    content = body(BATCH, JSON)
    head = f"POST {BATCHES} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: {JSON}\r\nContent-Length: {len(content)}"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + content[:-5])
    counted = 'gradsight_requests_total{endpoint="post_batch",method="POST",status="0"} 1'
    wait_until(lambda: counted in run_server.client.get("/metrics").text)
    assert num_steps(run_server) == 0


def test_sent_again_a_batch_changes_nothing(run_server: Running) -> None:
    batch = BATCH | {"max_norm": [1.0, 1.0], "skipped": [False, True], "events": [{"kind": "note", "wall_time_s": 1.0}]}
    answers, views = [], []
    for _ in range(2):
        answers.append(run_server.send(batch))
        run = run_server.get(f"runs/{RUN}")
        # The keeper writes the verdict in its own time: it may come between the two looks.
        moving = ("last_seen_s", "position", "verdict", "severity")
        views.append({name: run[name] for name in run if name not in moving})
    assert answers[0] == answers[1]
    assert views[0] == views[1]
    assert (views[0]["num_steps"], views[0]["num_clipped"], views[0]["num_skipped"]) == (2, 1, 1)
    assert len(run_server.get(f"runs/{RUN}/events")["items"]) == 1


def test_the_readme_curl_lines_work(server: Running) -> None:
    run = f"{server.url}/api/v1/runs/{uuid.uuid4().hex}"

    def curl(*arguments: str) -> Any:
        done = subprocess.run(["curl", "--silent", "--noproxy", "*", *arguments], capture_output=True, check=True)
        return json.loads(done.stdout)

    assert curl("-X", "PUT", run)["id"] == run[-32:]
    answer = curl("--json", '{"step":[0,1],"grad_norm_before_clip":[1.5,"NaN"]}', f"{run}/streams/main/batches")
    assert answer["accepted_steps"] == 2
    assert curl(run)["num_nonfinite"] == 1
    assert curl("-d", '{"step":[2]}', f"{run}/streams/main/batches")["error"] == "UnsupportedMediaType"


def test_clients_are_asked_to_wait_longer_the_more_is_queued() -> None:
    assert flush_after_s(0) == 0.25
    assert 0.25 < flush_after_s(10) < flush_after_s(50) < 5
    assert flush_after_s(10_000) == 5
