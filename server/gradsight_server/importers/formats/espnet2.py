"""ESPnet2: `2epoch:train:1-100batch: …, loss=…, grad_norm=…, clip=…, loss_scale=…, optim0_lr0=…` and its skips.

Numbers are means over the batches that the line names; `clip` is the percentage of them that were clipped, and skipped
ones are in no mean of the norm. A skip (`The grad norm is nan. Skipping updating the model.`) has no number of its own:
it gets one by its time of day.
"""

import re
from collections.abc import Iterator

from gradsight_server.importers import skips
from gradsight_server.importers.clock import time_s
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Unread
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

COLUMNS = {
    "loss": "loss",
    "grad_norm": "grad_norm_before_clip",
    "loss_scale": "loss_scale",
    "optim0_lr0": "lr",
    "lr_0": "lr",
    "train_time": "step_time_s",
}
PERCENT = Meaning("clip", "clip", remark="The percentage of the batches of a line whose gradient was clipped.")

_TRAIN = re.compile(r"(\d{1,15})epoch:train:(\d{1,15})-(\d{1,15})batch: (.*)")
_FIELD = re.compile(r"(?<!\w)(\w{1,60})=([^,\s]+)")
_SKIP = re.compile(r"The grad norm is (\S+?)\. ")
_EPOCH_END = re.compile(r"epoch results: \[train\].{0,4000}?total_count=(\d{1,15})")
_PRINTED = Printed({**NAMES, "accum_grad": "accumulation_steps"})


def read(lines: Lines, options: Options) -> Iterator[Item]:
    reader = _Reader()
    for at, line in lines:
        match = _TRAIN.search(line)
        if match is not None:
            yield from reader.train(at, match, time_s(line))
        elif (skip := _SKIP.search(line)) is not None:
            norm = number(skip[1])
            values = {"skipped": 1.0} if norm is None else {"skipped": 1.0, "grad_norm_before_clip": norm}
            yield from reader.between.skipped(Point(at, None, values, skip_reason="nonfinite"), time_s(line))
        elif (end := _EPOCH_END.search(line)) is not None:
            reader.total = int(end[1])
        else:
            yield from _PRINTED.read(at, line)
    yield from reader.between.unnumbered()


class _Reader:
    total: int | None = None
    """Batches up to the end of the epoch before, where the log tells."""

    def __init__(self) -> None:
        self.between = skips.Between()
        self._epoch: int | None = None
        self._base = self._last = 0
        self._width: int | None = None
        self._has_said_percent = False

    def train(self, at: int, match: re.Match[str], now_s: float | None) -> Iterator[Item]:
        epoch, first, last = int(match[1]), int(match[2]), int(match[3])
        values: dict[str, float] = {}
        metrics: dict[str, float] = {}
        for name, text in _FIELD.findall(match[4]):
            column = COLUMNS.get(name)
            if column is None and name != "clip" and "loss" not in name:
                continue
            value = number(text)
            if value is not None:
                (metrics if column is None else values)[column or name] = value
        if not values:
            yield Unread(at, "the line ends before any value of the batches")
            return
        if epoch != self._epoch:
            counted_on = self._base + self._last if self._epoch is not None and epoch > self._epoch else 0
            self._base, self._epoch = self.total or counted_on, epoch
            self.total = None
        self._last = last
        yield from self._meanings(last - first + 1, "clip" in metrics)
        step = float(self._base + last)
        before = self._base + first - 1
        yield from self.between.until(step, now_s, line=at, step_s=values.get("step_time_s"), before=before)
        yield Point(at, step, values, metrics, epoch=float(epoch))

    def _meanings(self, width: int, has_percent: bool) -> Iterator[Item]:
        if self._width is None:
            self._width = width
            if width > 1:
                for column, source in (("loss", "loss"), ("grad_norm_before_clip", "grad_norm")):
                    yield Meaning(column, source, averaged_over_steps=width, remark="Of the applied steps.")
        if has_percent and not self._has_said_percent:
            self._has_said_percent = True
            yield PERCENT


FORMAT = LineFormat(
    name="espnet2",
    title="ESPnet2 log",
    source="ESPnet 0.8 to 202509, espnet2/train/reporter.py: SubReporter.log_message; espnet2/train/trainer.py: "
    "Trainer.train_one_epoch",
    pattern=re.compile(r"epoch:train:\d+-\d+batch: |The grad norm is \S+ Skipping"),
    read=read,
    also=re.compile(r"epoch results: |grad_clip: |accum_grad: "),
)
