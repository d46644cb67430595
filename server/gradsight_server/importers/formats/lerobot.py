"""LeRobot: `step:200 smpl:2K ep:3 epch:0.01 loss:0.123 grdn:5.234 lr:1.0e-05 updt_s:0.100 data_s:0.001`.

Numbers are means since the line before (of older versions, of the step), the norm is taken before clipping. Steps of a
thousand and more are rounded to `1K`, `2K`.
"""

import re
from collections.abc import Iterator

from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Unread
from gradsight_server.importers.means import Means
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

COLUMNS = {"loss": "loss", "grdn": "grad_norm_before_clip", "lr": "lr", "updt_s": "step_time_s"}

_STEP = re.compile(r"step:(\d+[KMBTQ]?) smpl:\S+ (?:ep:\S+ )?(?:epch:(\S+) )?(.*)")
_FIELD = re.compile(r"(?<!\w)(\w{1,40}): ?([^\s|]+)")
_PRINTED = Printed({**NAMES, "steps": "total_steps"})


def read(lines: Lines, options: Options) -> Iterator[Item]:
    means = Means({"loss": "loss", "grad_norm_before_clip": "grdn"})
    alike = Alike(lines, _point)
    has_said_rounded = False
    for at, line in lines:
        match = _STEP.search(line)
        if match is None:
            yield from _PRINTED.read(at, line)
            continue
        point = _point(at, line)
        if point is None:
            yield Unread(at, "the line ends before any value of the step")
            continue
        if not means.is_said:
            yield from means.seen(point.step)
        if not match[1].isdigit() and not has_said_rounded:
            has_said_rounded = True
            yield Meaning("step", "step", significant_digits=1, remark="From a thousand on, in thousands.")
        yield point
        if means.is_said:
            yield from alike.after(line)


def _point(at: int, line: str) -> Point | None:
    match = _STEP.search(line)
    if match is None or (step := number(match[1])) is None:
        return None
    point = Point(at, step, epoch=None if match[2] is None else number(match[2]))
    for name, text in _FIELD.findall(match[3]):
        column = COLUMNS.get(name.lower())
        if (column is not None or "loss" in name) and (value := number(text)) is not None:
            (point.metrics if column is None else point.values)[column or name] = value
    return point if point.values else None


FORMAT = LineFormat(
    name="lerobot",
    title="LeRobot log",
    source="lerobot 0.1 to 0.4, utils/logging_utils.py: MetricsTracker.__str__; before, scripts/train.py",
    pattern=re.compile(r"step:\d+[KMBTQ]? smpl:"),
    read=read,
    also=re.compile(r"grad_clip_norm"),
)
