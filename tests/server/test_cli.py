"""The command line as a person meets it: real processes, one line on stderr where something is wrong, exit codes."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import gradsight
from gradsight.transport import Report
from gradsight_server.commands import told
from gradsight_server.errors import SettingsError
from gradsight_server.serve import ssh_line
from gradsight_server.settings import load_settings

DEADLINE_S = 30.0
RUN = "0123456789abcdef" * 2


def environment(**more: str) -> dict[str, str]:
    """This process's, without what a developer may have set for Gradsight."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GRADSIGHT_", "SSH_"))}
    return kept | {"NO_COLOR": "1"} | more


def run(*arguments: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gradsight_server.cli", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment(**variables), capture_output=True, text=True, timeout=DEADLINE_S
    )


class Served:
    """A `gradsight serve` that runs, and what it has said so far."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        self.said = process.stdout.readline()
        self.url = re.findall(r"http://\S+", self.said)[0]

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def serving(*arguments: str, cwd: Path, **variables: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "gradsight_server.cli", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=cwd, env=environment(**variables), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Served(process)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(DEADLINE_S)
            finally:
                process.kill()


def test_help_names_the_commands(tmp_path: Path) -> None:
    for arguments in ((), ("--help",)):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 0
        for command in ("serve", "sync", "runs", "demo", "db"):
            assert command in done.stdout


def test_the_version_is_the_distributions(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout.strip() == f"gradsight {gradsight.__version__}"


WRONG = [
    (("nope",), "nope"),
    (("serve", "--prot", "1"), "--prot"),
    (("serve", "--port", "x"), "--port"),
    (("serve", "--port", "70000"), "port"),
    (("serve", "--db-sync", "maybe"), "db_sync"),
    (("serve", "--host", "0.0.0.0"), "GRADSIGHT_TOKEN"),
    (("serve", "--host", "no.such.host.invalid", "--insecure-no-auth"), "no.such.host.invalid"),
    (("serve", "--port", "0", "--db", "nosuch://x"), "nosuch"),
    (("serve", "--port", "0", "--db", "no/such/folder/x.db"), "no/such/folder/x.db"),
    (("db", "upgrade", "--db", "no/such/folder/x.db"), "no/such/folder/x.db"),
    (("demo", "--steps", "0"), "--steps"),
    (("runs", "--limit", "0"), "--limit"),
]


@pytest.mark.parametrize(("arguments", "named"), WRONG, ids=[" ".join(case[0]) for case in WRONG])
def test_wrong_use_is_one_line_and_exit_2(tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("gradsight: ")
    assert named in line


def test_a_taken_port_is_one_line_and_exit_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--port", port, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"gradsight: port {port} on 127.0.0.1 is taken: name another with --port, or 0 for any free one."
    ]


def test_a_newer_database_is_one_line(tmp_path: Path) -> None:
    assert run("db", "upgrade", "--db", "x.db", cwd=tmp_path).returncode == 0
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    done = run("serve", "--port", "0", "--db", "x.db", cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "newer Gradsight" in line


def test_serve_says_where_it_is_and_stops_at_ctrl_c(tmp_path: Path) -> None:
    with serving(cwd=tmp_path) as served:
        assert "sqlite:///gradsight.db" in served.said
        assert httpx.get(f"{served.url}/healthz", trust_env=False).status_code == 200
        assert (tmp_path / "gradsight.db").exists()
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(DEADLINE_S) == 0


def test_options_go_over_the_environment(tmp_path: Path) -> None:
    variables = {"GRADSIGHT_TOKEN": "from-the-environment", "GRADSIGHT_DB": "environment.db"}
    with serving("--token", "given", cwd=tmp_path, **variables) as served:
        for token, status in (("from-the-environment", 401), ("given", 200)):
            headers = {"Authorization": f"Bearer {token}"}
            assert httpx.get(f"{served.url}/api/v1/runs", headers=headers, trust_env=False).status_code == status
        assert (tmp_path / "environment.db").exists()
        listed = run("runs", "--server", served.url, "--token", "given", cwd=tmp_path)
        assert "no runs" in listed.stderr
        refused = run("runs", "--server", served.url, cwd=tmp_path)
        assert (refused.returncode, "token" in refused.stderr) == (2, True)


def test_over_ssh_the_tunnel_is_spelled_out(tmp_path: Path) -> None:
    with serving(cwd=tmp_path, SSH_CONNECTION="10.0.0.1 50000 10.0.0.2 22") as served:
        line = served.line()
        port = served.url.rpartition(":")[2]
        assert f"ssh -N -L {port}:127.0.0.1:{port}" in line
        assert "@10.0.0.2" in line
    assert "-p 2222 " in ssh_line(8420, "10.0.0.1 50000 10.0.0.2 2222")
    assert ssh_line(8420, "") == ssh_line(8420, "odd") == ""


def test_runs_are_listed_as_text_whatever_their_names(tmp_path: Path) -> None:
    with serving(cwd=tmp_path) as served:
        url = f"{served.url}/api/v1/runs/{RUN}"
        httpx.put(url, json={"name": "a [bold]b[/bold] \x1b[31mred", "project": "lm"}, trust_env=False)
        batch = {"step": [0, 1], "grad_norm_before_clip": [2.0, 0.5], "max_norm": [1.0, 1.0]}
        httpx.post(f"{url}/streams/main/batches", json=batch, trust_env=False)
        done = run("runs", cwd=tmp_path, GRADSIGHT_SERVER=served.url)
        assert done.returncode == 0
        assert "a [bold]b[/bold] �[31mred" in done.stdout
        assert "50 %" in done.stdout
        assert RUN in done.stdout
        as_json = json.loads(run("runs", "--json", "--project", "lm", "--server", served.url, cwd=tmp_path).stdout)
        assert as_json["items"][0]["id"] == RUN


def test_without_a_server_runs_and_sync_say_so_in_one_line(tmp_path: Path) -> None:
    spool(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for arguments in (("runs",), ("sync",)):
        done = run(*arguments, "--server", nobody, cwd=tmp_path)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert nobody in line


def test_a_way_to_the_server_that_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    spool(tmp_path)
    elsewhere = ("--server", "http://192.0.2.1:8420")
    for command in ("runs", "sync"):
        for options, variables, code, words in (
            (elsewhere, {"HTTP_PROXY": "htp://x"}, 1, "HTTP_PROXY cannot be used"),
            (elsewhere, {"NO_PROXY": "[::1"}, 1, "NO_PROXY cannot be used"),
            (("--server", "https://127.0.0.1:9"), {"SSL_CERT_FILE": "nowhere"}, 1, "SSL_CERT_FILE cannot be used"),
            (("--server", "localhost:8420"), {}, 2, "server must be an address"),
            (("--server", f"http://{'a' * 300}"), {}, 2, "server must be an address"),
            ((), {"GRADSIGHT_TOKEN": "my\udcffword"}, 2, "token must be text in UTF-8"),
        ):
            done = run(command, *options, cwd=tmp_path, **variables)
            (line,) = done.stderr.splitlines()
            assert (done.returncode, words in line, "word" in line) == (code, True, False), (command, line)


def spool(folder: Path) -> str:
    """What a training leaves that had no server: the run's id."""
    left = gradsight.Run(project="lm", name="left behind", mode="offline", spool_dir=folder / ".gradsight", quiet=True)
    for step in range(5):
        left.log_step(step, loss=float(step), grad_norm_before_clip=1.0)
    left.finish()
    return left.id


def test_serve_takes_in_what_was_spooled_in_its_folder(tmp_path: Path) -> None:
    run_id = spool(tmp_path)
    with serving("--token", "secret", cwd=tmp_path) as served:
        assert served.line().startswith(".gradsight: sent 5 steps of 1 run")
        headers = {"Authorization": "Bearer secret"}
        found = httpx.get(f"{served.url}/api/v1/runs/{run_id}", headers=headers, trust_env=False).json()
    assert (found["name"], found["num_steps"], found["status"]) == ("left behind", 5, "finished")
    assert not list((tmp_path / ".gradsight").rglob("*.seg"))


def test_sync_sends_what_was_spooled(tmp_path: Path) -> None:
    elsewhere = tmp_path / "server"  # a server in the same folder would take the spool in by itself
    elsewhere.mkdir()
    with serving(cwd=elsewhere) as served:
        run_id = spool(tmp_path)
        done = run("sync", "--server", served.url, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, ".gradsight: sent 5 steps of 1 run.\n")
        found = httpx.get(f"{served.url}/api/v1/runs/{run_id}", trust_env=False).json()
        assert found["num_steps"] == 5
        (tmp_path / ".gradsight").mkdir(exist_ok=True)
        again = run("sync", "--server", served.url, cwd=tmp_path)
        assert (again.returncode, again.stdout) == (0, "Nothing waits in .gradsight.\n")
        nowhere = run("sync", "nowhere", "--server", served.url, cwd=tmp_path)
        assert (nowhere.returncode, "'nowhere'" in nowhere.stderr) == (1, True)


def test_what_was_sent_is_told_in_a_sentence() -> None:
    assert told(Report(), Path("x")) == ""
    said = told(Report(num_runs=2, num_steps=7, num_refused=1, num_busy=1), Path("x"))
    assert said.startswith("x: sent 7 steps of 2 runs, 1 messages were refused by the server and are kept in x/refused")


def test_a_base_install_says_what_is_missing(tmp_path: Path) -> None:
    """As where only httpx and msgspec are installed: Typer cannot be found."""
    without_typer = (
        "import sys; sys.modules['typer'] = None; sys.argv = ['gradsight', 'serve'];"
        "from gradsight_server.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", without_typer], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "pip install 'gradsight[server]'" in line


def test_neither_help_nor_the_server_needs_torch(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import gradsight_server.commands; heavy = {'fastapi', 'sqlalchemy', 'uvicorn', 'numpy'} & sys.modules.keys()\n"
        "assert not heavy, heavy\n"
        "import gradsight_server.serve, gradsight_server.app\n"
        "assert 'plotly' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def test_settings_come_from_the_environment_and_name_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADSIGHT_ALLOWED_HOSTS", "a.example, *.lan,")
    monkeypatch.setenv("GRADSIGHT_DB", "postgresql://me:secret@db.example/x")
    monkeypatch.setenv("GRADSIGHT_TOKEN", " \n")
    settings = load_settings(port=1)
    assert settings.allowed_hosts == ("a.example", "*.lan")
    assert settings.shown_db == "postgresql+psycopg://me:***@db.example/x"
    assert settings.secret is None
    with pytest.raises(SettingsError, match=r"port.*-1"):
        load_settings(port=-1)
    assert "hush" not in repr(load_settings(token="hush"))
    for token in ("hu\udcffsh", "hu\nsh"):
        with pytest.raises(SettingsError, match=r"token: .*one line of text in UTF-8") as said:
            load_settings(token=token)
        assert "hu" not in str(said.value)


def test_a_database_of_another_kind_is_refused_without_its_password() -> None:
    with pytest.raises(
        SettingsError, match=r"db: .*begin with postgresql\+psycopg:// or sqlite:///, got mysql://"
    ) as said:
        load_settings(db="mysql://me:hush@host/x")
    assert "hush" not in str(said.value)
    assert load_settings(db="postgresql://host/x").db_url == "postgresql+psycopg://host/x"
    assert load_settings(db="runs.db").db_url == "sqlite:///runs.db"
