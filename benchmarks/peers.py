"""The same log through other trackers and through ours: what it costs the training, how fast it is stored, how small.

    python benchmarks/peers.py [--env .venv-peers] [--install] [--steps 500] [--layers 150]

TensorBoard event files, W&B offline, MLflow on SQLite, Trackio, Aim: each in a process of its own, with the Python of
an environment of their own (`--env`, or GRADSIGHT_PEERS_ENV; `--install` makes it and asks pip for them). Ours goes
over HTTP into a server in another process, which has had a run before: no training starts its server, as none counts
the time that importing a tracker takes. Those that are not there are said to be absent. Every tracker gets each
step in one call where it has one for that, and is done when its `close` or `finish` returns. Prints a table and, last,
one JSON line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from _databases import new_database, num_bytes
from _peer import SCALARS
from _server import running_server

SCRIPT = Path(__file__).with_name("_peer.py")
PACKAGES = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow-skinny",  # all of tracking; the rest of mlflow is its server and what models need
    "trackio": "trackio",
    "aim": "aim",
}
BESIDE = {"mlflow": ("sqlalchemy", "alembic")}
"""What the small package leaves out, and a SQLite store needs."""
INSTALL_TIMEOUT_S = 300.0


def install(env: Path) -> None:
    """Makes the environment, and has pip bring each peer by itself: one that fails keeps no other away."""
    if not python_of(env).exists():
        venv.create(env, with_pip=True)
    for name, package in PACKAGES.items():
        command = [str(python_of(env)), "-m", "pip", "install", "--quiet", package, *BESIDE.get(name, ())]
        try:
            failed = subprocess.run(command, timeout=INSTALL_TIMEOUT_S).returncode != 0
        except subprocess.TimeoutExpired:
            failed = True
        print(f"{name}: {'could not be installed' if failed else 'is there'}", flush=True)


def python_of(env: Path) -> Path:
    return env / ("Scripts" if os.name == "nt" else "bin") / "python"


def is_there(python: Path, name: str) -> bool:
    return python.exists() and subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 0


def measure(python: Path, name: str, folder: Path, options: argparse.Namespace, *server: str) -> dict[str, Any]:
    """What the tracker's process says, or why it says nothing."""
    command = [str(python), str(SCRIPT), name, str(folder), str(options.steps), str(options.layers), *server]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout_s, cwd=folder)
    except subprocess.TimeoutExpired:
        return {"tracker": name, "problem": f"not done within {options.timeout_s:.0f} s"}
    try:
        said = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"tracker": name, "problem": (done.stderr.strip() or "said nothing").splitlines()[-1][:200]}
    num_values = options.steps * (options.layers + len(SCALARS))
    return {
        "tracker": name,
        "in_thread_us_per_step": round(1e6 * said["in_thread_s"] / options.steps, 1),
        "values_per_s": round(num_values / said["total_s"]),
        "total_s": round(said["total_s"], 3),
        "cpu_s": round(said["cpu_s"], 3),
    }


def ours(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Client and server together: the server's processor time counts too."""
    with new_database("sqlite", folder) as url:
        with running_server(url, folder) as server:
            measure(Path(sys.executable), "gradsight", folder, options, server.url)
            empty_bytes = num_bytes(url)
            before_s = server.cpu_s()
            row = measure(Path(sys.executable), "gradsight", folder, options, server.url)
            after_s = server.cpu_s()
        if before_s is not None and after_s is not None and "cpu_s" in row:
            row["cpu_s"] = round(row["cpu_s"] + after_s - before_s, 3)
        return row | {"num_bytes": num_bytes(url) - empty_bytes}


def theirs(name: str, env: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    python = python_of(env)
    if not is_there(python, name):
        return {"tracker": name, "problem": f"absent from {env}: --install brings it"}
    row = measure(python, name, folder, options)
    return row | {"num_bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())}


def show(row: dict[str, Any], num_values: int) -> None:
    if "problem" in row:
        print(f"{row['tracker']:>12}  {row['problem']}", flush=True)
        return
    row["bytes_per_value"] = round(row["num_bytes"] / num_values, 2)
    print(f"{row['tracker']:>12} {row['in_thread_us_per_step']:>12,.0f} {row['values_per_s']:>12,}", end=" ")
    print(f"{num_values / row['cpu_s']:>14,.0f} {row['bytes_per_value']:>12}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--env", type=Path, default=Path(os.environ.get("GRADSIGHT_PEERS_ENV", ".venv-peers")))
    parser.add_argument("--install", action="store_true", help="make the environment and ask pip for the peers")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--layers", type=int, default=150)
    parser.add_argument("--timeout-s", type=float, default=300.0, help="for each tracker")
    options = parser.parse_args()
    env = options.env.absolute()
    if options.install:
        install(env)
    num_values = options.steps * (options.layers + len(SCALARS))
    print(f"{options.steps} steps, {options.layers} layers and {len(SCALARS)} scalars: {num_values:,} values")
    print(f"{'tracker':>12} {'µs in thread':>12} {'values/s':>12} {'values/CPU s':>14} {'bytes/value':>12}")
    rows = []
    for name in ("gradsight", *PACKAGES):
        with tempfile.TemporaryDirectory(prefix=f"gradsight-peers-{name}-", ignore_cleanup_errors=True) as folder:
            row = ours(Path(folder), options) if name == "gradsight" else theirs(name, env, Path(folder), options)
        show(row, num_values)
        rows.append(row)
    mine = rows[0].get("values_per_s")
    for row in rows[1:]:
        if mine and "values_per_s" in row:
            row["ours_is_faster_by"] = round(mine / row["values_per_s"], 1)
            print(f"ours ÷ {row['tracker']}: {row['ours_is_faster_by']}")
    print(json.dumps({"benchmark": "peers", "steps": options.steps, "layers": options.layers, "trackers": rows}))


if __name__ == "__main__":
    main()
