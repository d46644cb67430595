"""Policies with a coefficient for each tensor: `TensorNorm`, and `TensorAdaptive` (AdaGC) with its state."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradsight import arguments
from gradsight.clipping import EPS, Clip, FactorClipper, Seen, effective, moved
from gradsight.errors import ConfigurationError
from gradsight.policies import TensorAdaptive, TensorNorm
from gradsight.thresholds import Threshold


def per_tensor(seen: Seen, factors: Tensor, clipped: Tensor, *, max_norm: float | None = None) -> Clip:
    """The Clip of factors [L] float64; a step with a non-finite gradient is never clipped."""
    finite = torch.as_tensor(seen.is_finite, device=factors.device)
    factors = torch.where(finite, factors, torch.ones_like(factors))
    return Clip(factors, effective(seen, seen.vector * factors), max_norm, clipped & finite)


class TensorClipper(FactorClipper):
    """`TensorNorm`: each tensor held to the threshold, or to a moving one of its own."""

    def __init__(self, policy: TensorNorm) -> None:
        self._max_norm = policy.max_norm
        self._own: dict[str, Threshold] = {}

    def decide(self, seen: Seen) -> Clip:
        norms = seen.vector
        if isinstance(self._max_norm, Threshold):
            limits = self._moving_limits(seen, norms)
            fixed = None
        else:
            limits = torch.full_like(norms, self._max_norm)
            fixed = self._max_norm
        return per_tensor(seen, (limits / (norms + EPS)).clamp(max=1.0), norms > limits, max_norm=fixed)

    def _moving_limits(self, seen: Seen, norms: Tensor) -> Tensor:
        # A step that is not applied teaches nothing: tensors that are finite in it pass as non-finite too.
        taught = torch.where(torch.as_tensor(seen.is_finite, device=norms.device), norms, torch.nan)
        if taught.is_cuda:
            limits = [self._of(name)(norm) for name, norm in zip(seen.names, taught.unbind(), strict=True)]
            return torch.stack(limits)
        values = [self._of(name)(norm) for name, norm in zip(seen.names, taught.tolist(), strict=True)]
        return torch.tensor(values, dtype=torch.float64)

    def _of(self, name: str) -> Threshold:
        if name not in self._own:
            assert isinstance(self._max_norm, Threshold)
            self._own[name] = self._max_norm.fresh()
        return self._own[name]

    def learners(self) -> Iterator[tuple[str, Any]]:
        if isinstance(self._max_norm, Threshold):
            yield "max_norm", _ByName(self._own, self._of)


class _ByName:
    """The state of many thresholds as one."""

    def __init__(self, thresholds: dict[str, Threshold], make: Callable[[str], Threshold]) -> None:
        self._thresholds = thresholds
        self._make = make

    def state_dict(self) -> dict[str, Any]:
        return {name: threshold.state_dict() for name, threshold in self._thresholds.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping):
            raise ConfigurationError(f"state must map layers to the states of their thresholds, got {state!r:.200}.")
        self._thresholds.clear()
        for name, own in state.items():
            self._make(name).load_state_dict(own)


class AdaptiveClipper(FactorClipper):
    """`TensorAdaptive` (AdaGC). Its rule, for each tensor with norm n:

    warm-up: all are scaled by min(1, max_norm / (‖all‖ + 1e-6)); γ is the smallest norm after that.
    then: threshold = relative·γ, coefficient min(1, threshold / (n + 1e-6)), γ ← beta·γ + (1−beta)·min(n, threshold).

    Two guards the paper has not: a norm of zero teaches nothing (γ = 0 would hold an unused expert's tensor to zero
    for ever), and a tensor whose first gradient comes after the warm-up starts from that one. Steps with a non-finite
    gradient count for nothing.
    """

    def __init__(self, policy: TensorAdaptive) -> None:
        self._policy = policy
        self._state = AdaptiveState()

    def decide(self, seen: Seen) -> Clip:
        policy, norms = self._policy, seen.vector
        gamma, count = self._state.read(seen.names, norms.device)
        finite = torch.as_tensor(seen.is_finite, device=norms.device)
        total = torch.as_tensor(seen.total, dtype=torch.float64, device=norms.device)
        is_warmup, is_new = count < policy.warmup_steps, gamma.isinf()
        limits = torch.where(is_new, norms, policy.relative * gamma)
        together = (policy.max_norm / (total + EPS)).clamp(max=1.0)
        factors = torch.where(is_warmup, together, (limits / (norms + EPS)).clamp(max=1.0))
        moved = policy.beta * gamma + (1 - policy.beta) * torch.minimum(norms, limits)
        learned = torch.where(is_warmup | is_new, torch.minimum(gamma, norms * factors), moved)
        self._state.write(seen.names, torch.where(finite & (norms > 0), learned, gamma), count + finite)
        return per_tensor(seen, factors, torch.where(is_warmup, total > policy.max_norm, norms > limits))

    def learners(self) -> Iterator[tuple[str, Any]]:
        yield "gamma", self._state


class AdaptiveState:
    """AdaGC's γ of every tensor by name (inf: not seen yet) and the count of steps, on the norms' device."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self._gamma = torch.empty(0, dtype=torch.float64)
        self._count = torch.zeros((), dtype=torch.float64)
        self._at: tuple[Sequence[str], Tensor] | None = None

    def read(self, names: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
        """γ [L] of these tensors, and the count."""
        new = [name for name in names if name not in self._index]
        for name in new:
            self._index[name] = len(self._index)
        unseen = torch.full((len(new),), torch.inf, dtype=torch.float64, device=device)
        self._gamma = torch.cat((moved(self._gamma, device), unseen)) if new else moved(self._gamma, device)
        self._count = moved(self._count, device)
        return self._gamma[self._indices(names)], self._count

    def write(self, names: Sequence[str], gamma: Tensor, count: Tensor) -> None:
        self._gamma = self._gamma.index_copy(0, self._indices(names), gamma)
        self._count = count

    def _indices(self, names: Sequence[str]) -> Tensor:
        if self._at is None or self._at[0] is not names or self._at[1].device != self._gamma.device:
            self._at = (names, moved(torch.tensor([self._index[name] for name in names]), self._gamma.device))
        return self._at[1]

    def state_dict(self) -> dict[str, Any]:
        gamma = self._gamma.tolist()
        learned = {name: gamma[index] for name, index in self._index.items() if math.isfinite(gamma[index])}
        return {"num_steps": int(self._count), "gamma": learned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping) or not {"num_steps", "gamma"} <= state.keys():
            raise ConfigurationError(
                f"state must be one of tensor_adaptive, with num_steps, gamma, got {state!r:.200}."
            )
        if not isinstance(state["gamma"], Mapping):
            raise ConfigurationError(f"gamma must map layers to numbers, got {state['gamma']!r:.200}.")
        num_steps = arguments.state_number("num_steps", state["num_steps"])
        gamma = {name: arguments.state_number("gamma", value) for name, value in state["gamma"].items()}
        self._index = {name: index for index, name in enumerate(gamma)}
        self._gamma = torch.tensor(list(gamma.values()), dtype=torch.float64)
        self._count = torch.tensor(float(num_steps), dtype=torch.float64)
        self._at = None
