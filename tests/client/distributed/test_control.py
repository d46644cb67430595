"""A threshold changed from outside holds on all ranks from the same step on."""

import os
import tempfile

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsight
from gradsight import wire
from tests.client.distributed.ranks import Ranks


def thresholds_on_a_rank() -> tuple[list[float | None], list[float], list[str]]:
    """Ten steps; rank 0 hears of a wish between two of them. (thresholds, a weight, events)"""
    rank = torch.distributed.get_rank()
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(torch.distributed.get_world_size())
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        run = gradsight.Run(spool_dir=folder, mode="offline", quiet=True)
        monitor = gradsight.Monitor(model, optimizer, run=run, clip=1.0, allow_control=True)
        found = []
        for step in range(10):
            if step == 4 and run._exporter is not None:
                answer = wire.Answer(accepted_steps=0, control=[wire.Control(id=1, max_norm=0.25)])
                run._exporter.hearing.answered(answer)
            optimizer.zero_grad()
            found.append(monitor.step(model(torch.ones(3, 4) * (rank + 1)).square().sum()).max_norm)
        run.finish()
    del os.environ["RANK"], os.environ["WORLD_SIZE"]
    weights: list[float] = model.module.weight.detach().flatten().tolist()
    return found, weights, [str(monitor.policy)]


def test_every_rank_changes_at_the_same_step(two_ranks: Ranks) -> None:
    first, second = two_ranks(thresholds_on_a_rank)
    assert first[0] == [1.0] * 4 + [0.25] * 6
    assert second == first
