"""A real server on loopback for a test: uvicorn in a thread, a database of the test's own, httpx to ask it."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from fastapi import FastAPI

from gradsight_server.app import create_app
from gradsight_server.serving import Server, bind, local_url
from gradsight_server.settings import Settings

RUN = "0123456789abcdef" * 2
BATCHES = f"/api/v1/runs/{RUN}/streams/main/batches"
DEADLINE_S = 30.0


class Event(NamedTuple):
    """One server-sent event."""

    name: str
    id: int
    data: Any


class Asking:
    """Short words for asking a server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=DEADLINE_S, trust_env=False)

    def put(self, run_id: str = RUN, **record: Any) -> dict[str, Any]:
        run: dict[str, Any] = self.checked(self.client.put(f"/api/v1/runs/{run_id}", json=record))
        return run

    def send(self, batch: dict[str, Any], *, run_id: str = RUN, stream: str = "main") -> dict[str, Any]:
        path = f"/api/v1/runs/{run_id}/streams/{stream}/batches"
        answer: dict[str, Any] = self.checked(self.client.post(path, json=batch))
        return answer

    def get(self, path: str, **query: Any) -> Any:
        return self.checked(self.client.get(f"/api/v1/{path}", params=query))

    def checked(self, answer: httpx.Response) -> Any:
        assert answer.status_code == 200, answer.text
        return answer.json()

    @contextmanager
    def live(self, *runs: str, after: int | None = None, last_event_id: int | None = None) -> Iterator[Iterator[Event]]:
        """The events of an open stream, one by one."""
        query: dict[str, Any] = {"runs": ",".join(runs)} | ({} if after is None else {"after": after})
        headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
        with self.client.stream("GET", "/api/v1/live", params=query, headers=headers) as answer:
            assert answer.status_code == 200
            yield _events(answer.iter_lines())


class Running(Asking):
    """A server that answers, in this process."""

    def __init__(self, url: str, app: FastAPI) -> None:
        super().__init__(url)
        self.app = app


def _events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line:
            fields[name] = value
        elif "event" in fields:
            yield Event(fields["event"], int(fields["id"]), json.loads(fields["data"]))
            fields = {}


def next_of(events: Iterator[Event], name: str) -> Event:
    """The next event of this name, others passed over."""
    return next(event for event in events if event.name == name)


@contextmanager
def running(folder: Path | None = None, **settings: Any) -> Iterator[Running]:
    """A server with these settings until the block ends; its database is a file in the folder, or `db`."""
    where = {} if folder is None else {"db": str(folder / "gradsight.db")}
    made = Settings(**{"port": 0} | where | settings)
    app = create_app(made)
    bound = bind("127.0.0.1", 0)
    started = threading.Event()
    server = Server(app, on_start=started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        assert started.wait(DEADLINE_S)
        found = Running(local_url(bound), app)
        with found.client:
            yield found
    finally:
        server.should_exit = True
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def wait_until(is_true: Callable[[], bool]) -> None:
    """Returns once it is; fails at the deadline."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline_s, "it did not come true in time"
        time.sleep(0.01)
