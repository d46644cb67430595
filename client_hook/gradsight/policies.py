"""The clipping policies as plain descriptions with one text form, `global_norm(1.0)`. No torch.

A policy is frozen and says what is to be done; clipping.py does it. The only state is that of the thresholds: a policy
that holds a moving one is a template, of which the hook takes its own working copies (`copy.deepcopy`, or `fresh()` for
each tensor of `TensorNorm`) and whose `state_dict()`s it keeps, so one description can serve several optimizers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, overload

from gradsight import arguments, policy_text
from gradsight.arguments import positive as positive
from gradsight.errors import ConfigurationError
from gradsight.thresholds import Cosine, Ema, Percentile, Threshold, ZScore


class _Described:
    """What all policies share: the text form."""

    __slots__ = ()
    text_name: ClassVar[str]
    has_global_coef: ClassVar[bool] = False
    """Whether one coefficient serves all gradients; else the effective ‖after‖/‖before‖ is recorded."""

    def __str__(self) -> str:
        return policy_text.written(self)

    def _set(self, **checked: Any) -> None:
        for name, value in checked.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class GlobalNorm(_Described):
    """Scale all gradients by min(1, max_norm / (norm + 1e-6)), norm over all of them together.

    Args:
        max_norm: The threshold, fixed or moving; `inf` measures without clipping.
        norm_type: p of the p-norm, `inf` for the largest absolute value.

    Raises:
        ConfigurationError: an argument is not a positive number (or, as max_norm, a threshold).

    Source: R. Pascanu, T. Mikolov, Y. Bengio, On the difficulty of training recurrent neural networks, 2013;
    the formula with its epsilon is that of `torch.nn.utils.clip_grad_norm_`.
    """

    max_norm: float | Threshold
    norm_type: float = 2.0
    text_name: ClassVar[str] = "global_norm"
    has_global_coef: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._set(max_norm=_max_norm(self.max_norm), norm_type=positive("norm_type", self.norm_type))


@dataclass(frozen=True, slots=True)
class TensorNorm(_Described):
    """Scale each gradient by min(1, max_norm / (norm + 1e-6)), norm its own 2-norm.

    Args:
        max_norm: The threshold, fixed or moving. A moving one is a template: each tensor has its own, `fresh()`, fed
            that tensor's norms and kept under its name, since norms of different layers say nothing of each other.
    """

    max_norm: float | Threshold
    text_name: ClassVar[str] = "tensor_norm"

    def __post_init__(self) -> None:
        self._set(max_norm=_max_norm(self.max_norm))


@dataclass(frozen=True, slots=True)
class Value(_Described):
    """Clamp each element to ±clip_value. Finiteness must be judged before: ±inf would come out as ±clip_value.

    Source: `torch.nn.utils.clip_grad_value_`.
    """

    clip_value: float
    text_name: ClassVar[str] = "value"

    def __post_init__(self) -> None:
        self._set(clip_value=positive("clip_value", self.clip_value))


@dataclass(frozen=True, slots=True)
class UnitNorm(_Described):
    """AGC: for each unit (row of dim 0; a tensor of at most one dim is one unit) with gradient G and weight W, where
    ‖G‖ ≥ max = clipping·max(‖W‖, eps), scale G by max / max(‖G‖, 1e-6).

    Args:
        clipping: λ, the largest ratio of gradient to weight.
        eps: Floor of ‖W‖, so that a weight of zero can leave it.
        exclude: fnmatch patterns of parameters left as they are: the head, as the authors advise. Any name of a tied
            weight counts.

    Source: A. Brock, S. De, S. L. Smith, K. Simonyan, High-Performance Large-Scale Image Recognition Without
    Normalization, 2021.
    """

    clipping: float = 0.01
    eps: float = 1e-3
    exclude: tuple[str, ...] = ()
    text_name: ClassVar[str] = "unit_norm"

    def __post_init__(self) -> None:
        self._set(
            clipping=positive("clipping", self.clipping),
            eps=arguments.finite_from("eps", self.eps, least=0),
            exclude=arguments.patterns("exclude", self.exclude),
        )

    def excludes(self, *names: str) -> bool:
        """Whether the parameter of this name (of several names, where it is tied) is left as it is."""
        return any(_matches(pattern, names) for pattern in self.exclude)


@dataclass(frozen=True, slots=True)
class TensorAdaptive(_Described):
    """AdaGC: each gradient is held to `relative` times the moving mean γ of its own clipped norms.

    In warm-up all are clipped together by `max_norm`, and γ is the smallest norm after that; then
    threshold = relative·γ, γ ← beta·γ + (1−beta)·min(norm, threshold), for each tensor.

    Source: G. Wang et al., AdaGC: Improving Training Stability for Large Language Model Pretraining, 2025.
    """

    relative: float = 1.04
    beta: float = 0.99
    warmup_steps: int = 100
    max_norm: float = 1.0
    text_name: ClassVar[str] = "tensor_adaptive"

    def __post_init__(self) -> None:
        self._set(
            relative=arguments.finite_from("relative", self.relative, least=1),  # below, γ could only shrink to zero
            beta=arguments.decay("beta", self.beta),
            warmup_steps=arguments.whole("warmup_steps", self.warmup_steps, least=0),
            max_norm=positive("max_norm", self.max_norm),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Groups(_Described):
    """A policy for each group of parameters: those whose name (any name, of tied weights) the pattern
    (fnmatch) is the first to match.

    Parameters that match none are not clipped. A mixture of experts wants its router held tighter than the rest, say.

    Args:
        policies: Pattern → policy, number or threshold, in the order they are tried. Copies are kept.
    """

    policies: "Mapping[str, Policy]"
    text_name: ClassVar[str] = "groups"
    takes_patterns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.policies, Mapping) or not self.policies:
            raise ConfigurationError(f"policies must map at least one pattern to a policy, got {self.policies!r}.")
        arguments.patterns("policies", list(self.policies))
        self._set(policies={pattern: _group_policy(pattern, given) for pattern, given in self.policies.items()})

    def pattern_of(self, *names: str) -> str | None:
        """The pattern whose group the parameter of this name (of several names, where it is tied) belongs to; None
        where none matches."""
        return next((pattern for pattern in self.policies if _matches(pattern, names)), None)

    def __str__(self) -> str:
        groups = (f"{policy_text.quoted(pattern)}: {policy}" for pattern, policy in self.policies.items())
        return f"groups({', '.join(groups)})"

    def __eq__(self, other: object) -> bool:  # the order counts, which a dict's own == passes over
        return isinstance(other, Groups) and list(self.policies.items()) == list(other.policies.items())

    def __hash__(self) -> int:
        return hash(tuple(self.policies.items()))


Policy = GlobalNorm | TensorNorm | Value | UnitNorm | TensorAdaptive | Groups

_KINDS: dict[str, Any] = {
    kind.text_name: kind
    for kind in (GlobalNorm, TensorNorm, Value, UnitNorm, TensorAdaptive, Groups, Cosine, Ema, Percentile, ZScore)
}


@overload
def as_policy(clip: None) -> None: ...
@overload
def as_policy(clip: float | Threshold | GlobalNorm) -> GlobalNorm: ...
@overload
def as_policy(clip: Policy) -> Policy: ...
def as_policy(clip: float | Threshold | Policy | None) -> Policy | None:
    """The policy behind what a user passes as `clip`: a number or a threshold stands for `GlobalNorm` of it."""
    if clip is None or isinstance(clip, Policy):
        return clip
    return GlobalNorm(clip if isinstance(clip, Threshold) else positive("clip", clip))


def parse_policy(text: str) -> Policy:
    """The policy of a text: `str(policy)`, also with positional or keyword arguments, defaults left out, spaces; a
    bare number or threshold stands for `global_norm` of it.

    Raises:
        ConfigurationError: what is wrong, and where in the text.
    """
    given = policy_text.read(text, _KINDS)
    if not isinstance(given, int | float | Threshold | Policy):
        raise ConfigurationError(f"policy must be one of {', '.join(_KINDS)}, or a number, got {given!r}.")
    return as_policy(given)


def moving_thresholds(policy: Policy | None) -> Iterator[Threshold]:
    """The moving thresholds a policy holds, those of its groups included, in order."""
    if isinstance(policy, Groups):
        for part in policy.policies.values():
            yield from moving_thresholds(part)
    elif isinstance(policy, GlobalNorm | TensorNorm) and isinstance(policy.max_norm, Threshold):
        yield policy.max_norm


def clip_coef(norm: float, max_norm: float) -> float:
    """The clip ratio, min(1, max_norm / (norm + 1e-6)); 1 where the norm is not finite, since such steps are never
    clipped: the product would turn every gradient into NaN or zero."""
    return min(1.0, max_norm / (norm + 1e-6)) if math.isfinite(norm) else 1.0


def _matches(pattern: str, names: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _max_norm(value: Any) -> float | Threshold:
    return value if isinstance(value, Threshold) else positive("max_norm", value)


def _group_policy(pattern: str, given: Any) -> Policy:
    if given is None or isinstance(given, Groups):
        raise ConfigurationError(f"policies[{pattern!r}] must be a policy without groups of its own, got {given!r}.")
    if isinstance(given, Policy | Threshold):
        given = deepcopy(given)  # one threshold named in two groups must not mix their norms
    if isinstance(given, Policy):
        return given
    return GlobalNorm(given if isinstance(given, Threshold) else positive(f"policies[{pattern!r}]", given))
