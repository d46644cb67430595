"""Swin and SimMIM consoles: `Train: [0/300][10/1251] … loss 6.9 (6.8) grad_norm 1.2 (1.4) loss_scale 65536.0 (…) …`.

Each value is that of the line's step, the one in brackets the mean since the start of the epoch. The norm is taken
before clipping; the scale is the one for the next step.
"""

import math
import re
from collections.abc import Iterator

from gradsight_server.importers import overflows
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Happened, Item, Point, Restart, Unread
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

COLUMNS = {"loss": "loss", "grad_norm": "grad_norm_before_clip", "loss_scale": "loss_scale", "lr": "lr"}

_TRAIN = re.compile(r"Train: \[(\d{1,9})/\d+\]\[(\d{1,15})/(\d{1,9})\](.*)")
_FIELD = re.compile(r"(loss|grad_norm|loss_scale|lr) ([\d.e+-]+|nan|inf|-inf)(?: \(([^)]+)\))?")
_PRINTED = Printed({**NAMES, "accumulation_steps": "accumulation_steps"})


def read(lines: Lines, options: Options) -> Iterator[Item]:
    poisoned: int | None = None
    overflowed = overflows.Overflows()
    has_points = False
    for at, line in lines:
        match = _TRAIN.search(line)
        if match is None:
            if has_points and "CLIP_GRAD" in line:
                has_points = False
                yield Restart(at, "another launch prints its configuration")
            yield from overflowed.read(at, line)
            yield from _PRINTED.read(at, line)
            continue
        epoch, i, num_steps = int(match[1]), int(match[2]), int(match[3])
        values: dict[str, float] = {}
        for name, text, mean in _FIELD.findall(match[4]):
            if (value := number(text)) is not None:
                values[COLUMNS[name]] = value
            if name == "grad_norm" and poisoned != epoch and not math.isfinite(number(mean) or 0.0):
                poisoned = epoch
                message = f"The mean norm since the start of epoch {epoch} is {mean}: a step of it was not finite."
                yield Happened(at, "mean_not_finite", message, step=epoch * num_steps + i)
        if not values:
            yield Unread(at, "the line ends before any value of the step")
            continue
        has_points = True
        step = epoch * num_steps + i
        yield from overflowed.until(step, at)
        yield Point(at, step, values, epoch=epoch + i / num_steps if num_steps else float(epoch))
    yield from overflowed.rest()


FORMAT = LineFormat(
    name="swin",
    title="Swin or SimMIM console",
    source="Swin-Transformer main.py and main_simmim_pt.py: train_one_epoch (2021 to 2024); SimMIM likewise",
    pattern=re.compile(r"Train: \[\d+/\d+\]\[\d+/\d+\]"),
    read=read,
    also=re.compile(overflows.MARKS + "|CLIP_GRAD: |ACCUMULATION_STEPS: "),
)
