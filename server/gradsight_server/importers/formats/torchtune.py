"""torchtune: `Step 12 | loss:2.38 lr:2e-05 tokens_per_second_per_gpu:123.4 grad_norm:3.4 …` in its log and console.

The norm is that of the step, before clipping, and only there where clipping is on (`clip_grad_norm`).
"""

import re
from collections.abc import Iterator

from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Point, Unread
from gradsight_server.importers.names import column_of
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import Printed

_STEP = re.compile(r"Step (\d{1,15}) \| (.*)")
_FIELD = re.compile(r"(?<![\w/.])([\w/.]{1,80}):(\w{0,20}tensor\([^)]*\)|[^\s|]+)", re.IGNORECASE)
_PRINTED = Printed()


def read(lines: Lines, options: Options) -> Iterator[Item]:
    alike = Alike(lines, _point)
    for at, line in lines:
        match = _STEP.search(line)
        if match is None:
            yield from _PRINTED.read(at, line)
        elif (point := _point(at, line)) is not None:
            yield point
            yield from alike.after(line)
        elif ":" not in match[2]:
            yield Unread(at, "a step without a value")


def _point(at: int, line: str) -> Point | None:
    match = _STEP.search(line)
    if match is None:
        return None
    point = Point(at, int(match[1]))
    for name, text in _FIELD.findall(match[2]):
        column = column_of(name)
        if (column is not None or "loss" in name) and (value := number(text)) is not None:
            (point.metrics if column is None else point.values)[column or name] = value
    point.values.pop("step", None)
    return point if point.values or point.metrics else None


FORMAT = LineFormat(
    name="torchtune",
    title="torchtune log",
    source="torchtune 0.1 to 0.6, torchtune/training/metric_logging.py: DiskLogger.log_dict and StdoutLogger.log_dict",
    pattern=re.compile(r"Step \d+ \| [\w/.]+:"),
    read=read,
    also=re.compile(r"clip_grad_norm"),
)
