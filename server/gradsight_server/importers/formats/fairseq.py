"""fairseq and metaseq: JSON lines, JSON in text, `epoch 001:  10 / 100 loss=…, gnorm=…` and the older `| epoch 001: …`.

All are means since the line before; the older ones run since the start of the epoch. `clip` is the percentage of those
steps that were clipped. An overflow is no update and has no number of its own: it stands at that of an update near it.
"""

import math
import re
from collections.abc import Iterable, Iterator

from gradsight_server.importers import skips
from gradsight_server.importers.alike import Alike
from gradsight_server.importers.clock import time_s
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Happened, Item, Meaning, Point, Restart, Setting, Unread
from gradsight_server.importers.means import Means
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

COLUMNS = {"loss": "loss", "gnorm": "grad_norm_before_clip", "lr": "lr", "loss_scale": "loss_scale"}
METRICS = frozenset({"nll_loss", "ppl", "clip"})
MEANS = {"loss": "loss", "grad_norm_before_clip": "gnorm"}
PERCENT = Meaning("clip", "clip", remark="The percentage of the steps since the line before that were clipped.")

_FIELD = re.compile(r'(?<!\w)(\w{1,40})(?:=|": )"?([^\s",}]+)')
_UPDATES = re.compile(r'[ "]num_updates(?:=|": )')  # of an epoch it is `train_num_updates` or stands after a bar
_OVERFLOW = re.compile(r"overflow detected.{0,80}setting loss scale to: ([\d.e+-]+)")
_TROUBLE = re.compile(
    r"Minimum loss scale reached|(?:NaN|Inf) detected in .*|Fatal error: gradients are inconsistent.*"
)
_BEGIN = re.compile(r"Namespace\(|'_name': None, 'common'|[Ll]oaded checkpoint")
_PRINTED = Printed(
    {**NAMES, "log_interval": "log_interval", "max_update": "total_steps", "distributed_world_size": "world_size"}
)


def read(lines: Lines, options: Options) -> Iterator[Item]:
    reader = _Reader()
    alike = Alike(lines, _point)
    for at, line in lines:
        if _UPDATES.search(line):
            yield from reader.point(at, line)
            yield from reader.alike(alike, line)
        else:
            yield from reader.other(at, line)
    yield from reader.end()


class _Reader:
    def __init__(self) -> None:
        self._means = Means(MEANS)
        self._between = skips.Between()
        self._has_points = self._has_said_percent = False

    def point(self, at: int, line: str) -> Iterator[Item]:
        point = _point(at, line)
        if point is None:
            yield Unread(at, "no number of updates, or no value beside it")
            return
        if not self._means.is_said:
            yield from self._running_means(line) if "| epoch" in line[:9] else self._means.seen(point.step)
        if "clip" in point.metrics and not self._has_said_percent:
            self._has_said_percent = True
            yield PERCENT
        self._has_points = True
        yield from self._between.until(point.step, time_s(line), line=at)
        yield point

    def alike(self, alike: Alike, line: str) -> Iterator[Item]:
        if self._means.is_said and self._between.is_idle:
            for points in alike.after(line):
                yield points
                step, at = (points.step[-1] if points.step is not None else None), int(points.line[-1])
                yield from self._between.until(step, time_s(alike.last_line), line=at)

    def end(self) -> Iterator[Item]:
        yield from self._between.unnumbered()

    def _running_means(self, line: str) -> Iterator[Item]:
        self._means.is_said = True
        for column, source in MEANS.items():
            yield Meaning(
                column, source, averaged_over_steps=math.nan, remark="A running mean since the start of the epoch."
            )

    def other(self, at: int, line: str) -> Iterator[Item]:
        if (overflow := _OVERFLOW.search(line)) is not None:
            values = {"skipped": 1.0}
            if (after := number(overflow[1])) is not None:
                values |= {"loss_scale": 2 * after, "loss_scale_after": after}
            yield from self._between.skipped(Point(at, None, values, skip_reason="overflow"), time_s(line))
        elif (trouble := _TROUBLE.search(line)) is not None:
            yield Happened(at, "trouble", trouble[0][:400])
        else:
            if _BEGIN.search(line) and self._has_points:
                self._has_points = False
                yield Restart(at, "another launch prints its configuration or loads a checkpoint")
            for setting in _PRINTED.read(at, line):
                yield from self._setting(setting)

    def _setting(self, setting: Setting) -> Iterator[Item]:
        if setting.name != "log_interval":
            yield setting
        elif isinstance(setting.value, float) and setting.value >= 1:
            yield from self._means.say(setting.value)


def _point(at: int, line: str) -> Point | None:
    values: dict[str, float] = {}
    metrics: dict[str, float] = {}
    step = epoch = None
    for name, text in _fields(line):
        column = COLUMNS.get(name)
        if column is not None:
            if (value := _number(text)) is not None:
                values[column] = value
        elif name == "num_updates":
            step = _number(text)
        elif name in METRICS:
            if (value := _number(text.removesuffix("%"))) is not None:
                metrics[name] = value
        elif name == "update" or (name == "epoch" and epoch is None):
            epoch = _number(text)
    if step is None or not math.isfinite(step) or not values:
        return None
    return Point(at, step, values, metrics, epoch=epoch)


def _fields(line: str) -> Iterable[tuple[str, str]]:
    """As quickly as can be where the line looks as expected."""
    if "{" not in line:
        pairs = (part.partition("=") for part in line.split(", "))
        return [(name.rpartition(" ")[2], text) for name, _, text in pairs]
    return _FIELD.findall(line)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return number(text)


FORMAT = LineFormat(
    name="fairseq",
    title="fairseq log",
    source="fairseq 0.6 to 0.12 and metaseq, logging/progress_bar.py: JsonProgressBar.log, SimpleProgressBar.log and "
    "TqdmProgressBar.log; trainer.py: train_step",
    pattern=_UPDATES,
    read=read,
    also=re.compile(r"overflow detected|clip_norm|Minimum loss scale|detected in|oaded checkpoint|Fatal error"),
)
