"""Clipping thresholds that move with training: each one pure update rule, for floats and device tensors alike.

A rule is `(state, norm, xp) -> (state, threshold)`, written once with operators and the few functions of `xp`. For
tensors `xp` is torch itself, reached through the tensor that is handed in and never imported; for numbers it is
`_Floats`, the same functions over Python floats, since numpy would cost ten times as much on scalars. Rules have no
branch on a value, so on a device nothing is ever waited for: 0-dim float64 state, a few small kernels a step.

All take the norm of this step's unscaled gradients before clipping and give the threshold for this very step. Under
dynamic loss scaling non-finite norms are routine: they never reach a state and have no threshold (`inf`). A norm of
zero (an unused expert, a batch without signal) says nothing about the norms to come: it is passed over as well, warm-up
included, or it would pull the threshold to zero and with it, for ever, the gradients; its step gets the threshold in
force.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self, SupportsFloat, TypeVar, overload

from gradsight import arguments
from gradsight.errors import ConfigurationError
from gradsight.norm_window import DeviceWindow, HostWindow
from gradsight.policy_text import written

_READ_ON_HOST = frozenset({"cpu", "mps"})
"""Devices whose norms are read as floats: on a CPU that waits for nothing and is faster; MPS has no float64."""

State = Any  # the tuple of numbers (or 0-dim tensors) `_names` lists; Percentile has its window


class _DeviceTensor(Protocol):
    @property
    def is_cuda(self) -> bool: ...


TensorT = TypeVar("TensorT", bound=_DeviceTensor)


class _Floats:
    """What torch calls `where`, `isfinite`, …, for Python floats."""

    isfinite = math.isfinite
    hypot = math.hypot
    cos = math.cos
    floor = math.floor

    @staticmethod
    def where(condition: bool, chosen: Any, other: Any) -> Any:
        return chosen if condition else other


class _Memory:
    """What a threshold has learned, apart from its frozen settings. `device` is None while the state is numbers."""

    __slots__ = ("device", "state")

    def __init__(self) -> None:
        self.state: State = None
        self.device: Any = None


@dataclass(frozen=True)
class Threshold(ABC):
    """Base of the moving thresholds: frozen settings, compared and hashed by them alone, and a state beside them."""

    text_name: ClassVar[str]
    _names: ClassVar[tuple[str, ...]]
    _memory: _Memory = field(default_factory=_Memory, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, value in self._checked().items():
            object.__setattr__(self, name, value)
        self._memory.state = self._initial()

    @overload
    def __call__(self, norm: TensorT) -> TensorT: ...
    @overload
    def __call__(self, norm: SupportsFloat) -> float: ...
    def __call__(self, norm: Any) -> Any:
        """The threshold for the step with this norm; `inf` where there is none.

        Args:
            norm: Unscaled, before clipping. A number, or a 0-dim tensor.

        Returns:
            A float for a number; for a tensor one of its dtype on its device, without a host sync.
        """
        if type(norm) is not float:
            torch = sys.modules.get("torch")
            if torch is not None and isinstance(norm, torch.Tensor):
                return self._of_tensor(norm, torch)
            norm = float(norm)
        memory = self._memory
        if memory.device is not None:
            memory.state, memory.device = self._downloaded(), None
        memory.state, threshold = self.rule(memory.state, norm, _Floats)
        return threshold

    @abstractmethod
    def rule(self, state: State, norm: Any, xp: Any) -> tuple[State, Any]:
        """The pure update: the next state, and the threshold for the step with this norm."""

    def fresh(self) -> Self:
        """One of the same settings that has seen nothing: for each tensor, group or replay its own."""
        return replace(self)

    def state_dict(self) -> dict[str, Any]:
        """The state as plain numbers and lists, exact to the bit. Waits for the device where the state is on one."""
        return self._exported(self._downloaded() if self._memory.device is not None else self._memory.state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`, on whatever device the next norm is.

        Raises:
            ConfigurationError: `state` is none of this kind of threshold; nothing is changed then.
        """
        if not isinstance(state, Mapping) or set(state) != set(self._names):
            got = sorted(map(str, state)) if isinstance(state, Mapping) else state
            raise ConfigurationError(f"state must be one of {self}, with {', '.join(self._names)}, got {got!r}.")
        self._memory.state, self._memory.device = self._imported(state), None

    def __str__(self) -> str:
        return written(self)

    def _of_tensor(self, norm: Any, torch: Any) -> Any:
        if norm.ndim:
            raise ConfigurationError(f"norm must be a number or a 0-dim tensor, got the shape {tuple(norm.shape)!r}.")
        if norm.device.type in _READ_ON_HOST:
            return norm.new_full((), self(float(norm.detach())))
        memory = self._memory
        if memory.device != norm.device:
            host = memory.state if memory.device is None else self._downloaded()
            memory.state, memory.device = self._uploaded(host, norm.device, torch), norm.device
        memory.state, threshold = self.rule(memory.state, norm.detach().double(), torch)
        return threshold.to(norm.dtype)

    @abstractmethod
    def _checked(self) -> dict[str, Any]:
        """The settings as given, each checked."""

    def _initial(self) -> State:
        return tuple(0 if name.startswith("num_") else 0.0 for name in self._names)

    def _uploaded(self, state: State, device: Any, torch: Any) -> State:
        # `full` launches a kernel; copying from pageable memory would wait for the device.
        return tuple(torch.full((), value, dtype=torch.float64, device=device) for value in state)

    def _downloaded(self) -> State:
        values = sys.modules["torch"].stack(self._memory.state).tolist()
        return tuple(int(value) if name.startswith("num_") else value for name, value in self._named(values))

    def _exported(self, state: State) -> dict[str, Any]:
        return dict(self._named(state))

    def _imported(self, state: Mapping[str, Any]) -> State:
        return tuple(arguments.state_number(name, state[name]) for name in self._names)

    def _named(self, values: Iterable[Any]) -> Iterable[tuple[str, Any]]:
        return zip(self._names, values, strict=True)


@dataclass(frozen=True)
class Cosine(Threshold):
    """From `start` to `end` along half a cosine over `total_steps` calls, then `end`. Non-finite steps count too.

    Source: the annealing of I. Loshchilov, F. Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017,
    on the threshold instead of the learning rate.
    """

    start: float
    end: float
    total_steps: int
    text_name: ClassVar[str] = "cosine"
    _names: ClassVar[tuple[str, ...]] = ("num_calls",)

    def _checked(self) -> dict[str, Any]:
        return {
            "start": arguments.finite_from("start", self.start, least=0),
            "end": arguments.finite_from("end", self.end, least=0),
            "total_steps": arguments.whole("total_steps", self.total_steps, least=1),
        }

    def rule(self, state: State, norm: Any, xp: Any) -> tuple[State, Any]:
        (num_calls,) = state
        t = xp.where(num_calls < self.total_steps, num_calls, self.total_steps)
        threshold = self.end + (self.start - self.end) / 2 * (1 + xp.cos(math.pi * t / self.total_steps))
        return (num_calls + 1,), threshold


@dataclass(frozen=True)
class Ema(Threshold):
    """`factor` times a moving mean of the norms, into which a spike enters as clipped.

    The mean of the first `warmup_steps` norms starts it (no threshold meanwhile; at least one norm has to come first).

    Source: a common heuristic. Fed raw norms, one spike would lift the threshold over the next ones.
    """

    factor: float = 1.5
    beta: float = 0.9
    warmup_steps: int = 20
    text_name: ClassVar[str] = "ema"
    _names: ClassVar[tuple[str, ...]] = ("num_norms", "ema")

    def _checked(self) -> dict[str, Any]:
        return {
            "factor": arguments.finite_from("factor", self.factor, least=1),  # below, each update would shrink it
            "beta": arguments.decay("beta", self.beta),
            "warmup_steps": arguments.whole("warmup_steps", self.warmup_steps, least=0),
        }

    def rule(self, state: State, norm: Any, xp: Any) -> tuple[State, Any]:
        num_norms, ema = state
        finite = xp.isfinite(norm)
        counts = finite & (norm > 0)
        is_warmup = num_norms < max(self.warmup_steps, 1)
        threshold = xp.where(is_warmup, math.inf, self.factor * ema)
        clipped = xp.where(norm < threshold, norm, threshold)
        # In warm-up the weight 1/n makes the running mean, which unlike a sum cannot overflow. Both weighted parts
        # are positive: `ema + weight * (clipped - ema)` could cancel to zero after a huge norm.
        weight = xp.where(is_warmup, 1 / (num_norms + 1), 1 - self.beta)
        ema = xp.where(counts, (1 - weight) * ema + weight * clipped, ema)
        return (num_norms + counts, ema), xp.where(finite, threshold, math.inf)


@dataclass(frozen=True)
class ZScore(Threshold):
    """ZClip: a norm more than `z` standard deviations above the moving mean is pulled back towards it.

    With z_t = (norm − μ) / (σ + 1e-6) the threshold is μ + z·σ / (z_t / z) where z_t > z, else there is none. What
    enters μ and σ (decay `alpha`) is the norm so clipped, μ first, σ with the new μ. They start as mean and population
    deviation of the first `warmup_steps` norms, of two at least. `max_norm` also caps the threshold, in warm-up too,
    but not what enters.

    Source: A. Kumar, L. Owen, N. R. Chowdhury, F. Güra, ZClip: Adaptive Spike Mitigation for LLM Pre-Training, 2025.
    """

    z: float = 2.5
    alpha: float = 0.97
    warmup_steps: int = 25
    max_norm: float | None = None
    text_name: ClassVar[str] = "zscore"
    _names: ClassVar[tuple[str, ...]] = ("num_norms", "mean", "std")

    def _checked(self) -> dict[str, Any]:
        return {
            "z": arguments.finite_from("z", self.z, least=0),
            "alpha": arguments.decay("alpha", self.alpha),
            "warmup_steps": arguments.whole("warmup_steps", self.warmup_steps, least=0),
            "max_norm": None if self.max_norm is None else arguments.positive("max_norm", self.max_norm),
        }

    def rule(self, state: State, norm: Any, xp: Any) -> tuple[State, Any]:
        num_norms, mean, std = state
        finite = xp.isfinite(norm)
        counts = finite & (norm > 0)
        is_warmup = num_norms < max(self.warmup_steps, 2)
        score = (norm - mean) / (std + 1e-6)
        score = xp.where(score > self.z, score, self.z)  # no division by zero below; no spike at z itself
        is_spike = xp.where(is_warmup, False, score > self.z)
        threshold = xp.where(is_spike, mean + std * (self.z / (score / self.z)), math.inf)
        clipped = xp.where(norm < threshold, norm, threshold)
        # var ← (1−w)·(var + spread·d²), d the distance from the old mean: in warm-up Welford's running variance
        # (w = 1/n, spread = w), then α·var + (1−α)·(α·d)², α·d the distance from the new one (w = 1−α, spread = w·α).
        # `hypot` keeps the square of a huge but finite norm from overflowing into the state.
        weight = xp.where(is_warmup, 1 / (num_norms + 1), 1 - self.alpha)
        root_spread = xp.where(is_warmup, weight**0.5, ((1 - self.alpha) * self.alpha) ** 0.5)
        distance = clipped - mean
        mean = xp.where(counts, (1 - weight) * mean + weight * clipped, mean)
        std = xp.where(counts, (1 - weight) ** 0.5 * xp.hypot(std, root_spread * distance), std)
        cap = math.inf if self.max_norm is None else self.max_norm
        threshold = xp.where(finite, xp.where(threshold < cap, threshold, cap), math.inf)
        return (num_norms + counts, mean, std), threshold


@dataclass(frozen=True)
class Percentile(Threshold):
    """AutoClip: the `q`-th percentile (linear between neighbours) of the last `history` norms, this one included.

    Source: P. Seetharaman, G. Wichern, B. Pardo, J. Le Roux, AutoClip: Adaptive Gradient Clipping for Source
    Separation Networks, 2020 (there over all norms so far).
    """

    q: float = 10
    history: int = 10_000
    text_name: ClassVar[str] = "percentile"
    _names: ClassVar[tuple[str, ...]] = ("norms",)

    def _checked(self) -> dict[str, Any]:
        return {
            "q": arguments.percentage("q", self.q),
            "history": arguments.whole("history", self.history, least=1, most=10_000_000),
        }

    def rule(self, state: State, norm: Any, xp: Any) -> tuple[State, Any]:
        """As above; the window is changed in place, since a copy of 10,000 norms a step would cost more than all."""
        finite = xp.isfinite(norm)
        num_norms = state.add(norm, finite & (norm > 0))
        position = self.q / 100 * xp.where(num_norms > 1, num_norms - 1, 0)
        rank = xp.floor(position)
        below, above = state.at(rank), state.at(xp.where(rank + 1 < num_norms, rank + 1, rank))
        threshold = below + (above - below) * (position - rank)
        return state, xp.where(finite & (num_norms > 0), threshold, math.inf)

    def _initial(self) -> State:
        return HostWindow([], self.history)

    def _uploaded(self, state: State, device: Any, torch: Any) -> State:
        return DeviceWindow(state.arrivals, self.history, device, torch)

    def _downloaded(self) -> State:
        return HostWindow(self._memory.state.in_order(), self.history)

    def _exported(self, state: State) -> dict[str, Any]:
        return {"norms": list(state.arrivals)}

    def _imported(self, state: Mapping[str, Any]) -> State:
        norms = state["norms"]
        if not isinstance(norms, list | tuple) or len(norms) > self.history:
            raise ConfigurationError(f"norms must be a list of at most {self.history} numbers, got {norms!r:.100}.")
        return HostWindow([arguments.state_number("norms", norm) for norm in norms], self.history)
