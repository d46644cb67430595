"""A server killed between an alert's opening and its delivery: nothing is lost, and nothing is told twice for it."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gradsight_server.cli import main
from tests.server.api.kit import Asking, wait_until
from tests.server.api.receiver import Receiver, receiving

RUN = uuid.uuid4().hex
NAN = "NaN"


class Served(Asking):
    """`gradsight serve` in a process of its own."""

    def __init__(self, url: str, process: "subprocess.Popen[str]") -> None:
        super().__init__(url)
        self._process = process

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    @property
    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("alerts")["items"]
        return found

    @property
    def target(self) -> dict[str, Any]:
        (found,) = self.get("notification-targets")["items"]
        return dict(found)


@contextmanager
def serving(db: str, folder: Path, hook: Receiver) -> Iterator[Served]:
    command = [sys.executable, "-m", "gradsight_server.cli", "serve", "--port", "0", "--db", db]
    environment = os.environ | {"GRADSIGHT_NOTIFICATIONS": hook.url, "GRADSIGHT_PUBLIC_URL": "http://grad.example"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
        try:
            assert process.stdout is not None
            found = Served(process.stdout.readline().split()[3], process)
            with found.client:
                yield found
        finally:
            process.kill()


def burst(server: Served, step: int, *norms: Any) -> None:
    server.send({"step": list(range(step, step + len(norms))), "grad_norm_before_clip": list(norms)}, run_id=RUN)


def test_a_message_that_waits_survives_a_killed_server_and_comes_once(tmp_path: Path) -> None:
    with receiving() as hook:
        hook.refuses = True
        with serving("x.db", tmp_path, hook) as first:
            first.put(RUN, name="baseline")
            burst(first, 0, 1.0, NAN, NAN)
            first.kill()
        with serving("x.db", tmp_path, hook) as second:
            burst(second, 0, 1.0, NAN, NAN)  # its answer was lost
            burst(second, 3, NAN)
            wait_until(lambda: hook.num_refused > 0)
            second.kill()
        hook.refuses = False
        with serving("x.db", tmp_path, hook) as third:
            wait_until(lambda: bool(hook.got) and third.target["num_waiting"] == 0)
            burst(third, 4, NAN)
            assert [(alert["kind"], alert["first_step"], alert["num_repeats"]) for alert in third.alerts] == [
                ("nonfinite_burst", 1, 0)
            ]
        (message,) = hook.texts
        assert message.splitlines()[1] == "run baseline (project default)"
        assert message.splitlines()[-1] == f"http://grad.example/runs/{RUN}"


@pytest.mark.postgresql
def test_what_a_killed_leader_had_still_to_tell_another_server_tells(postgresql_url: str, tmp_path: Path) -> None:
    with receiving() as hook:
        hook.refuses = True
        with serving(postgresql_url, tmp_path, hook) as leader:
            wait_until(lambda: "gradsight_leader 1.0" in leader.client.get("/metrics").text)
            with serving(postgresql_url, tmp_path, hook) as other:
                other.put(RUN, name="baseline")
                burst(other, 0, NAN, NAN, NAN)
                wait_until(lambda: hook.num_refused > 0)
                leader.kill()
                hook.refuses = False
                wait_until(lambda: bool(hook.got) and other.target["num_waiting"] == 0)
                assert len(other.alerts) == len(hook.got) == 1


def test_the_command_sends_a_test_and_says_how_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with receiving() as hook, serving("x.db", tmp_path, hook) as server:
        for refuses, code, said in ((False, 0, "JSON: sent in"), (True, 1, "JSON: failed:")):
            hook.refuses = refuses
            monkeypatch.setattr(sys, "argv", ["gradsight", "alerts", "test", "--server", server.url])
            with pytest.raises(SystemExit) as ended:
                main()
            assert ended.value.code == code
            assert said in capsys.readouterr().out
        monkeypatch.setattr(sys, "argv", ["gradsight", "alerts", "test", "nobody", "--server", server.url])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert "'nobody'" in capsys.readouterr().err
