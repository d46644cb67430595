"""Runs of distributed launches: who sends, in which attempt, and how a launch is told from the one before."""

import os
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.optim import SGD

import gradsight
from gradsight.transport import MemoryTransport, send_spooled
from tests.client.distributed.ranks import Ranks
from tests.client.distributed.recipes import Recipe, loss_of, sharded_model

RUN_ID = "c" * 32


def spooled(folder: Path) -> MemoryTransport:
    """What all processes left there, as it would reach a server."""
    transport = MemoryTransport()
    send_spooled(folder, transport)
    return transport


def norms_by_rank(transport: MemoryTransport) -> dict[int, list[float]]:
    found: dict[int, list[float]] = defaultdict(list)
    for _, _, batch in transport.batches:
        if batch.step:
            rank = batch.rank[0] if isinstance(batch.rank, list) else 0
            found[rank or 0] += batch.columns["grad_norm_before_clip"]
    return dict(found)


def trained(folder: Path, *, all_ranks: bool = False, num_steps: int = 4, state: Any = None) -> tuple[Any, bool]:
    """A short sharded training with a moving threshold; the monitor's state, and whether this rank recorded."""
    rank, num_ranks = distributed.get_rank(), distributed.get_world_size()
    resume = None if state is None or all_ranks else state["run_id"]
    model = sharded_model(Recipe())
    with (
        pytest.MonkeyPatch.context() as patch,
        gradsight_run(patch, folder, resume=resume, all_ranks=all_ranks) as run,
    ):
        clip = gradsight.Ema(factor=1.5, warmup_steps=1)
        monitor = gradsight.Monitor(model, SGD(model.parameters(), lr=0.05), run=run, clip=clip)
        if state is not None:
            monitor.load_state_dict(state)
        for _ in range(num_steps):
            model.zero_grad()
            monitor.step(loss_of(model, monitor.num_steps, 0, 1, rank, num_ranks, False))
        return monitor.state_dict(), run.is_recording


def gradsight_run(patch: pytest.MonkeyPatch, folder: Path, *, resume: str | None, all_ranks: bool) -> gradsight.Run:
    if all_ranks:
        patch.setenv("GRADSIGHT_RUN_ID", RUN_ID)
    return gradsight.Run(spool_dir=folder, mode="offline", quiet=True, resume=resume, all_ranks=all_ranks)


def test_rank_0_sends_where_only_torch_knows_the_ranks(two_ranks: Ranks, tmp_path: Path) -> None:
    """Spawned processes: no launcher has set RANK."""
    (_, records), (_, other_records) = two_ranks(trained, tmp_path)
    assert (records, other_records) == (True, False)
    transport = spooled(tmp_path)
    assert [len(norms) for norms in norms_by_rank(transport).values()] == [4]
    (run_id,) = transport.runs
    assert transport.runs[run_id][0].world_size == 2


def test_all_ranks_send_into_one_attempt_and_a_resumed_one_is_another(two_ranks: Ranks, tmp_path: Path) -> None:
    two_ranks(trained, tmp_path, all_ranks=True)
    transport = spooled(tmp_path)
    assert list(transport.runs) == [RUN_ID]
    norms = norms_by_rank(transport)
    assert norms[0] == norms[1]
    assert len(norms[0]) == 4
    (first,) = {batch.attempt_id for _, _, batch in transport.batches}
    two_ranks(trained, tmp_path, all_ranks=True)
    (second,) = {batch.attempt_id for _, _, batch in spooled(tmp_path).batches} - {first}
    assert second is not None


def test_a_training_resumed_from_its_state_is_a_new_attempt_of_its_run(two_ranks: Ranks, tmp_path: Path) -> None:
    (state, _), (other_state, _) = two_ranks(trained, tmp_path)
    assert state["thresholds"] == other_state["thresholds"]
    assert other_state["run_id"] is None  # that rank records nothing
    two_ranks(trained, tmp_path, state=state)
    transport = spooled(tmp_path)
    assert list(transport.runs) == [state["run_id"]]
    steps = [(batch.attempt_id, step) for _, _, batch in transport.batches for step in batch.step]
    assert sorted(step for _, step in steps) == list(range(8))
    assert len({attempt for attempt, _ in steps}) == 2


def with_experts_of_its_own(folder: Path) -> None:
    """Expert parallelism without DTensors: each rank has an expert that no other one knows of."""
    dense, expert = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    with pytest.MonkeyPatch.context() as patch, gradsight_run(patch, folder, resume=None, all_ranks=True) as run:
        model = [("dense", dense), ("expert", expert)]
        monitor = gradsight.Monitor(model, SGD([dense, expert], lr=0.0), run=run, clip=1.0)
        dense.grad = torch.tensor([3.0])
        expert.grad = torch.tensor([40.0 if distributed.get_rank() == 0 else 2.0])
        monitor.step()


def test_ranks_that_disagree_are_both_recorded_and_never_averaged(two_ranks: Ranks, tmp_path: Path) -> None:
    two_ranks(with_experts_of_its_own, tmp_path)
    assert norms_by_rank(spooled(tmp_path)) == {
        0: [pytest.approx(40.112, abs=1e-3)],
        1: [pytest.approx(3.606, abs=1e-3)],
    }


WORKER = """
import os, sys, time
from pathlib import Path
import gradsight
with gradsight.Run(spool_dir=sys.argv[1], mode="offline", quiet=True, all_ranks=True) as run:
    run.log_step(0, grad_norm_before_clip=1.0 + int(os.environ["RANK"]))
assert "torch" not in sys.modules
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
done = [Path(f"{sys.argv[1]}-done-{sys.argv[2]}-{restart}-{rank}") for rank in "01"]
done[int(os.environ["RANK"])].touch()
deadline = time.monotonic() + 60
while not all(path.exists() for path in done):  # the first to fail has the other killed, recorded or not
    assert time.monotonic() < deadline
    time.sleep(0.01)
sys.exit(int(restart) < int(sys.argv[2]))
"""


def torchrun(folder: Path, port: int, *, num_failures: int) -> None:
    """Two ranks; they are started again after each of their failures."""
    script = folder / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    command += [f"--max-restarts={num_failures}", "--monitor-interval=0.1"]
    environment = {**os.environ, "GRADSIGHT_RUN_ID": RUN_ID, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(script), str(folder / "spool"), str(num_failures)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_torchrun_gives_each_launch_and_each_restart_one_attempt(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun(tmp_path, port, num_failures=1)
    torchrun(tmp_path, port, num_failures=0)  # on the same port, with nothing else to tell it by
    ranks_of: dict[str | None, set[int]] = defaultdict(set)
    for _, _, batch in spooled(tmp_path / "spool").batches:
        if batch.step:
            ranks_of[batch.attempt_id] |= {rank or 0 for rank in batch.rank} if isinstance(batch.rank, list) else {0}
    assert list(ranks_of.values()) == [{0, 1}] * 3
