"""A threshold that a person may change while the run trains: on all ranks at the same step.

Where there are several ranks, rank 0 tells the others at the start of each step what is wanted, by one broadcast of two
numbers over gloo: no device waits for it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
import torch.distributed as dist

from gradsight import arguments
from gradsight.clipping import Clipper
from gradsight.errors import ConfigurationError
from gradsight.policies import GlobalNorm, Groups, Policy, TensorNorm
from gradsight.thresholds import Threshold

NOTHING = -1.0


class Change(NamedTuple):
    """A new threshold; `pattern` names the group of a policy with groups."""

    pattern: str | None
    max_norm: float


class Control:
    """Decides with the other ranks, step by step, which change holds from now on.

    Args:
        policy: What the script asked for.

    Raises:
        ConfigurationError: it has no fixed max_norm to change.
    """

    def __init__(self, policy: Policy | None) -> None:
        self._patterns = patterns_of(policy)
        if not self._patterns:
            raise ConfigurationError(
                f"allow_control must be False with clip {None if policy is None else str(policy)!r}: only a fixed "
                "max_norm can be changed."
            )
        self._group: dist.ProcessGroup | None = None

    def refusal(self, pattern: str | None, max_norm: float) -> str | None:
        """Why such a change cannot be; None where it can."""
        if pattern not in self._patterns:
            known = ", ".join(repr(name) for name in self._patterns if name is not None)
            return f"pattern must be one of {known}" if known else "this policy has no patterns"
        return None if 0 < max_norm < float("inf") else f"max_norm must be positive, got {max_norm!r}"

    def agreed(self, change: Change | None) -> Change | None:
        """Rank 0's change, on every rank; `change` of another rank does not count."""
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return change
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        place = NOTHING if change is None else float(self._patterns.index(change.pattern))
        told = torch.tensor([place, 0.0 if change is None else change.max_norm], dtype=torch.float64)
        dist.broadcast(told, src=0, group=self._group)
        place, max_norm = told.tolist()
        return None if place == NOTHING else Change(self._patterns[int(place)], max_norm)


def patterns_of(policy: Policy | None) -> list[str | None]:
    """Whose fixed thresholds a policy has: None stands for its own."""
    if isinstance(policy, Groups):
        return [pattern for pattern, part in policy.policies.items() if patterns_of(part)]
    is_fixed = isinstance(policy, GlobalNorm | TensorNorm) and not isinstance(policy.max_norm, Threshold)
    return [None] if is_fixed else []


def max_norm_of(policy: Policy | None, pattern: str | None) -> float:
    """The fixed threshold in force."""
    part = policy.policies[pattern] if isinstance(policy, Groups) and pattern is not None else policy
    assert isinstance(part, GlobalNorm | TensorNorm), "one of `patterns_of`"
    assert not isinstance(part.max_norm, Threshold), "one of `patterns_of`"
    return part.max_norm


def changed(policy: Policy | None, changes: Mapping[str | None, float]) -> Policy | None:
    """The policy with other thresholds."""
    if isinstance(policy, Groups):
        parts = policy.policies.items()
        return Groups({name: _with(part, changes[name]) if name in changes else part for name, part in parts})
    return _with(policy, changes[None]) if policy is not None and None in changes else policy


def _with(policy: Policy, max_norm: float) -> Policy:
    assert isinstance(policy, GlobalNorm | TensorNorm), "one of `patterns_of`"
    return replace(policy, max_norm=max_norm)


def checked(changes: object, policy: Policy | None) -> dict[str | None, float]:
    """Changes out of a saved state.

    Raises:
        ConfigurationError: they are none of this policy's.
    """
    known = patterns_of(policy)
    if not isinstance(changes, Mapping) or not changes.keys() <= set(known):
        raise ConfigurationError(f"max_norms must be by {known!r}, got {changes!r}.")
    return {pattern: arguments.positive("max_norms", value) for pattern, value in changes.items()}


def carry_over(old: Clipper, new: Clipper) -> None:
    """What the other thresholds have learned goes on in the new clipper."""
    states = dict(old.learners())
    for name, learner in new.learners():
        learner.load_state_dict(states[name].state_dict())
