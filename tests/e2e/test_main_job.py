"""The main job with every part real: train, stream, store, read back; and servers that die meanwhile."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sqlalchemy import Connection
from torch import nn

import gradsight
from gradsight_server.diagnosis import Diagnosis, diagnose
from gradsight_server.store.database import Database
from gradsight_server.store.evidence import evidence
from tests.e2e.processes import GRADSIGHT, ServeProcess, environment, free_port, run_id_in, serving, wait_until

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServeProcess]:
    with serving(tmp_path) as served:
        yield served


def new_run(server: ServeProcess, tmp_path: Path, name: str = "tiny") -> gradsight.Run:
    return gradsight.Run("tests", name, server=server.url, spool_dir=tmp_path / "spool", quiet=True)


def train(run: gradsight.Run, num_steps: int) -> list[gradsight.StepResult]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = gradsight.Monitor(model, optimizer, run=run, clip=0.5)
    results = []
    for _ in range(num_steps):
        optimizer.zero_grad()
        results.append(monitor.step(model(torch.randn(8, 4)).square().mean()))
    return results


def test_what_was_trained_is_what_is_read_back(server: ServeProcess, tmp_path: Path) -> None:
    run = new_run(server, tmp_path)
    results = train(run, 60)
    run.log_metrics(59, {"val_loss": 0.5})
    run.finish()
    told = server.get(f"runs/{run.id}")
    assert (told["project"], told["name"], told["state"]) == ("tests", "tiny", "finished")
    assert (told["num_steps"], told["num_skipped"], told["last_step"]) == (60, 0, 59)
    assert told["streams_detail"]["main"]["record"]["policy"] == "global_norm(0.5)"
    assert told["streams_detail"]["main"]["record"]["optimizer"]["class"] == "SGD"
    series = server.get(f"runs/{run.id}/series", columns="grad_norm_before_clip,clip_coef,max_norm")
    assert series["step"] == list(range(60))
    for name in ("grad_norm_before_clip", "clip_coef", "max_norm"):
        expected = [getattr(result, name) for result in results]
        assert series["columns"][name]["mean"] == pytest.approx(expected, rel=1e-12)
    assert sum(series["num_clipped"]) == sum(result.clip_coef < 1.0 for result in results if result.clip_coef)
    one = server.get(f"runs/{run.id}/steps/59")
    assert [layer["names"] for layer in one["layers"]] == [["0.weight"], ["0.bias"], ["2.weight"], ["2.bias"]]
    total = sum(layer["norm"] ** 2 for layer in one["layers"]) ** 0.5
    assert total == pytest.approx(one["grad_norm_before_clip"], rel=1e-6)
    assert not (tmp_path / "spool").exists() or list((tmp_path / "spool").iterdir()) == []


def test_a_server_killed_in_mid_run_loses_nothing(server: ServeProcess, tmp_path: Path) -> None:
    run = new_run(server, tmp_path)
    for step in range(200):
        run.log_step(step, loss=float(step))
    wait_until(lambda: len(server.steps(run.id)) > 0)
    server.kill()
    for step in range(200, 400):
        run.log_step(step, loss=float(step))
    server.start()
    for step in range(400, 500):
        run.log_step(step, loss=float(step))
    wait_until(lambda: len(server.steps(run.id)) == 500)
    assert run.num_dropped == {}
    run.finish()
    assert server.steps(run.id) == list(range(500))
    told = server.get(f"runs/{run.id}")
    assert (told["num_steps"], told["state"]) == (500, "finished")


def test_the_next_process_brings_what_a_killed_one_left(server: ServeProcess, tmp_path: Path) -> None:
    code = (
        "import gradsight, os, signal, time\n"
        "run = gradsight.Run('tests', 'killed')\n"
        "for i in range(100): run.log_step(i, loss=1.0)\n"
        "time.sleep(0.3)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    nobody = environment(
        GRADSIGHT_SERVER=f"http://127.0.0.1:{free_port()}", GRADSIGHT_SPOOL_DIR=str(tmp_path / "spool")
    )
    subprocess.run([sys.executable, "-c", code], env=nobody, capture_output=True, check=False)
    run = new_run(server, tmp_path, "next")
    wait_until(lambda: any(found["name"] == "killed" for found in server.get("runs")["items"]))
    (killed,) = [found for found in server.get("runs")["items"] if found["name"] == "killed"]
    wait_until(lambda: server.steps(killed["id"]) == list(range(100)))
    run.finish()


def minimal_without_a_server(folder: Path) -> str:
    """Runs the example where nobody listens; the run's id, from its spool."""
    nobody = environment(GRADSIGHT_SERVER=f"http://127.0.0.1:{free_port()}")
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "minimal.py")],
        cwd=folder,
        env=nobody,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no server answers at" in done.stderr
    assert done.stderr.count("\n") == 1
    (run_folder,) = (folder / ".gradsight" / "spool").iterdir()
    return run_folder.name


def test_the_example_runs_without_a_server_and_sync_brings_it_later(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run_id = minimal_without_a_server(elsewhere)
    with serving(tmp_path) as server:
        done = subprocess.run(
            [GRADSIGHT, "sync", "--server", server.url],
            cwd=elsewhere,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert "sent 500 steps of 1 run" in done.stdout
        assert server.steps(run_id) == list(range(500))
        assert server.get(f"runs/{run_id}")["state"] == "finished"
    assert not (elsewhere / ".gradsight" / "spool").exists()


def test_a_server_started_in_the_same_folder_takes_the_spool_in(tmp_path: Path) -> None:
    run_id = minimal_without_a_server(tmp_path)
    with serving(tmp_path) as server:
        wait_until(lambda: server.steps(run_id) == list(range(500)))
        wait_until(lambda: not (tmp_path / ".gradsight" / "spool").exists())
        assert "sent 500 steps of 1 run" in server.stop()


def test_the_example_says_where_to_look_when_a_server_is_there(server: ServeProcess, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(REPOSITORY / "examples" / "minimal.py")],
        cwd=tmp_path,
        env=environment(GRADSIGHT_SERVER=server.url),
        capture_output=True,
        text=True,
        check=True,
    )
    run_id = run_id_in(done.stderr)
    assert server.steps(run_id) == list(range(500))
    assert done.stdout == ""


def test_the_demo_trains_three_runs_that_get_the_verdicts_they_were_made_for(tmp_path: Path) -> None:
    done = subprocess.run(
        [GRADSIGHT, "demo", "--headless", "--steps", "100", "--db", "demo.db"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["db"] == "demo.db"
    assert (tmp_path / "demo.db").exists()
    assert [run["num_steps"] for run in told["runs"]] == [100, 100, 100]
    assert [run["last_step"] for run in told["runs"]] == [99, 99, 99]
    healthy, too_tight, wrong = told["runs"]
    assert healthy["num_skipped"] == too_tight["num_skipped"] == 0
    assert wrong["num_skipped"] > 8  # a first burst from a scale of 2^24, then the learning rate goes wrong
    assert set(told["runs"][0]) == {"id", "name", "num_steps", "num_skipped", "last_step"}
    assert not (tmp_path / ".gradsight").exists()
    database = Database(f"sqlite:///{tmp_path / 'demo.db'}")
    with contextlib.closing(database), database.reading() as conn:
        said = [diagnosis_of(conn, run["id"]) for run in told["runs"]]
    assert [(one.clipping.verdict, one.severity) for one in said[:2]] == [("healthy", "info"), ("too_tight", "warning")]
    assert (said[2].loss_scaling.verdict, said[2].severity) == ("model_nan", "critical")


def diagnosis_of(conn: Connection, run_id: str) -> Diagnosis:
    found = evidence(conn, run_id)
    return diagnose(found.steps, found.context, found.facts)
