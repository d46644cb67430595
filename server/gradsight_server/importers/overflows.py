"""DeepSpeed's lines about overflows where they stand among those of another program."""

import re
from collections.abc import Iterator

from gradsight_server.importers.items import Point
from gradsight_server.importers.numbers import number

MARK = "Attempted loss scale"
"""Stands in each of them."""

_ATTEMPT = re.compile(r"Attempted loss +scale: ([\d.e+]+), (?:reducing to ([\d.e+]+)|but hysteresis)")
_RANK = re.compile(r"Rank (\d+)\]? ")


class Overflows:
    """Skipped steps without a number of their own; of several ranks the first to speak is believed."""

    def __init__(self) -> None:
        self._rank: str | None = None

    def read(self, at: int, line: str) -> Iterator[Point]:
        match, rank = _ATTEMPT.search(line), _RANK.search(line)
        if match is None:
            return
        if rank is not None:
            self._rank = self._rank or rank[1]
            if rank[1] != self._rank:
                return
        scale, after = number(match[1]), number(match[2] or match[1])
        told = {"loss_scale": scale, "loss_scale_after": after}
        values = {name: value for name, value in told.items() if value is not None}
        yield Point(at, None, {"skipped": 1.0, **values}, skip_reason="overflow")
