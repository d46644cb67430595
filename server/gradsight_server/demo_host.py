"""`gradsight demo`: serves, starts the three trainings as processes of their own, and shows how far they are."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
import webbrowser
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from gradsight_server.app import create_app
from gradsight_server.errors import SettingsError
from gradsight_server.serve import open_or_explain
from gradsight_server.serving import bind, serving
from gradsight_server.settings import Settings, load_settings

NAMES = ("healthy", "too-tight-threshold", "fp16-lr-goes-wrong")
DEFAULT_STEPS = 2000


def run_demo(*, num_steps: int, db: str, headless: bool) -> int:
    """Run the demo to its end; its exit code."""
    console = Console(stderr=True)
    if importlib.util.find_spec("torch") is None:
        raise SettingsError(
            "the demo trains with PyTorch, which is not installed: pip install torch (a CPU build will do)."
        )
    settings = load_settings(db=db, host="127.0.0.1")
    database = open_or_explain(settings)
    bound = _free_port(settings.port)
    run_ids = {name: uuid.uuid4().hex for name in NAMES}
    with (
        serving(create_app(settings, database), bound) as server,
        tempfile.TemporaryDirectory(prefix="gradsight-demo-") as scratch,
    ):
        console.print(f"Gradsight is at {server}  (Ctrl-C ends the demo)", highlight=False)
        if not headless and _has_display():
            webbrowser.open(server)
        trainings = [_start(name, run_id, num_steps, server, scratch) for name, run_id in run_ids.items()]
        try:
            with httpx.Client(base_url=f"{server}/api/v1", headers=_headers(settings), trust_env=False) as client:
                _show_progress(console, client, run_ids, trainings, num_steps)
                runs = [client.get(f"/runs/{run_id}").raise_for_status().json() for run_id in run_ids.values()]
            if not headless:
                console.print(f"The trainings are over. The page stays at {server} until Ctrl-C.", highlight=False)
                threading.Event().wait()
        except KeyboardInterrupt:
            return 0
        finally:
            for training in trainings:
                training.terminate()
                training.wait()
    failed = [name for name, training in zip(NAMES, trainings, strict=True) if training.returncode]
    if failed:
        console.print(f"gradsight: these trainings ended with an error: {', '.join(failed)}", highlight=False)
    kept = ("id", "name", "num_steps", "num_skipped", "last_step")
    said = {"server": server, "db": db, "runs": [{key: run[key] for key in kept} for run in runs]}
    print(json.dumps(said), flush=True)
    return 1 if failed else 0


def _free_port(wanted: int) -> socket.socket:
    try:
        return bind("127.0.0.1", wanted)
    except SettingsError:
        return bind("127.0.0.1", 0)


def _start(name: str, run_id: str, num_steps: int, server: str, scratch: str) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ,
        "GRADSIGHT_SERVER": server,
        "GRADSIGHT_RUN_ID": run_id,
        "GRADSIGHT_SPOOL_DIR": str(Path(scratch) / "spool"),
        "GRADSIGHT_MODE": "online",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "gradsight_server.demo", name, "--steps", str(num_steps)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _show_progress(
    console: Console,
    client: httpx.Client,
    run_ids: dict[str, str],
    trainings: list["subprocess.Popen[bytes]"],
    num_steps: int,
) -> None:
    """One bar a training, as the server knows it, until all trainings have ended."""
    columns = (
        TextColumn("{task.description:20}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=console) as progress:
        tasks = {name: progress.add_task(name, total=num_steps, said="") for name in run_ids}
        over = False
        while not over:
            over = all(training.poll() is not None for training in trainings)
            for name, run_id in run_ids.items():
                response = client.get(f"/runs/{run_id}")
                if response.status_code == 200:
                    run = response.json()
                    progress.update(tasks[name], completed=run["num_steps"], said=_said(run))
            if not over:
                time.sleep(0.5)


def _said(run: dict[str, Any]) -> str:
    norm = run["last"].get("grad_norm_before_clip")
    shown = "no finite norm" if norm is None else f"norm {norm:.3g}"
    return f"{shown}, {run['num_clipped']} clipped, {run['num_skipped']} skipped"


def _headers(settings: Settings) -> dict[str, str]:
    return {"Authorization": f"Bearer {settings.secret}"} if settings.secret else {}


def _has_display() -> bool:
    if sys.platform in ("darwin", "win32"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
