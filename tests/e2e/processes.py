"""Real processes for the end-to-end tests: `gradsight serve`, killed and started again at will."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

GRADSIGHT = str(Path(sys.executable).with_name("gradsight"))
DEADLINE_S = 30.0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    """This process's, without what would tell Gradsight where to go."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRADSIGHT_")}
    return kept | more


class ServeProcess:
    """`gradsight serve` in a folder, always on the same port and database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None
        self.said: list[str] = []

    def start(self) -> "ServeProcess":
        command = [GRADSIGHT, "serve", "--port", str(self.port), "--db", "sqlite:///test.db"]
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert self.url in line, line + self.process.stdout.read()
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.ended()

    def stop(self) -> str:
        """SIGTERM; what it still said."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> str:
        assert self.process is not None
        said, _ = self.process.communicate(timeout=DEADLINE_S)
        self.process = None
        return said

    def get(self, path: str, **query: Any) -> Any:
        response = httpx.get(f"{self.url}/api/v1/{path}", params=query, trust_env=False)
        assert response.status_code == 200, response.text
        return response.json()

    def steps(self, run_id: str) -> list[int]:
        """All steps of the run's main stream, as the series gives them."""
        found = httpx.get(
            f"{self.url}/api/v1/runs/{run_id}/series", params={"columns": "loss", "points": 10_000}, trust_env=False
        )
        if found.status_code == 404:
            return []
        series = found.json()
        assert series["bucket_steps"] == 1
        return [int(step) for step in series["step"]]


@contextmanager
def serving(folder: Path) -> Iterator[ServeProcess]:
    """A started server; whatever is left of it ends with the block."""
    served = ServeProcess(folder).start()
    try:
        yield served
    finally:
        if served.process is not None:
            served.kill()


def wait_until(is_true: Callable[[], bool], within_s: float = DEADLINE_S) -> None:
    until = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < until, "it did not come true in time"
        time.sleep(0.02)


def run_id_in(text: str) -> str:
    """The run's id in the one line a training says."""
    found = re.search(r"/runs/([0-9a-f]{32})", text)
    assert found, text
    return found[1]
