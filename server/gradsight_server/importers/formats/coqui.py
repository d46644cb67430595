"""Coqui TTS: `--> STEP: 24/496 -- GLOBAL_STEP: 25`, then a line each: `| > grad_norm: 5.1  (4.2)`, `| > amp_scaler: …`.

Each value is that of the step, the one in brackets the mean of the epoch so far. With several optimizers (a GAN) their
norms, losses and rates have numbers, and each is a stream of its own. Evaluations have no global step; they are no
points.
"""

import math
import re
from collections.abc import Iterator

from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Happened, Item, Point
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import Printed

COLUMNS = {
    "loss": "loss",
    "grad_norm": "grad_norm_before_clip",
    "current_lr": "lr",
    "amp_scaler": "loss_scale",
    "step_time": "step_time_s",
}
OF_ALL = frozenset({"loss_scale", "step_time_s"})
"""One number for all optimizers."""

_STEP = re.compile(r"--> .{0,80}GLOBAL_STEP: (\d{1,15})")
_VALUE = re.compile(r"\| > ([A-Za-z_]{1,60}?)(?:_(\d))?: (\S+(?: device=\S+\))?) *(?:\((\S+)\))?")
_PRINTED = Printed()


def read(lines: Lines, options: Options) -> Iterator[Item]:
    reader = _Reader()
    for at, line in lines:
        if (step := _STEP.search(line)) is not None:
            yield from reader.close()
            reader.open(at, int(step[1]))
        elif (match := _VALUE.search(line)) is not None:
            yield from reader.value(at, match)
        elif "-->" in line or " > " in line:  # an evaluation begins
            yield from reader.close()
        else:
            yield from _PRINTED.read(at, line)
    yield from reader.close()


class _Reader:
    def __init__(self) -> None:
        self._at = 0
        self._step: int | None = None
        self._values: dict[str, dict[str, float]] = {}
        """By optimizer, "" where there is one."""
        self._metrics: dict[str, float] = {}
        self._is_poisoned = False

    def open(self, at: int, step: int) -> None:
        self._at, self._step = at, step

    def value(self, at: int, match: re.Match[str]) -> Iterator[Item]:
        if self._step is None:
            return
        name, optimizer, text, mean = match.groups()
        value = number(text)
        column = COLUMNS.get(name)
        if value is None:
            return
        if column is not None:
            self._values.setdefault("" if column in OF_ALL else optimizer or "", {})[column] = value
        elif "loss" in name:
            self._metrics[name if optimizer is None else f"{name}_{optimizer}"] = value
        if name == "grad_norm" and mean is not None:
            is_poisoned = not math.isfinite(number(mean) or 0.0)
            if is_poisoned and not self._is_poisoned:
                message = f"The mean norm of the epoch so far is {mean}: a step of it was not finite."
                yield Happened(at, "mean_not_finite", message, step=self._step)
            self._is_poisoned = is_poisoned

    def close(self) -> Iterator[Item]:
        """The point or points of the block that ends."""
        step, values, metrics = self._step, self._values, self._metrics
        self._step, self._values, self._metrics = None, {}, {}
        if step is None:
            return
        optimizers = sorted(optimizer for optimizer in values if optimizer)
        of_all = values.pop("", {})
        if not optimizers and of_all.keys() - OF_ALL:
            yield Point(self._at, step, of_all, metrics)
        shared = {name: value for name, value in of_all.items() if name in OF_ALL}
        for i, optimizer in enumerate(optimizers):
            stream = f"optimizer-{optimizer}"
            yield Point(self._at, step, {**values[optimizer], **shared}, metrics if i == 0 else {}, stream=stream)


FORMAT = LineFormat(
    name="coqui",
    title="Coqui TTS console",
    source="coqui-ai Trainer 0.0.5 to 0.1, trainer/logging/console_logger.py: ConsoleLogger.print_train_step",
    pattern=re.compile(r"--> .{0,80}GLOBAL_STEP: \d|\| > \w+: \S"),
    read=read,
    also=re.compile(r"EVALUATION|--> (?:STEP|EVAL|TRAIN)|grad_clip"),
)
