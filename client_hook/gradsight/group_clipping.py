"""`Groups`: a policy for each group of parameters, and the clipper of any policy."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradsight.clipping import (
    Clip,
    Clipper,
    GlobalClipper,
    GroupClip,
    NoClipper,
    Seen,
    as_multiplier,
    effective,
    measured,
    moved,
    multiply_,
)
from gradsight.element_clipping import ElementClipper
from gradsight.errors import ConfigurationError
from gradsight.norms import norm_of
from gradsight.policies import GlobalNorm, Groups, Policy, TensorAdaptive, TensorNorm, UnitNorm, Value
from gradsight.tensor_clipping import AdaptiveClipper, TensorClipper


def clipper_of(policy: Policy | None, all_names: Mapping[str, Sequence[str]]) -> Clipper:
    """The policy's working copy for an optimizer with these layers: all names of each, by the one it goes by.

    Raises:
        ConfigurationError: a pattern of `Groups` matches none of the names.
    """
    match policy:
        case None:
            return NoClipper()
        case GlobalNorm():
            return GlobalClipper(policy)
        case TensorNorm():
            return TensorClipper(policy)
        case TensorAdaptive():
            return AdaptiveClipper(policy)
        case Value() | UnitNorm():
            return ElementClipper(policy, all_names)
        case Groups():
            return GroupsClipper(policy, all_names)


class Group(NamedTuple):
    """The layers of a group that have a gradient."""

    indices: list[int]
    names: list[str]
    places: Tensor  # the indices again, on the norms' device


class Members(NamedTuple):
    """Who belongs where, as long as the same layers have a gradient and their norms are on the same device."""

    names: Sequence[str]
    device: torch.device
    groups: dict[str, Group]


class GroupsClipper:
    """Each group by its own clipper; a layer that belongs to none is left as it is."""

    norm_type = 2.0

    def __init__(self, policy: Groups, all_names: Mapping[str, Sequence[str]]) -> None:
        self._policy = policy
        self._all_names = all_names
        self._clippers = {pattern: clipper_of(part, all_names) for pattern, part in policy.policies.items()}
        self._by_element = {
            pattern: clipper for pattern, clipper in self._clippers.items() if isinstance(clipper, ElementClipper)
        }
        self._members: Members | None = None
        for pattern in policy.policies:
            if not any(policy.pattern_of(*names) == pattern for names in all_names.values()):
                raise ConfigurationError(
                    f"policies must have patterns that are the first to match a layer, got {pattern!r}; layers are "
                    f"{', '.join(list(all_names)[:8])}{', …' if len(all_names) > 8 else ''}."
                )

    def decide(self, seen: Seen) -> Clip:
        if self._by_element:
            return Clip(factors=None)
        parts = self._parts(seen)
        clips = {pattern: self._clippers[pattern].decide(part) for pattern, (part, _) in parts.items()}
        factors = torch.ones_like(seen.vector)
        for pattern, (_, index) in parts.items():
            of_group = torch.as_tensor(clips[pattern].factors, dtype=factors.dtype, device=factors.device)
            factors.index_copy_(0, index, of_group.expand(len(index)))
        return self._whole(seen, parts, clips, seen.vector * factors, factors)

    def clip_(self, seen: Seen) -> Clip:
        parts = self._parts(seen)
        clips = {}
        # Ranks measure for all groups together: a group may have no gradient on some of them.
        weight_norms = {pattern: clipper.whole_weight_norms(seen) for pattern, clipper in self._by_element.items()}
        for pattern, (part, index) in parts.items():
            clip = clips[pattern] = self._clippers[pattern].decide(part)
            if clip.factors is None:
                of_group = weight_norms[pattern]
                self._by_element[pattern].change_(part, None if of_group is None else of_group[index])
            else:
                multiply_(part.grads, as_multiplier(clip.factors))
        after = measured(seen, seen.grads)
        for pattern in self._by_element.keys() & parts.keys():
            part, index = parts[pattern]
            clips[pattern] = self._by_element[pattern].told(part, after[index])
        return self._whole(seen, parts, clips, after, None)

    def _parts(self, seen: Seen) -> dict[str, tuple[Seen, Tensor]]:
        """What each group's clipper sees, and the indices of its layers, for the groups that have a gradient."""
        device = seen.scaled_norms.device if isinstance(seen.scaled_norms, Tensor) else torch.device("cpu")
        members = self._members
        if members is None or members.names is not seen.names or members.device != device:
            members = self._members = self._members_of(seen.names, device)
        return {pattern: (self._part(pattern, group, seen), group.places) for pattern, group in members.groups.items()}

    def _members_of(self, names: Sequence[str], device: torch.device) -> Members:
        found: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            pattern = self._policy.pattern_of(*self._all_names[name])
            if pattern is not None:
                found.setdefault(pattern, []).append(index)
        groups = {
            pattern: Group(indices, [names[index] for index in indices], moved(torch.tensor(indices), device))
            for pattern, indices in found.items()
        }
        return Members(names, device, groups)

    def _part(self, pattern: str, group: Group, seen: Seen) -> Seen:
        norm_type = self._clippers[pattern].norm_type
        grads = [seen.grads[index] for index in group.indices]
        norms: Sequence[float] | Tensor
        if norm_type != 2.0:
            vector = measured(seen, grads, norm_type)
            norms = vector if isinstance(seen.scaled_norms, Tensor) else vector.tolist()
        elif isinstance(seen.scaled_norms, Tensor):
            norms = seen.scaled_norms[group.places]
        else:
            norms = [seen.scaled_norms[index] for index in group.indices]
        total = norm_of(norms, norm_type) * seen.unscale
        # Where a gradient of another group is not finite the step is not applied: nothing is learned from this one.
        if isinstance(total, Tensor):
            total = torch.where(torch.as_tensor(seen.is_finite, device=total.device), total, torch.nan)
        elif not seen.is_finite:
            total = math.nan
        parameters = [seen.parameters[index] for index in group.indices]
        return replace(seen, names=group.names, parameters=parameters, grads=grads, scaled_norms=norms, total=total)

    def _whole(
        self, seen: Seen, parts: dict[str, tuple[Seen, Tensor]], clips: dict[str, Clip], after: Tensor, factors: Any
    ) -> Clip:
        clipped = torch.zeros_like(after, dtype=torch.bool)
        groups = {}
        for pattern, (part, index) in parts.items():
            clip = clips[pattern]
            norm = norm_of(part.scaled_norms, self._clippers[pattern].norm_type) * part.unscale
            of_group = clip.clipped
            if of_group is None and clip.max_norm is not None:
                of_group = torch.as_tensor(norm > clip.max_norm, device=clipped.device).expand(len(index))
            if of_group is not None:
                clipped.index_copy_(0, index, of_group)
            groups[pattern] = GroupClip(norm, clip.clip_coef, clip.max_norm)
        finite = torch.as_tensor(seen.is_finite, device=clipped.device)
        return Clip(factors, effective(seen, after), clipped=clipped & finite, groups=groups)

    def learners(self) -> Iterator[tuple[str, Any]]:
        for pattern, clipper in self._clippers.items():
            for name, learner in clipper.learners():
                yield f"{pattern}: {name}", learner
