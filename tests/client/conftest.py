"""Runs that keep to a test's own folder, and small models."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import gradsight
from gradsight import wire
from gradsight.transport import MemoryTransport, send_spooled

torch.set_num_threads(1)  # small tensors: threads only get in each other's way

NOBODY = "http://127.0.0.1:9"
"""An address where no server listens: the discard port of this machine."""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SERVER", "TOKEN", "SPOOL_DIR", "MODE", "RUN_ID", "ATTEMPT_ID"):
        monkeypatch.delenv(f"GRADSIGHT_{name}", raising=False)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[gradsight.Run]:
    """A run that spools below the test's folder and never connects."""
    with gradsight.Run(spool_dir=tmp_path, mode="offline", quiet=True) as run:
        yield run


def small_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def sent(run: gradsight.Run) -> MemoryTransport:
    """Everything the run has recorded, as it would reach a server; ends the run."""
    run.finish()
    transport = MemoryTransport()
    send_spooled(run.spool_dir, transport)
    return transport


def rows(transport: MemoryTransport, stream: str = "main") -> dict[str, list[object]]:
    """The stream's columns over all batches, step included."""
    columns: dict[str, list[object]] = {}
    for _, of_stream, batch in transport.batches:
        if of_stream == stream and batch.step:
            for name, values in {"step": batch.step, **batch.columns}.items():
                columns.setdefault(name, []).extend(values)
    return columns


def layer_rows(transport: MemoryTransport) -> list[tuple[int, tuple[float, ...]]]:
    """(step, norms of its layers) over all batches."""
    found: list[tuple[int, tuple[float, ...]]] = []
    names: dict[str, list[wire.LayerNames]] = {}
    for _, _, batch in transport.batches:
        if batch.layers is not None:
            names[batch.layers_id or wire.layers_id(batch.layers)] = batch.layers
        if isinstance(batch.layer_norms, bytes):
            values = memoryview(batch.layer_norms).cast("f")
            width = len(names[batch.layers_id or ""])
            found += [
                (step, tuple(values[i * width : (i + 1) * width].tolist())) for i, step in enumerate(batch.layer_step)
            ]
    return found
