"""Gradients with known values: a loss whose gradients are what a test says, and both orders of a step."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradsight
from gradsight import norms, thresholds
from gradsight.amp import AmpStep

ORDERS = ["host", "device"]

Planted = Sequence[Any]  # per parameter: a tensor or nested numbers, None for no gradient


@contextmanager
def order_of(name: str) -> Iterator[None]:
    """The order of a step: that of CPUs, or that of GPUs, which never waits for a device (run on CPU tensors here)."""
    with pytest.MonkeyPatch.context() as patch:
        if name == "device":
            patch.setattr(AmpStep, "_step_on_host", AmpStep._step_on_device)
            patch.setattr(thresholds, "_READ_ON_HOST", frozenset())
            patch.setattr(norms, "DEVICES_WITH_WIDE_NORMS", frozenset({"cpu"}))
        yield


def zeros_like(
    grads: Planted, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> list[tuple[str, nn.Parameter]]:
    """Named parameters of zeros in the shapes of these gradients; None stands for one element."""
    tensors = [torch.zeros(1) if grad is None else torch.as_tensor(grad) for grad in grads]
    return [
        (f"layer{index}", nn.Parameter(torch.zeros_like(tensor, dtype=tensor.dtype if tensor.is_complex() else dtype)))
        for index, tensor in enumerate(tensor.to(device) for tensor in tensors)
    ]


def loss_with(parameters: Sequence[Tensor], grads: Planted) -> Tensor:
    """A loss whose gradients are `grads`."""
    terms = [
        (parameter * torch.as_tensor(grad, dtype=parameter.dtype, device=parameter.device).conj()).real.sum().float()
        for parameter, grad in zip(parameters, grads, strict=True)
        if grad is not None
    ]
    return torch.stack(terms).sum()


def take_step(
    monitor: gradsight.Monitor, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], grads: Planted
) -> gradsight.StepResult:
    """One step of the monitor with these gradients."""
    optimizer.zero_grad()
    return monitor.step(loss_with(parameters, grads))


class Bench:
    """Parameters of zero under plain SGD with a learning rate of one, so that a step shows the gradients it applied.

    Args:
        grads: Their shapes.
        fused: The optimizer's kernel.
        kept: Arguments of the monitor.
    """

    def __init__(
        self,
        grads: Planted,
        *,
        fused: bool = False,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        **kept: Any,
    ) -> None:
        named = zeros_like(grads, dtype=dtype, device=device)
        self.parameters = [parameter for _, parameter in named]
        self.optimizer = torch.optim.SGD(self.parameters, lr=1.0, fused=fused)
        self.monitor = gradsight.Monitor(named, self.optimizer, **kept)

    def step(self, grads: Planted) -> gradsight.StepResult:
        return take_step(self.monitor, self.optimizer, self.parameters, grads)

    def applied(self, grads: Planted) -> tuple[gradsight.StepResult, list[Tensor]]:
        """The step's result, and what the optimizer subtracted from each parameter."""
        before = [parameter.detach().clone() for parameter in self.parameters]
        result = self.step(grads)
        return result, [old - new.detach() for old, new in zip(before, self.parameters, strict=True)]


def close(values: Sequence[Tensor], expected: Planted, *, rtol: float = 2e-6, atol: float = 1e-9) -> bool:
    """Whether all are equal to the tolerance of float32, NaN where NaN is expected."""
    pairs = zip(values, expected, strict=True)
    return all(
        torch.allclose(value, torch.as_tensor(wanted, dtype=value.dtype), rtol=rtol, atol=atol, equal_nan=True)
        for value, wanted in pairs
    )
