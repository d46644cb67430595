"""Steps told by a fraction, `[100/5000]` or a bar's `100/5000`, among fractions that tell of something else.

`Acc: 30.1% (461/1536) 12/391`: which of them counts steps is seen in the first lines. Its total stays the same and its
count rises, or falls back to where it began with a new epoch.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from gradsight_server.importers.items import Item, Point

NUM_TRIED = 16
"""So many lines are looked at before the first is given on, where one alone does not tell."""
MAX_WAITING = 1_000

_FRACTION = re.compile(r"(?<![\d/.])(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})(?![\dA-Za-z/.%])")
_BEFORE = re.compile(r"([A-Za-z_]*)[^A-Za-z_\d]*\Z")
_BAR = re.compile(r"\s{0,4}\[")

Key = tuple[str, str, int]
"""What a fraction is known by from line to line: the word before it, the sign right before it, and which of these."""


@dataclass(frozen=True, slots=True)
class Fraction:
    done: int
    total: int
    key: Key
    is_epoch: bool
    is_sure: bool
    """It stands in brackets, before a bar, or first in its line."""


def fractions_of(line: str, epoch_at: int) -> list[Fraction]:
    """
    Args:
        epoch_at: Where the number of the epoch stands, -1 for nowhere.
    """
    found: list[Fraction] = []
    num_of: dict[tuple[str, str], int] = {}
    for match in _FRACTION.finditer(line):
        done, total, start = int(match[1]), int(match[2]), match.start()
        if done > total or total <= 1:
            continue
        before = line[max(0, start - 100) : start].rstrip()
        word = _BEFORE.search(before)
        place = (word[1] if word is not None else "", before[-1:] if not before[-1:].isalnum() else "")
        num_of[place] = num_of.get(place, 0) + 1
        is_sure = before[-1:] in ("", "[") or _BAR.match(line, match.end()) is not None
        found.append(Fraction(done, total, (*place, num_of[place]), start == epoch_at, is_sure))
    return found


def is_sure(fractions: list[Fraction]) -> bool:
    """Whether one line alone tells which fraction is the step."""
    return _sure(fractions) is not None


def _sure(fractions: list[Fraction]) -> Key | None:
    others = [fraction for fraction in fractions if not fraction.is_epoch]
    if not others:  # of several the last, as of those that are no epochs
        return fractions[-1].key if fractions else None
    sure = [fraction.key for fraction in others if fraction.is_sure]
    return sure[0] if len(sure) == 1 else None


def numbered(found: Iterable[tuple[Item, list[Fraction]]]) -> Iterator[Item]:
    """The items; points that have fractions with the step that one of these gives, if one does."""
    counting = _Counting()
    waiting: list[tuple[Item, list[Fraction]]] = []
    num_tried = 0
    for item, fractions in found:
        if not waiting and (not fractions or counting.knows(fractions)):
            yield counting.counted(item, fractions)
            continue
        waiting.append((item, fractions))
        num_tried += bool(fractions)
        if num_tried >= NUM_TRIED or len(waiting) >= MAX_WAITING:
            counting.decide([fractions for _, fractions in waiting if fractions])
            yield from (counting.counted(*one) for one in waiting)
            waiting, num_tried = [], 0
    counting.decide([fractions for _, fractions in waiting if fractions])
    yield from (counting.counted(*one) for one in waiting)


class _Counting:
    def __init__(self) -> None:
        self._chosen: dict[tuple[Key, ...], Key | None] = {}
        """By the fractions that a line has; None where none of them is a step."""
        self._first_epoch: float | None = None

    def knows(self, fractions: list[Fraction]) -> bool:
        return is_sure(fractions) or _keys(fractions) in self._chosen

    def decide(self, lines: list[list[Fraction]]) -> None:
        by_kind: dict[tuple[Key, ...], list[list[Fraction]]] = {}
        for fractions in lines:
            by_kind.setdefault(_keys(fractions), []).append(fractions)
        for kind, of_kind in by_kind.items():
            self._chosen.setdefault(kind, _rising(of_kind))

    def counted(self, item: Item, fractions: list[Fraction]) -> Item:
        if not isinstance(item, Point) or item.step is not None or not fractions:
            return item
        if self._first_epoch is None:
            self._first_epoch = item.epoch
        key = _sure(fractions) or self._chosen.get(_keys(fractions))
        found = next((fraction for fraction in fractions if fraction.key == key), None)
        if found is not None:
            item.step = self._step(found, item.epoch)
        return item

    def _step(self, fraction: Fraction, epoch: float | None) -> float:
        """One that counts within an epoch is counted through."""
        if fraction.is_epoch or epoch is None or not epoch.is_integer():
            return float(fraction.done)
        begun = epoch - (1 if self._first_epoch is not None and self._first_epoch >= 1 else 0)
        return max(begun, 0.0) * fraction.total + fraction.done


def _keys(fractions: list[Fraction]) -> tuple[Key, ...]:
    return tuple(fraction.key for fraction in fractions)


def _rising(lines: list[list[Fraction]]) -> Key | None:
    """The fraction that counts through these lines: one of no epoch first, then one that is sure, one that
    falls least often, the last."""
    if len(lines) == 1:
        others = [fraction for fraction in lines[0] if not fraction.is_epoch]
        return others[0].key if len(others) == 1 and not others[0].key[0] else None
    columns = [list(column) for column in zip(*lines, strict=True)]
    rising = [(column[0], _num_falls(column)) for column in reversed(columns) if _rises(column)]
    if not rising:
        return None
    surest: Fraction
    surest, _ = max(rising, key=lambda one: (not one[0].is_epoch, one[0].is_sure, -one[1]))
    return surest.key


def _num_falls(column: list[Fraction]) -> int:
    return sum(after.done < before.done for before, after in pairwise(column))


def _rises(column: list[Fraction]) -> bool:
    counts = [fraction.done for fraction in column]
    falls = [after for before, after in pairwise(counts) if after < before]
    distances = [after - before for before, after in pairwise(counts) if after > before]
    return (
        len({fraction.total for fraction in column}) == 1
        and len(distances) > 2 * len(falls)
        and all(after <= max(counts[0], min(distances)) for after in falls)
    )
