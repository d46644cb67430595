"""The layers a monitor watches: the optimizer's parameters, named as the model names them, tied ones once."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.optim import Optimizer

from gradsight.errors import ConfigurationError
from gradsight.rows import LayerSet
from gradsight.sharding import Sharding

Model = Module | Iterable[tuple[str, Parameter]]


class Layers:
    """The optimizer's parameters in the model's order.

    Args:
        model: A module, or (name, parameter) pairs.
        optimizer: Its parameters must all have a name in `model`.

    Raises:
        ConfigurationError: the optimizer holds parameters that `model` does not name, or none at all, or meta tensors.
    """

    def __init__(self, model: Model, optimizer: Optimizer) -> None:
        self._model = model if isinstance(model, Module) else _pairs(model)
        self._optimizer = optimizer
        self._in_optimizer: list[int] = []
        self.all_names: dict[str, Sequence[str]] = {}
        """All names of each layer, by the one it goes by; the same object when layers are added."""
        unnamed = self._read()
        twice = [name for name, count in Counter(self._names).items() if count > 1]
        if twice:
            raise ConfigurationError(f"model must name each parameter differently, got {twice[0]!r} more than once.")
        if unnamed:
            shape = tuple(unnamed[0].shape)
            raise ConfigurationError(
                f"optimizer must hold the model's parameters, got {len(unnamed)} that are not among them "
                f"(the first has shape {shape}). Pass the module that holds them all, or (name, parameter) pairs."
            )
        if not self.parameters:
            raise ConfigurationError(
                f"optimizer must hold the model's parameters, got {optimizer!r} with none of them."
            )
        for name, parameter in zip(self.layer_set.names, self.parameters, strict=True):
            if parameter.device.type == "meta":
                raise ConfigurationError(f"parameters must have data, got meta tensor {name!r}: materialise it first.")

    def _read(self) -> list[Tensor]:
        """Read names and parameters afresh; gives the optimizer's parameters that have no name."""
        names: dict[int, list[str]] = {}
        named = self._model.named_parameters(remove_duplicate=False) if isinstance(self._model, Module) else self._model
        by_id: dict[int, Tensor] = {}
        for name, parameter in named:
            names.setdefault(id(parameter), []).append(name)
            by_id[id(parameter)] = parameter
        held = {id(p): p for group in self._optimizer.param_groups for p in group["params"]}
        self._in_optimizer = self._ids()
        unnamed = [parameter for key, parameter in held.items() if key not in names]
        self.parameters = [by_id[key] for key in names if key in held] + unnamed
        self.layer_set = LayerSet(
            [found[0] if len(found) == 1 else found for key, found in names.items() if key in held]
            + [f"unnamed.{index}" for index in range(len(unnamed))]
        )
        self._names = [self.layer_set.name(index) for index in range(len(self.layer_set))]
        names_of_each = ([names] if isinstance(names, str) else names for names in self.layer_set.names)
        self.all_names.clear()
        self.all_names.update(zip(self._names, names_of_each, strict=True))
        self._last_present: tuple[list[int], list[str]] | None = None
        self.sharding = Sharding.of(self.parameters)
        return unnamed

    def refresh(self) -> bool:
        """Notice parameters that the optimizer has got since, added or in place of others (unnamed ones get a number):
        whether there are any."""
        if self._ids() == self._in_optimizer:
            return False
        self._read()
        return True

    def _ids(self) -> list[int]:
        """Which parameters the optimizer holds; an id stays theirs as long as `parameters` holds them too."""
        return [id(parameter) for group in self._optimizer.param_groups for parameter in group["params"]]

    def gradients(self) -> tuple[list[int] | None, list[Tensor]]:
        """Indices of the layers that have a gradient (None: all), and those gradients."""
        all_grads = [parameter.grad for parameter in self.parameters]
        grads = [grad for grad in all_grads if grad is not None]
        if len(grads) == len(all_grads):
            return None, grads
        return [index for index, grad in enumerate(all_grads) if grad is not None], grads

    @property
    def names(self) -> list[str]:
        """One name a layer; the same list as long as the layers are the same."""
        return self._names

    def having_gradients(self, present: list[int] | None) -> tuple[list[str], list[Tensor]]:
        """Names and parameters of these layers (None: all); the same list of names for the same layers."""
        if present is None:
            return self._names, self.parameters
        if self._last_present is None or self._last_present[0] != present:
            self._last_present = (present, [self._names[index] for index in present])
        return self._last_present[1], [self.parameters[index] for index in present]

    @property
    def device(self) -> torch.device:
        device: torch.device = self.parameters[0].device
        return device

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters)


def _pairs(model: Any) -> list[tuple[str, Parameter]]:
    """What was given for a module, checked: `model.parameters()`, say, has no names."""
    pairs = list(model) if isinstance(model, Iterable) else [model]
    for pair in pairs:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], str) or not isinstance(pair[1], Tensor):
            given = f"{type(pair).__name__} of shape {tuple(pair.shape)}" if isinstance(pair, Tensor) else repr(pair)
            raise ConfigurationError(f"model must be a module or (name, parameter) pairs, got {given}.")
    return [(name, parameter) for name, parameter in pairs]


class BackwardOrder:
    """Learns, in one backward, the order in which layers get their gradient: the first non-finite one in this order
    is where NaN began.

    Args:
        parameters: Of all layers.
        known: What an earlier backward has taught; layers that this one does not reach keep their place after those
            they came after.
    """

    def __init__(self, parameters: Sequence[Tensor], known: "BackwardOrder | None" = None) -> None:
        self._order: list[int] = []
        self._known = [] if known is None else known._order
        self._rank: dict[int, int] = {}
        self._num_layers = len(parameters)
        self._handles: list[Any] = [
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, index=index: self._order.append(index)
            )
            for index, parameter in enumerate(parameters)
            if parameter.requires_grad
        ]

    def stop(self) -> None:
        """The backward is over."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        order = list(dict.fromkeys(self._order))
        there = set(order)
        for before, index in zip([None, *self._known], self._known, strict=False):
            if index not in there:
                order.insert(0 if before is None else order.index(before) + 1, index)
                there.add(index)
        self._order, self._known = order, []
        self._rank = {index: position for position, index in enumerate(order)}

    def covers(self, present: Sequence[int] | None) -> bool:
        """Whether the places of these layers (None: all) are known."""
        if present is None or len(self._rank) == self._num_layers:
            return len(self._rank) == self._num_layers
        return self._rank.keys() >= set(present)

    def first(self, indices: Sequence[int]) -> int:
        """Which of these layers (indices, at least one) got its gradient first; those never seen come last, in reverse
        order of definition."""
        return min(indices, key=lambda index: self._rank.get(index, self._num_layers + self._num_layers - index))


class Before:
    """The parameters and the state of an optimizer as they are now, to take a step back to.

    Tensors that the state keeps in lists (LBFGS's history) are taken for replaced, never changed in place.
    """

    @torch.no_grad()
    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._parameters = [
            (parameter, parameter.clone()) for group in optimizer.param_groups for parameter in group["params"]
        ]
        self._state = {
            parameter: {name: _copied(value) for name, value in state.items()}
            for parameter, state in optimizer.state.items()
        }

    @torch.no_grad()
    def restore_(self) -> None:
        for parameter, value in self._parameters:
            parameter.copy_(value)
        self._optimizer.state.clear()
        self._optimizer.state.update(self._state)


@torch.no_grad()
def are_finite(parameters: list[Tensor]) -> bool:
    """Whether every element is: one host sync."""
    device = parameters[0].device
    each = [parameter.isfinite().all().to(device, non_blocking=True) for parameter in parameters]
    return bool(torch.stack(each).all())


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.clone()
    return list(value) if isinstance(value, list) else value
