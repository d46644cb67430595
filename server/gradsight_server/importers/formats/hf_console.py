"""Hugging Face Trainer's console: `{'loss': 2.3, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.01}`.

Numbers are strings since transformers 5. The step is in the progress bar that is drawn anew after the line, in
`'global_step/max_steps'` (ms-swift) or before the dictionary (`step 3: {'train/loss': …}`, slime); else there is only
an epoch. The norm is that of the step before clipping. The loss is a mean since the line before, from which the Trainer
leaves out what is not finite: a 0.0 beside a norm that isn't finite is no loss, and left out here.
"""

import math
import re
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from gradsight_server.importers import overflows
from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Points, Setting
from gradsight_server.importers.means import Means
from gradsight_server.importers.names import column_of
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import Printed

LOSS = "What is not finite is left out of the mean, so that it may read 0.0 where all was NaN."

_PIECE = re.compile(
    r"(?:[Ss]tep (?P<step>\d{1,15}): ?)?\{(?P<dict>[^{}]*'(?:train/)?(?:loss|grad_norm)': [^{}]*)(?:\}|$)"
    r"|(?<!\d)\d{1,3}%\|[^|]{0,400}\| {0,4}(?P<n>\d{1,15})/(?P<total>\d{1,15}) \["
)
_AS_JSON = msgspec.json.Decoder(dict[str, float | str | None])
_FIELD = re.compile(r"'([^']+)': ('[^']*'|[\w.]*\([^)]*\)|[^,}]+)")
_OVERFLOW = re.compile(overflows.MARKS)
_TOTAL = re.compile(r"Total optimization steps = ([\d,]{1,20})")
_PRINTED = Printed()


def read(lines: Lines, options: Options) -> Iterator[Item]:
    """A dictionary waits for the bar after it."""
    reader = _Reader()
    alike = Alike(lines, lambda at, line: _point(at, line[1:-1]) if _is_dictionary(line) else None)
    for at, line in lines:
        if _is_dictionary(line):
            yield from reader.dictionary(at, line[1:-1], None)
            yield from reader.alike(alike, line)
            continue
        is_piece = False
        for piece in _PIECE.finditer(line):
            is_piece = True
            if piece["dict"] is not None:
                yield from reader.dictionary(at, piece["dict"], piece["step"])
            elif not line[: piece.start()].rstrip().endswith(":"):  # as in `Loading shards: 100%|…`
                yield from reader.bar(int(piece["n"]), int(piece["total"]))
        if _OVERFLOW.search(line):
            yield from reader.waiting()
            yield from reader.overflows.read(at, line)
        elif (total := _TOTAL.search(line)) is not None:
            reader.total = int(total[1].replace(",", ""))
            yield Setting(at, "total_steps", float(reader.total), "Total optimization steps")
        elif not is_piece:
            yield from _PRINTED.read(at, line)
    yield from reader.waiting()
    yield from reader.overflows.rest()


class _Reader:
    total: int | None = None
    """Steps of the training, by which its bar is told from that of an evaluation."""

    def __init__(self) -> None:
        self.overflows = overflows.Overflows()
        self._point: Point | None = None
        self._bar = 0
        """Where the training's bar was last."""
        self._step: int | None = None
        self._epoch = 0.0
        self._interval: int | None = None
        self._means = Means({"loss": "loss"}, remark=LOSS)

    def dictionary(self, at: int, text: str, step: str | None) -> Iterator[Item]:
        yield from self.waiting()
        point = _point(at, text, None if step is None else int(step))
        if point is None:
            return
        yield from self.point(point)

    def point(self, point: Point) -> Iterator[Item]:
        yield from self.waiting()
        if point.epoch is not None:
            if point.epoch < self._epoch:  # another launch
                self._bar, self._step, self._interval = 0, None, None
            self._epoch = point.epoch
        norm = point.values.get("grad_norm_before_clip", 0.0)
        if point.values.get("loss") == 0.0 and not math.isfinite(norm):
            del point.values["loss"]
        self._point = point
        if point.step is not None:
            yield from self.waiting()

    def alike(self, alike: Alike, line: str) -> Iterator[Item]:
        """Dictionaries without a bar between them; the last one waits for its own."""
        if not self._means.is_said or not self.overflows.is_idle:
            return
        for points in alike.after(line):
            (last,) = points[-1:].each()
            points = points[:-1]
            if self._goes_on(points):
                yield from self.waiting()
                yield points
                self._epoch = self._epoch if points.epoch is None else float(points.epoch[-1])
                self._step = self._step if points.step is None else int(points.step[-1])
            else:
                for point in points.each():
                    yield from self.point(point)
            yield from self.point(last)

    def _goes_on(self, points: Points) -> bool:
        """Whether these tell their steps, or nothing has told of one so far."""
        if points.epoch is not None and np.diff(points.epoch, prepend=self._epoch).min() < 0:
            return False
        if points.step is None:
            return self._step is None and not self._bar
        return bool(np.diff(points.step, prepend=self._step or 0).min() > 0)

    def bar(self, n: int, total: int) -> Iterator[Item]:
        """Of the training; before its first line that is not known yet."""
        if self._point is not None and n > (self._step or 0) and total == (self.total or total):
            self.total = total
            self._point.step = n
            yield from self.waiting()
        if total == self.total:
            self._bar = n

    def waiting(self) -> Iterator[Item]:
        """The dictionary before, whatever is known of its step by now."""
        if self._point is None:
            return
        point, self._point = self._point, None
        if point.step is None and self._step is not None:
            guessed = self._bar if self._bar > self._step else self._step + (self._interval or 0)
            point.step = guessed if guessed > self._step else None
        if point.step is not None:
            if self._step is not None and point.step > self._step:
                self._interval = int(point.step) - self._step
            self._step = int(point.step)
            if not self._means.is_said:
                yield from self._means.seen(point.step)
        elif not self._means.is_said:
            self._means.is_said = True
            yield Meaning("loss", "loss", averaged_over_steps=math.nan, remark=LOSS)
        yield from self.overflows.until(point.step, point.line)
        yield point


def _is_dictionary(line: str) -> bool:
    return line.startswith("{'") and line.endswith("}") and line.count("{") == 1


def _point(at: int, text: str, step: int | None = None) -> Point | None:
    point = Point(at, step)
    for name, cell in _fields(text):
        _put(point, name, cell)
    return None if not point.values or "'train_runtime'" in text else point


def _fields(text: str) -> Iterable[tuple[str, object]]:
    """As JSON where it nearly is some, since that is quick; a NaN or a tensor makes it none."""
    try:
        return _AS_JSON.decode("{" + text.replace("'", '"') + "}").items()
    except msgspec.DecodeError:
        return [(name, printed.strip("' ")) for name, printed in _FIELD.findall(text)]


def _put_step(point: Point, step: float | None) -> None:
    if point.step is None and step is not None and math.isfinite(step):
        point.step = step


def _put(point: Point, name: str, cell: object) -> None:
    if name == "global_step/max_steps":
        _put_step(point, number(str(cell).partition("/")[0]))
        return
    column = "lr" if name == "train/lr-pg_0" else column_of(name)
    if column is None and "loss" not in name and "reward" not in name:
        return
    value = number(cell)
    if value is None:
        return
    if column == "epoch":
        point.epoch = value
    elif column == "step":
        _put_step(point, value)
    elif column is None or column in ("rank", "wall_time_s"):
        point.metrics[name] = value
    else:
        point.values[column] = value


FORMAT = LineFormat(
    name="hf_console",
    title="Hugging Face Trainer console",
    source="transformers 4.38 to 5.0, trainer_callback.py: ProgressCallback.on_log and PrinterCallback.on_log; "
    "ms-swift 3; slime 0.1 (step N: {…})",
    pattern=re.compile(r"'(?:train/)?grad_norm': |\{'(?:train/)?loss': "),
    read=read,
    also=re.compile(overflows.MARKS + r"|\| *\d+/\d+ \[|Total optimization steps|max_grad_norm|TrainingArguments"),
)
