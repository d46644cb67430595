"""Lines of DeepSpeed and Apex about overflows, where they stand among the lines of another program."""

import re
from collections.abc import Iterator

from gradsight_server.importers.clock import time_s
from gradsight_server.importers.items import Item, Point
from gradsight_server.importers.numbers import number
from gradsight_server.importers.skips import Between

MARKS = r"Attempted loss +scale|Gradient overflow\. "
"""For a format's `also`: found in each of them."""

_DEEPSPEED = re.compile(r"Attempted loss +scale: ([\d.e+]+), (?:reducing to ([\d.e+]+)|but hysteresis)")
_APEX = re.compile(r"Gradient overflow\. .{0,40}reducing loss scale to ([\d.e+-]+)")
_RANK = re.compile(r"Rank (\d+)\]? ")


class Overflows:
    """Skipped steps between the numbered lines of a log.

    Of several ranks that say who they are, the first to speak is believed; of others that say the same, one.
    """

    def __init__(self) -> None:
        self._between = Between()
        self._rank: str | None = None
        self._said: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Whether there has been none so far."""
        return self._between.is_idle

    def read(self, at: int, line: str) -> Iterator[Item]:
        """Takes an overflow in, if the line tells of one."""
        for match in _DEEPSPEED.finditer(line):
            rank = _RANK.search(line, max(0, match.start() - 80), match.start())
            if rank is not None:
                self._rank = self._rank or rank[1]
            if rank is None or rank[1] == self._rank:
                scale, after = number(match[1]), number(match[2] or match[1])
                yield from self._between.skipped(_point(at, scale, after), time_s(line))
        for match in _APEX.finditer(line):
            if match[0] not in self._said:
                self._said.add(match[0])
                after = number(match[1].rstrip("."))
                yield from self._between.skipped(_point(at, None if after is None else 2 * after, after), time_s(line))

    def until(self, step: float | None, line: int) -> Iterator[Item]:
        """To be asked before the point of each line."""
        self._said.clear()
        yield from self._between.until(step, line=line)

    def rest(self) -> Iterator[Item]:
        yield from self._between.unnumbered()


def _point(at: int, scale: float | None, after: float | None) -> Point:
    told = {"loss_scale": scale, "loss_scale_after": after}
    values = {name: value for name, value in told.items() if value is not None}
    return Point(at, None, {"skipped": 1.0, **values}, skip_reason="overflow")
