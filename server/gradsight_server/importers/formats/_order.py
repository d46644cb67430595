"""Tables whose newest row comes first: turned round, in a file rather than in memory."""

import pickle
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise

from gradsight_server.importers.items import Item, Meaning, Point, Points

MIN_FALLING = 10
CHUNK_ITEMS = 1_000
NEWEST_FIRST = Meaning("step", "step", remark="The newest row comes first in this table; it is read from its end.")


def oldest_first(items: Iterable[Item]) -> Iterator[Item]:
    """The items as they come, or from the last on where each of the first steps is earlier than the one before; rows
    of one step stand side by side. Nothing waits for longer than it takes to tell."""
    items = iter(items)
    head: list[Item] = []
    steps: list[float] = []
    for item in items:
        head.append(item)
        if isinstance(item, Point | Points):
            if item.step is None:
                break
            for step in [item.step] if isinstance(item, Point) else item.step[: 2 * MIN_FALLING].tolist():
                if len(steps) < MIN_FALLING and (not steps or step != steps[-1]):
                    steps.append(step)
        if not _falls(steps) or len(steps) >= MIN_FALLING or len(head) >= CHUNK_ITEMS:
            break
    if len(steps) >= MIN_FALLING and _falls(steps):
        yield NEWEST_FIRST
        yield from _turned(chain(head, items))
    else:
        yield from head
        yield from items


def _falls(steps: list[float]) -> bool:
    return all(after < before for before, after in pairwise(steps))


def _turned(items: Iterator[Item]) -> Iterator[Item]:
    with tempfile.TemporaryFile(prefix="gradsight-") as file:
        places = []
        for chunk in _chunks(items):
            places.append(file.tell())
            pickle.dump(chunk, file, pickle.HIGHEST_PROTOCOL)
        for place in reversed(places):
            file.seek(place)
            for item in reversed(pickle.load(file)):
                yield item[::-1] if isinstance(item, Points) else item


def _chunks(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Columns by themselves, others many at a time."""
    chunk: list[Item] = []
    for item in items:
        chunk.append(item)
        if isinstance(item, Points) or len(chunk) >= CHUNK_ITEMS:
            yield chunk
            chunk = []
    yield chunk
