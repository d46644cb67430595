"""Layers as a user names them, at each step those at hand: of each stream one set of names, which grows."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gradsight import door, wire
from gradsight.errors import ConfigurationError
from gradsight.rows import LayerSet

MAX_SETS = 64
"""Every segment of the spool begins with the names of them all."""


class _Known(NamedTuple):
    """The layers of a stream so far."""

    names: tuple[str, ...] = ()
    places: Mapping[str, int] = {}
    layer_set: LayerSet | None = None


class GivenNorms(NamedTuple):
    """Norms in the order of the layer set."""

    layer_set: LayerSet | None
    norms: list[float] | None
    is_whole: bool
    """Whether all that were given are in there: past a bound, names that are new are left out."""


NO_NORMS = GivenNorms(None, None, is_whole=True)


class GivenLayers:
    """A run's layers: a new set of names is made only when new names come, not for each choice among known ones."""

    def __init__(self) -> None:
        self._sets: dict[tuple[str, ...], LayerSet] = {}  # streams of the same layers share one
        self._known: dict[str, _Known] = {}

    def norms(self, stream: str, given: Mapping[str, float | None]) -> GivenNorms:
        """The norms of a step; a layer that is not given is one without a gradient."""
        names = tuple(given)
        norms = [norm if type(norm) is float else _norm(norm) for norm in given.values()]  # a call each costs more
        if any(norm < 0 and norm != wire.NO_GRADIENT for norm in norms):
            raise ConfigurationError(f"layer_norms must not be negative: they are norms, got {min(norms)!r}.")
        known = self._known.get(stream) or _Known()
        if names == known.names:
            return GivenNorms(known.layer_set, norms, is_whole=True)
        new = [name for name in names if name not in known.places]
        if new:
            known = self._known[stream] = self._grown(known, new)
        places = [known.places.get(name) for name in names]
        is_whole = None not in places
        if not any(place is not None for place in places):
            return NO_NORMS._replace(is_whole=is_whole)
        row = [wire.NO_GRADIENT] * len(known.names)
        for place, norm in zip(places, norms, strict=True):
            if place is not None:
                row[place] = norm
        return GivenNorms(known.layer_set, row, is_whole)

    def _grown(self, known: _Known, new: Iterable[str]) -> _Known:
        """With the new names behind the known ones; as it was where that would be too many."""
        names = (*known.names, *(door.word("layer_norms", name, most=1024) for name in new))
        layer_set = self._sets.get(names)
        if layer_set is None:
            if len(self._sets) >= MAX_SETS or len(names) > wire.MAX_LAYERS:
                return known
            layer_set = self._sets[names] = LayerSet(names)
        return _Known(names, {name: place for place, name in enumerate(names)}, layer_set)


def _norm(given: Any) -> float:
    return wire.NO_GRADIENT if given is None else door.number(given)
