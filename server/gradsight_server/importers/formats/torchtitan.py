"""torchtitan: `step: 10  loss:  8.1034  grad_norm:  1.2300  memory: 9.49GiB(9.99%)  tps: 7,662 …`, in colours or not.

The norm is that of the step, before clipping. The loss is the step's; before 2025 it was a mean since the line before.
Lines of several ranks say the same.
"""

import re
from collections.abc import Iterator

from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Point, Unread
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

_STEP = re.compile(
    r"(?<!validate )step: *([\d,]+)  +(?:loss: *(\S+)  *)?(?:global_max_loss: *\S+  *)?(?:grad_norm: *(\S+))?(.*)"
)
_LR = re.compile(r"\blr: *(\S+)")
_RANK = re.compile(r"\[rank(\d{1,6})\]:")
_PRINTED = Printed({**NAMES, "max_norm": "max_norm", "training.max_norm": "max_norm", "training.steps": "total_steps"})


def read(lines: Lines, options: Options) -> Iterator[Item]:
    alike = Alike(lines, _point)
    for at, line in lines:
        if _STEP.search(line) is None:
            yield from _PRINTED.read(at, line)
        elif (point := _point(at, line)) is None:
            yield Unread(at, "a step without a loss or a norm")
        else:
            yield point
            yield from alike.after(line)


def _point(at: int, line: str) -> Point | None:
    match = _STEP.search(line)
    if match is None or (step := number(match[1])) is None:
        return None
    texts = {"loss": match[2], "grad_norm_before_clip": match[3]}
    if "lr: " in match[4] and (lr := _LR.search(match[4])) is not None:
        texts["lr"] = lr[1]
    values = {name: value for name, text in texts.items() if text and (value := number(text)) is not None}
    rank = _RANK.search(line)
    return Point(at, step, values, rank=0 if rank is None else int(rank[1])) if values else None


FORMAT = LineFormat(
    name="torchtitan",
    title="torchtitan console",
    source="torchtitan 0.1 to 0.2, torchtitan/components/metrics.py: MetricsProcessor.log; before, train.py",
    pattern=re.compile(r"step: *[\d,]+  +(?:loss|grad_norm): "),
    read=read,
    also=re.compile(r"max_norm|training\.steps"),
)
