"""The live stream: hello, ticks, places to resume at, and `stale` wherever ticks would not tell the whole truth."""

import base64
import contextlib
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gradsight_server.live import subscriber
from gradsight_server.store.ticks import latest_position
from tests.server.api.kit import DEADLINE_S, RUN, Event, Running, next_of, running, wait_until

OTHER = uuid.uuid4().hex


@pytest.fixture
def live_server(url: str) -> Iterator[Running]:
    """A server of the test's own, because positions are counted over all runs; with one run of two steps."""
    with running(db=url) as server:
        server.put()
        server.send({"step": [0, 1], "loss": [3.0, 2.0]})
        wait_until(lambda: server.get(f"runs/{RUN}")["verdict"] is not None)  # it comes as a change of its own
        settled(server)
        yield server


def ticks(events: Iterator[Event], num_steps: int) -> list[Event]:
    """Ticks until so many steps have come; a `stale` among them fails."""
    found: list[Event] = []
    while sum(len(tick.data["steps"]["step"]) for tick in found) < num_steps:
        event = next(event for event in events if event.name in ("tick", "stale"))
        assert event.name == "tick"
        found.append(event)
    return found


def steps_of(found: list[Event]) -> list[int]:
    return [step for tick in found for step in tick.data["steps"]["step"]]


def settled(server: Running) -> int:
    """The position once the live stream has caught up with what this test has written."""
    with server.app.state.database.reading() as conn:
        newest = latest_position(conn)
    wait_until(lambda: server.app.state.live.position >= newest)
    position: int = server.app.state.live.position
    return position


def test_a_stream_begins_with_hello_and_brings_what_comes(live_server: Running) -> None:
    position = settled(live_server)
    with live_server.live(RUN) as events:
        hello = next(events)
        assert (hello.name, hello.data) == ("hello", {"position": position})
        live_server.send({"step": [2, 3], "loss": [1.0, "NaN"], "grad_norm_before_clip": [5.0, "Infinity"],
                          "max_norm": [1.0, 1.0], "skipped": [False, True]})  # fmt: skip
        (tick,) = ticks(events, 2)
        assert tick.id > position
        assert (tick.data["run_id"], tick.data["stream"], tick.data["attempt"]) == (RUN, "main", 1)
        steps = tick.data["steps"]
        assert (steps["step"], steps["loss"], steps["grad_norm_before_clip"]) == ([2, 3], [1.0, None], [5.0, None])
        assert (steps["clipped"], steps["skipped"], steps["nonfinite"]) == ([True, False], [False, True], [False, True])
        assert tick.data["layers"] is None
        assert (tick.data["summary"]["id"], tick.data["summary"]["num_steps"]) == (RUN, 4)


def test_a_tick_brings_the_newest_layer_norms(live_server: Running) -> None:
    with live_server.live(RUN) as events:
        next(events)
        live_server.send(
            {"step": [2, 3], "layers": ["a", "b"], "layer_step": [2, 3], "layer_norms": [[1, 2], [3, None]]}
        )
        (tick,) = ticks(events, 2)
        norms = np.frombuffer(base64.b64decode(tick.data["layers"]["norms"]), "<f4")
        assert tick.data["layers"]["step"] == 3
        assert norms.tolist() == [3.0, -1.0]


def test_steps_of_runs_not_asked_for_come_as_the_run_in_brief_only(live_server: Running) -> None:
    with live_server.live(RUN) as events:
        next(events)
        live_server.put(OTHER, name="other")
        live_server.send({"step": [0], "loss": [1.0]}, run_id=OTHER)
        wait_until(lambda: next_of(events, "run").data["num_steps"] == 1)
        live_server.client.delete(f"/api/v1/runs/{OTHER}")
        deleted = next(event for event in events if event.name != "run")
        assert (deleted.name, deleted.data) == ("deleted", {"run_id": OTHER})


def test_a_run_that_changed_before_the_stream_was_open_is_told_of(live_server: Running) -> None:
    listed = live_server.get("runs")["items"][0]
    live_server.send({"events": [{"kind": "finished"}]})
    settled(live_server)
    with live_server.live() as events:
        assert next(events).name == "hello"
        run = next(events)
        assert (run.name, run.data["id"], run.data["status"]) == ("run", listed["id"], "finished")


@pytest.mark.parametrize("by_header", [False, True])
def test_a_stream_resumes_where_it_ended(live_server: Running, by_header: bool) -> None:
    settled(live_server)
    with live_server.live(RUN) as events:
        next(events)
        live_server.send({"step": [2], "loss": [1.0]})
        seen = ticks(events, 1)[0].id
    live_server.send({"step": [3, 4], "loss": [1.0, 1.0]})
    live_server.send({"step": [5], "loss": [1.0]})
    settled(live_server)
    where = {"last_event_id": seen, "after": 0} if by_header else {"after": seen}
    with live_server.live(RUN, **where) as events:
        assert next(events).name == "hello"
        missed = ticks(events, 3)
        assert steps_of(missed) == [3, 4, 5]
        assert len(missed) == 1, "ticks that waited come as one"
        live_server.send({"step": [6], "loss": [1.0]})
        assert steps_of(ticks(events, 1)) == [6]


def test_ids_rise_so_that_each_is_a_place_to_resume_at(live_server: Running) -> None:
    start = settled(live_server)
    for step in range(2, 8):
        live_server.send({"step": [step], "loss": [1.0]})
        live_server.send({"step": [step], "loss": [1.0]}, stream="critic")
    settled(live_server)
    with live_server.live(RUN, after=start) as events:
        next(events)
        found = ticks(events, 12)
    ids = [tick.id for tick in found]
    assert ids == sorted(set(ids))
    with live_server.live(RUN, after=ids[4]) as events:
        next(events)
        rest = ticks(events, 7)
    assert [(tick.data["stream"], tick.data["steps"]["step"]) for tick in rest] == [
        (tick.data["stream"], tick.data["steps"]["step"]) for tick in found[5:]
    ]


def test_a_figure_and_the_ticks_after_its_position_are_the_whole(live_server: Running) -> None:
    for step in range(2, 40, 2):  # often: a stream may open while a read is under way
        live_server.send({"step": [step], "loss": [1.0]})
        figure = live_server.get(f"runs/{RUN}/figures/loss")
        drawn = np.frombuffer(base64.b64decode(figure["data"][0]["x"]["bdata"]), "<f8").tolist()
        live_server.send({"step": [step + 1], "loss": [1.0]})
        with live_server.live(RUN, after=figure["position"]) as events:
            next(events)
            while max(drawn) < step + 1:
                drawn += [new for new in steps_of(ticks(events, 1)) if new not in drawn]
        assert drawn == list(range(step + 2))


def test_replaced_or_late_steps_make_the_figures_stale(live_server: Running) -> None:
    live_server.send({"step": [5], "loss": [1.0]})
    settled(live_server)
    for step in (5, 3):
        with live_server.live(RUN) as events:
            next(events)
            live_server.send({"step": [step], "loss": [9.0]})
            event = next(event for event in events if event.name in ("tick", "stale"))
            assert (event.name, event.data) == ("stale", {"run_id": RUN})


def test_who_was_away_hears_that_steps_were_replaced(live_server: Running) -> None:
    position = settled(live_server)
    live_server.send({"step": [1], "loss": [9.0]})
    live_server.send({"step": [2], "loss": [9.0]})
    settled(live_server)
    with live_server.live(RUN, after=position) as events:
        next(events)
        event = next(event for event in events if event.name in ("tick", "stale"))
        assert (event.name, event.data) == ("stale", {"run_id": RUN})


def test_a_new_attempt_makes_the_figures_stale_once_and_the_old_one_is_silent(live_server: Running) -> None:
    settled(live_server)
    with live_server.live(RUN) as events:
        next(events)
        newer = {"attempt_id": "b", "attempt_started_at_s": time.time() + 60}
        live_server.send({"step": [1], "loss": [1.0]} | newer)
        assert next_of(events, "stale").data == {"run_id": RUN}
        live_server.send({"step": [2], "loss": [1.0]})
        live_server.send({"step": [2], "loss": [1.0]} | newer)
        (tick,) = ticks(events, 1)
        assert (tick.data["attempt"], tick.data["steps"]["step"]) == (2, [2])


@pytest.mark.parametrize("after", [10**6, 2**53 - 1])
def test_a_position_of_another_database_is_stale(live_server: Running, after: int) -> None:
    with live_server.live(RUN, after=after) as events:
        assert next(events).name == "hello"
        assert next(events)[::2] == ("stale", {"run_id": None})


def test_a_position_from_before_the_servers_start_is_stale(url: str) -> None:
    with running(db=url) as server:
        server.put()
        server.send({"step": [0], "loss": [1.0]})
    with running(db=url) as server, server.live(RUN, after=1) as events:
        next(events)
        assert next(events)[::2] == ("stale", {"run_id": None})
        server.send({"step": [1], "loss": [1.0]})
        assert steps_of(ticks(events, 1)) == [1]


def test_more_steps_than_a_tick_may_carry_are_stale(live_server: Running) -> None:
    with live_server.live(RUN) as events:
        next(events)
        live_server.send({"step": list(range(10, 6010)), "loss": [1.0] * 6000})
        assert next_of(events, "stale").data == {"run_id": RUN}


def test_another_servers_commits_are_seen(url: str, live_server: Running) -> None:
    with running(db=url) as replica, live_server.live(RUN) as events:
        next(events)
        replica.send({"step": [2], "loss": [1.0]})
        assert steps_of(ticks(events, 1)) == [2]


@pytest.mark.parametrize(
    ("query", "named"),
    [("runs=x", "run id"), ("after=-1", "after"), ("after=x", "after"), (f"after={2**53}", "after"),
     (f"runs={','.join([RUN] * 201)}", "runs")],
)  # fmt: skip
def test_a_wrong_wish_is_refused(server: Running, query: str, named: str) -> None:
    answer = server.client.get(f"/api/v1/live?{query}")
    assert answer.status_code == 422
    assert named in answer.json()["detail"]


def test_the_stream_is_not_compressed_and_not_kept(server: Running) -> None:
    with server.client.stream("GET", "/api/v1/live", headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert "content-encoding" not in answer.headers


def test_who_leaves_is_forgotten(live_server: Running) -> None:
    hub = live_server.app.state.live
    with live_server.live(RUN) as events:
        next(events)
        assert hub.num_subscribers == 1
    wait_until(lambda: hub.num_subscribers == 0)


def test_a_slow_reader_is_told_so_and_others_are_not_held_up(
    live_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriber, "MAX_WAITING_BYTES", 500_000)
    host, port = live_server.url.removeprefix("http://").split(":")
    with socket.socket() as slow, live_server.live(RUN) as events:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((host, int(port)))
        slow.sendall(f"GET /api/v1/live?runs={RUN} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        next(events)
        wait_until(lambda: live_server.app.state.live.num_subscribers == 2)
        step = 2
        received = 0
        for _ in range(45):
            size = 2000
            live_server.send({"step": list(range(step, step + size)), "loss": [0.1] * size, "lr": [0.2] * size})
            step += size
            received += len(steps_of(ticks(events, size)))
        assert received == step - 2
        slow.settimeout(DEADLINE_S)
        lost = b'event: stale\ndata: {"run_id":null}'
        text = b""
        while lost not in text:
            text = text[-100:] + slow.recv(65536)


def test_a_server_that_is_told_to_stop_ends_open_streams_at_once(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradsight_server.cli", "serve", "--port", "0", "--db", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[3]
            with socket.create_connection(tuple(url.removeprefix("http://").split(":"))) as stream:  # type: ignore[arg-type]
                stream.sendall(b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"200 OK" in stream.recv(65536)
                began_s = time.monotonic()
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(ConnectionError):
                    while stream.recv(65536):
                        pass
                process.wait(DEADLINE_S)
            assert time.monotonic() - began_s < 2
            assert process.returncode in (0, -signal.SIGTERM)
        finally:
            process.kill()
