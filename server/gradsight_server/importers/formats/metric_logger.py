"""BEiT, MAE, DINO, DETR: `Epoch: [0]  [ 10/1251]  eta: …  loss: 6.9 (6.9)  grad_norm: 0.39 (0.41)  …`.

The value before the brackets is the median of the last 20 steps, the one in brackets the mean of the epoch so far,
which a single NaN poisons. Single values are of the line's step. `Averaged stats` and tests are no points.
"""

import math
import re
from collections.abc import Iterator

from gradsight_server.importers import overflows
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Happened, Item, Meaning, Point, Unread
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

COLUMNS = {
    "loss": "loss",
    "grad_norm": "grad_norm_before_clip",
    "total_grad_norm": "grad_norm_before_clip",
    "loss_scale": "loss_scale",
    "lr": "lr",
    "time": "step_time_s",
}
WINDOW = 20
MEDIAN = f"The median of the last {WINDOW} steps, so that a single spike or skip does not show."

_HEAD = re.compile(r"Epoch: \[(\d{1,9})(?:/\d+)?\]\s+\[\s*(\d{1,9})/(\d{1,9})\]\s(.*)")
_FIELD = re.compile(r"(?<!\w)(\w{1,80}): ([-\d.e+]+|nan|inf|-inf)(?: \(([^)]+)\))?")
_PRINTED = Printed({**NAMES, "accum_iter": "accumulation_steps", "update_freq": "accumulation_steps"})


def read(lines: Lines, options: Options) -> Iterator[Item]:
    poisoned: int | None = None
    overflowed = overflows.Overflows()
    has_said_median = False
    for at, line in lines:
        match = _HEAD.search(line)
        if match is None:
            yield from overflowed.read(at, line)
            yield from _PRINTED.read(at, line)
            continue
        epoch, i, num_steps = int(match[1]), int(match[2]), int(match[3])
        values: dict[str, float] = {}
        metrics: dict[str, float] = {}
        for name, text, mean in _FIELD.findall(match[4]):
            column = COLUMNS.get(name)
            if column is None and "loss" not in name:
                continue
            if (value := number(text)) is not None:
                (metrics if column is None else values)[column or name] = value
            if column == "grad_norm_before_clip" and mean:
                if not has_said_median:
                    has_said_median = True
                    yield Meaning(column, name, averaged_over_steps=WINDOW, remark=MEDIAN)
                    yield Meaning("loss", "loss", averaged_over_steps=WINDOW, remark=MEDIAN)
                if poisoned != epoch and not math.isfinite(number(mean) or 0.0):
                    poisoned = epoch
                    message = f"The mean norm of epoch {epoch} so far is {mean}: a step of it was not finite."
                    yield Happened(at, "mean_not_finite", message, step=epoch * num_steps + i)
        if values:
            fraction = i / num_steps if num_steps else 0.0
            yield from overflowed.until(epoch * num_steps + i, at)
            yield Point(at, epoch * num_steps + i, values, metrics, epoch=epoch + fraction)
        else:
            yield Unread(at, "the line ends before any value of the step")
    yield from overflowed.rest()


FORMAT = LineFormat(
    name="metric_logger",
    title="BEiT, MAE, DINO or DETR console",
    source="BEiT, MAE, DINO and DETR, util/misc.py or utils.py: MetricLogger.log_every and SmoothedValue.__str__ "
    "(2020 to 2024)",
    pattern=re.compile(r"Epoch: \[\d+(?:/\d+)?\]\s+\[\s*\d+/\d+\]"),
    read=read,
    also=re.compile(overflows.MARKS + "|clip_grad|clip_max_norm"),
)
