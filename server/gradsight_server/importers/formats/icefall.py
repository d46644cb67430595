"""icefall and ZipVoice: `Epoch 1, batch 50, loss[…], …, lr: …, grad_scale: …` and what ScaledAdam tells of clipping.

`Clipping_scale=2.0, grad-norm quartiles …, threshold=…, percent-clipped=…` sums up the last 100 steps or fewer: its
median stands here for all of them. `Scaling gradients by f, model_norm_threshold=t` is one step whose norm was t / f.
All norms weigh each parameter's gradient by that parameter's root mean square. Every rank says the same of clipping.
"""

import math
import re
from collections import OrderedDict
from collections.abc import Iterator

from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Happened, Item, Meaning, Point, Unread
from gradsight_server.importers.numbers import number

NUM_REMEMBERED = 64
NORM = Meaning(
    "grad_norm_before_clip",
    "grad-norm quartiles",
    averaged_over_steps=math.nan,
    remark="The median of the last 100 steps or fewer, beside single steps that were scaled down much; gradients are "
    "weighted by the root mean square of their parameter, and the threshold moves with the median. A factor of 0.0 is "
    "a norm that is not finite; that step is applied, with gradients of 0.",
)
STEP = Meaning("step", "batch", remark="Batches begin anew with each epoch; they are counted on from the last printed.")

_LINE = re.compile(
    r"Epoch (?P<epoch>\d{1,15}), batch (?P<batch>\d{1,15}), (?P<rest>.*)"
    r"|grad-norm quartiles (?P<quartiles>[\d.e+\-infa ]+), threshold=(?P<threshold>\S+)"
    r", percent-clipped=(?P<percent>\S+)"
    r"|Scaling gradients by (?P<factor>[^,\s]+), model_norm_threshold=(?P<limit>\S+)"
    r"|(?P<small>Grad scale is (?:too )?small.*)"
)
_RANK = re.compile(r"\((\d+)/\d+\) ")
_LOSS = re.compile(r"\bloss\[(?:\S{0,200}?, )?loss=([^,\]]+)")
_REST = re.compile(r"(lr|grad_scale|global_batch_idx): ([^,\s]+)")


def read(lines: Lines, options: Options) -> Iterator[Item]:
    reader = _Reader()
    for at, line in lines:
        match = _LINE.search(line)
        if match is None or ", validation:" in line:
            continue
        if match["batch"] is not None:
            yield from reader.batch(at, line, match)
        elif match["small"] is not None:
            if reader.is_new(match["small"]):
                yield Happened(at, "loss_scale_small", match["small"][:200])
        elif reader.is_new(match[0]):
            yield from reader.clipping(at, match)


class _Reader:
    def __init__(self) -> None:
        self._rank: str | None = None
        self._epoch: int | None = None
        self._base = self._last = 0
        self._said: OrderedDict[str, None] = OrderedDict()
        self._has_said_norm = self._has_said_step = False

    def is_new(self, text: str) -> bool:
        """Whether no rank has said this lately."""
        if text in self._said:
            return False
        self._said[text] = None
        if len(self._said) > NUM_REMEMBERED:
            self._said.popitem(last=False)
        return True

    def batch(self, at: int, line: str, match: re.Match[str]) -> Iterator[Item]:
        rank = _RANK.search(line)
        if rank is not None:
            self._rank = self._rank or rank[1]
            if rank[1] != self._rank:
                return
        rest = {name: number(text) for name, text in _REST.findall(match["rest"])}
        values = {
            column: value
            for column, name in (("lr", "lr"), ("loss_scale", "grad_scale"))
            if (value := rest.get(name)) is not None
        }
        loss = _LOSS.search(match["rest"])
        if loss is not None and (value := number(loss[1])) is not None:
            values["loss"] = value
        if not values:
            yield Unread(at, "the line ends before any value of the batch")
            return
        epoch, step = int(match["epoch"]), rest.get("global_batch_idx")
        if step is None:
            step, is_counted_on = self._counted(epoch, int(match["batch"]))
            if is_counted_on and not self._has_said_step:
                self._has_said_step = True
                yield STEP
        yield Point(at, step, values, epoch=float(epoch))

    def _counted(self, epoch: int, batch: int) -> tuple[float, bool]:
        if self._epoch is not None and epoch != self._epoch:
            self._base = self._base + self._last + 1 if epoch > self._epoch else 0
        self._epoch, self._last = epoch, batch
        return float(self._base + batch), self._base > 0

    def clipping(self, at: int, match: re.Match[str]) -> Iterator[Item]:
        if not self._has_said_norm:
            self._has_said_norm = True
            yield NORM
        if match["factor"] is not None:
            yield from self._scaled(at, match)
            return
        quartiles = [value for text in match["quartiles"].split() if (value := number(text)) is not None]
        threshold, percent = number(match["threshold"].rstrip(",")), number(match["percent"])
        if len(quartiles) != 5 or threshold is None:
            yield Unread(at, "five quartiles and a threshold were expected")
            return
        metrics = {"grad-norm min": quartiles[0], "grad-norm max": quartiles[4]}
        if percent is not None:
            metrics["percent-clipped"] = percent
        yield Point(at, None, {"grad_norm_before_clip": quartiles[2], "max_norm": threshold}, metrics)

    def _scaled(self, at: int, match: re.Match[str]) -> Iterator[Item]:
        factor, limit = number(match["factor"]), number(match["limit"])
        if factor is None or limit is None:
            yield Unread(at, "a factor and a threshold were expected")
            return
        norm = math.nan if math.isnan(factor) else math.inf if factor <= 0 else limit / factor
        yield Point(at, None, {"grad_norm_before_clip": norm, "max_norm": limit, "clip_coef": factor, "skipped": 0.0})


FORMAT = LineFormat(
    name="icefall",
    title="icefall log",
    source="icefall 1.0 and ZipVoice, egs/*/ASR/zipformer/train.py: train_one_epoch, and optim.py: "
    "ScaledAdam._get_clipping_scale",
    pattern=re.compile(r"Epoch \d{1,15}, batch \d{1,15}, |grad-norm quartiles |Scaling gradients by "),
    read=read,
    also=re.compile(r"Grad scale is "),
)
