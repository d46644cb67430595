"""Tables of OpenAI's logger, as guided-diffusion and baselines print: `| grad_norm | 82.3 |`, block by block.

Numbers have three significant digits, steps too; those that are logged as means are over the steps since the block
before. `lg_loss_scale` is the logarithm of the loss scale to base 2. A step with an overflow is said to be skipped
before the block. (Their progress.csv has all digits.)
"""

import math
import re
from collections.abc import Iterator

from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Restart
from gradsight_server.importers.names import column_of
from gradsight_server.importers.numbers import number

DIGITS = 3
_FOUND_NAN = re.compile(r"Found NaN, decreased lg_loss_scale to ([-\d.e]+)")
_ROW = re.compile(r"^\| *(\S[^|]{0,100}?) {0,100}\| {0,100}([^|\s]{1,100}) *\|\s*$")


def read(lines: Lines, options: Options) -> Iterator[Item]:
    has_said = False
    rows: dict[str, float] = {}
    begin = 0
    for at, line in lines:
        match = _ROW.match(line)
        if match is not None:
            if match[1] in rows:  # a block without its line
                yield from _block(begin, rows)
                rows = {}
            if not rows:
                begin = at
            if (value := number(match[2])) is not None:
                rows[match[1]] = value
        elif (found := _FOUND_NAN.search(line)) is not None:
            yield from _block(begin, rows)
            rows = {}
            after = 2.0 ** (number(found[1]) or 0.0)
            scales = {"loss_scale": 2 * after, "loss_scale_after": after}
            yield Point(at, None, {"skipped": 1.0, **scales}, skip_reason="overflow")
        elif line.startswith("Logging to "):
            if has_said:
                yield Restart(at, "another launch says where it logs to")
        elif rows:
            if not has_said:
                has_said = True
                yield from _meanings(rows)
            yield from _block(begin, rows)
            rows = {}
    yield from _block(begin, rows)


def _meanings(rows: dict[str, float]) -> Iterator[Item]:
    yield Meaning("step", "step", significant_digits=DIGITS)
    for name in rows:
        column = column_of(name)
        if column in ("loss", "grad_norm_before_clip"):
            yield Meaning(column, name, averaged_over_steps=math.nan, significant_digits=DIGITS)


def _block(at: int, rows: dict[str, float]) -> Iterator[Item]:
    point = Point(at, None)
    for name, value in rows.items():
        column = column_of(name)
        if name == "lg_loss_scale":
            point.values["loss_scale"] = 2.0**value if value < 1024 else math.inf
        elif column == "step":
            point.step = value if point.step is None else point.step
        elif column == "epoch":
            point.epoch = value
        elif column is not None and column not in ("rank", "wall_time_s"):
            point.values[column] = value
        elif "loss" in name or name == "param_norm":
            point.metrics[name] = value
    if point.values:
        yield point


FORMAT = LineFormat(
    name="openai_table",
    title="OpenAI logger tables",
    source="improved-diffusion and guided-diffusion, logger.py: HumanOutputFormat.writekvs, and train_util.py: "
    "_log_grad_norm (2021); baselines, logger.py",
    pattern=re.compile(r"^\| *[\w/]{0,60}(?:grad_norm|loss|step)\w{0,60} +\| *[-\w.+]+ *\|"),
    read=read,
    weight=0.5,  # other tools' tables look alike, whose formats know more
    also=re.compile(r"^\||^-{6}|^Logging to |^Found NaN, "),
)
