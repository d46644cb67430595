"""The wheel in clean environments: what it carries, what importing the hook costs, and the server without torch.

The wheels of what the server needs are kept in pytest's cache folder, so that a second run asks no registry.
"""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GRADSIGHT"))}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=CLEAN, capture_output=True, text=True, timeout=300)


def build(*options: str, into: Path) -> Path:
    """Build what the options ask for from the checkout; the path of the one wheel."""
    done = run(sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", into, ROOT, cwd=into)
    assert done.returncode == 0, done.stderr
    [wheel] = into.glob("*.whl")
    return wheel


def make_environment(folder: Path, requirement: str, wheels: Path) -> Path:
    """The `bin` folder of a new environment that holds the requirement and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    install = (*pip, "install", "--quiet", "--no-index", "--find-links", wheels, requirement)
    if run(*install, cwd=folder).returncode != 0:
        fetched = run(*pip, "download", "--quiet", "--dest", wheels, requirement, cwd=folder)
        assert fetched.returncode == 0, fetched.stderr
        done = run(*install, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder / "bin"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("--wheel", into=tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def wheels(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("wheels")


@pytest.fixture(scope="session")
def with_server(wheel: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment made by `pip install 'gradsight[server]'`: no torch, no checkout."""
    return make_environment(tmp_path_factory.mktemp("with-server"), f"{wheel}[server]", wheels)


@pytest.fixture(scope="session")
def without_server(wheel: Path, wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of an environment made by `pip install gradsight`, as in a training image."""
    return make_environment(tmp_path_factory.mktemp("without-server"), str(wheel), wheels)


@contextmanager
def serving(programs: Path, folder: Path) -> Iterator[str]:
    """A server of the installed package in a folder; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        command: list[str | Path] = [programs / "gradsight", "serve", "--port", port]
        server = subprocess.Popen(command, cwd=folder, env=CLEAN, stdout=log, stderr=log)
    try:
        wait_until_ready(address, server, folder / "log")
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


def wait_until_ready(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < deadline:
        try:
            httpx.get(f"{address}/readyz").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"the server did not come up:\n{log.read_text()}")


def modules_after(statement: str, programs: Path, cwd: Path) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    script = f"import json, sys; {statement}; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    done = run(programs / "python", "-c", script, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_wheel_carries_both_packages_the_page_and_the_migrations(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, inside in {
        "client_hook": ".",
        "server": ".",
        "web": "gradsight_server/web",
        "migrations": "gradsight_server/migrations",
    }.items():
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and file.suffix != ".pyc":
                assert (Path(inside) / file.relative_to(ROOT / folder)).as_posix() in names
    assert not [name for name in names if name.endswith(".pyc") or "test" in name.split("/")[0]]


def test_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    rebuilt = build(into=tmp_path)  # without an option, the wheel is built from the sdist
    assert set(zipfile.ZipFile(rebuilt).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_import_gradsight_loads_nothing_but_itself(with_server: Path, tmp_path: Path) -> None:
    brought = modules_after("import gradsight", with_server, tmp_path) - modules_after("pass", with_server, tmp_path)
    assert "gradsight" in brought
    assert not brought & {"torch", "numpy", "httpx", "msgspec", "asyncio", "gradsight_server"}


def test_run_needs_no_torch(without_server: Path, tmp_path: Path) -> None:
    script = "import gradsight; run = gradsight.Run(mode='offline'); run.log_step(0, loss=1.0); run.finish()"
    assert "gradsight" in modules_after(script, without_server, tmp_path)


def test_server_is_imported_where_torch_is_not_installed(with_server: Path, tmp_path: Path) -> None:
    assert run(with_server / "python", "-c", "import torch", cwd=tmp_path).returncode != 0
    loaded = modules_after("import gradsight_server.app", with_server, tmp_path)
    assert "gradsight_server" in loaded
    assert "plotly" not in loaded  # its file is served; importing the package would cost memory for nothing


def test_wheel_serves_the_page(with_server: Path, tmp_path: Path) -> None:
    with serving(with_server, tmp_path) as address, httpx.Client(base_url=address) as client:
        page = client.get("/")
        assert page.status_code == 200
        parts = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
        assert parts
        for part in parts:
            assert client.get(part).status_code == 200, part
        [plotly] = re.findall(r'"(/static/[^"]*plotly[^"]*)"', page.text)
        assert client.get(plotly).text.count("Plotly") > 0


def test_wheel_migrates_a_database_outside_the_checkout(with_server: Path, tmp_path: Path) -> None:
    with serving(with_server, tmp_path) as address:
        assert httpx.get(f"{address}/api/v1/runs").json()["items"] == []
    with closing(sqlite3.connect(tmp_path / "gradsight.db")) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {"alembic_version", "runs", "steps"} <= tables


def test_gradsight_help_names_the_commands(with_server: Path, tmp_path: Path) -> None:
    done = run(with_server / "gradsight", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert {"serve", "demo", "sync"} <= set(done.stdout.split())


def test_command_without_the_server_extra_says_in_one_line_what_to_install(
    without_server: Path, tmp_path: Path
) -> None:
    done = run(without_server / "gradsight", "--help", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "pip install 'gradsight[server]'" in line
