"""mmcv and mmengine, text and JSON: `Epoch [1][50/1000] lr: …, grad_norm: 7.2`, `Epoch(train) [1][ 50/1000] lr: …`.

All numbers are means: with mmcv over the steps since the line before, with mmengine over a window, of 10 unless the
configuration says otherwise. The norm is taken before clipping and is only there where clipping is on.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np

from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Points, Restart, Setting, Unread
from gradsight_server.importers.means import Means
from gradsight_server.importers.numbers import number

COLUMNS = {
    "loss": "loss",
    "grad_norm": "grad_norm_before_clip",
    "lr": "lr",
    "time": "step_time_s",
    "loss_scale": "loss_scale",
}
MEANS = {"loss": "loss", "grad_norm_before_clip": "grad_norm"}
ENGINE_WINDOW = 10
LARGEST_STEP = 1e15
OneOrMany = TypeVar("OneOrMany", Point, Points)
LENGTH = "steps of the epoch"

_EPOCH = re.compile(r"Epoch *(?:\(train\))? *\[(\d{1,9})\]\[ *(\d{1,9})/(\d{1,9})\]\s*(.*)")
_ITERATION = re.compile(r"Iter *(?:\(train\))? *\[ *(\d{1,15})/(\d{1,15})\]\s*(.*)")
_JSON = re.compile(r'^\{"(?:mode": "train"|lr"|base_lr"|data_time")')
_HAS_STEP = re.compile(r'"step": {1,4}"?[\d.]')
_FIELD = re.compile(r'(?<![\w.])"?([\w.]{1,80})"?: {1,4}"?([-\d.eE+]+|nan|inf|NaN|-?Infinity)')
_CLIP = re.compile(r"(?:grad_clip|clip_grad)\W{0,4}=?\W{0,4}(?:dict\()?[^)]{0,80}?\bmax_norm\W{0,4}[=:]\s*([\d.e+-]+)")
_NO_CLIP = re.compile(r"\b(?:grad_clip|clip_grad) ?= ?None")
_LOGGER = re.compile(r" - (\w+) - INFO - (?:Epoch|Iter)")
_NAMED = re.compile(
    r"(?:work_dir\W{1,4}|Checkpoints will be saved to )(?P<dir>[\w./~-]{1,400})|\"exp_name\": \"(?P<exp>[^\"]{1,200})\""
)
_BEGIN = re.compile(r"Environment info:|System environment:|\"env_info\"")


def read(lines: Lines, options: Options) -> Iterator[Item]:
    reader = _Reader()
    in_text, in_json = Alike(lines, _point), Alike(lines, _point_of_json)
    logger = ""
    for at, line in lines:
        if (found := _LOGGER.search(line)) is not None and found[1] != logger:
            if logger:
                yield Restart(at, f"{found[1]} writes, after {logger}", is_other_run=True)
            logger = found[1]
        if (point := _point(at, line)) is not None:
            yield from reader.text(point, is_engine="(train)" in line)
            if reader.is_steady:
                yield from reader.more_text(in_text, line)
        elif _JSON.match(line):
            yield from reader.json(at, line)
            if reader.is_steady:
                yield from reader.more_json(in_json, line)
        else:
            yield from reader.other(at, line)


class _Reader:
    def __init__(self) -> None:
        self._means = Means(MEANS, remark="Of the steps since the line before.")
        self._has_points = self._has_said_total = False
        self._epoch = self._base = self._last = 0
        self._length: float | None = None
        """How many steps an epoch has."""
        self._named: dict[str, str] = {}
        """What the configuration calls the run: the last part of where it writes to, its experiment."""

    @property
    def is_steady(self) -> bool:
        """Whether there is nothing left to be said beside the points."""
        return self._means.is_said and self._has_points

    def text(self, point: Point, *, is_engine: bool) -> Iterator[Item]:
        length = point.metrics[LENGTH]
        if point.epoch is None:
            yield from self.total(point.line, int(length))
        elif self._has_points and self._length not in (None, length):
            yield Restart(point.line, f"an epoch of {length:g} steps, after {self._length:g}", is_other_run=True)
        self._length = None if point.epoch is None else length
        yield from self.point(_counted_through(point), is_engine=is_engine)

    def more_text(self, alike: Alike, line: str) -> Iterator[Item]:
        for points in alike.after(line):
            if points.epoch is None or (points.metrics[LENGTH] == self._length).all():
                yield _counted_through(points)
            else:
                for point in points.each():
                    yield from self.text(point, is_engine="(train)" in line)

    def point(self, point: Point, *, is_engine: bool) -> Iterator[Item]:
        if not point.values:
            yield Unread(point.line, "the line ends before any value of the step")
            return
        if not self._means.is_said:
            yield from self._windows() if is_engine else self._means.seen(point.step)
        self._has_points = True
        yield point

    def _windows(self) -> Iterator[Item]:
        self._means.is_said = True
        for column, source in MEANS.items():
            remark = "Of the last steps before the line, as many as log_processor's window_size."
            yield Meaning(column, source, averaged_over_steps=ENGINE_WINDOW, remark=remark)

    def json(self, at: int, line: str) -> Iterator[Item]:
        """mmcv counts `iter` within the epoch there, unless it trains by iterations; mmengine has a `step` of all."""
        if '"loss' not in line and '"grad_norm"' not in line:
            return
        point = _point_of_json(at, line)
        if point.step is None:
            yield Unread(at, "neither a step nor an iteration")
            return
        if not _HAS_STEP.search(line):
            point.step = self._counted(int(point.epoch or 1), int(point.step))
        yield from self.point(point, is_engine=_HAS_STEP.search(line) is not None)

    def more_json(self, alike: Alike, line: str) -> Iterator[Item]:
        for points in alike.after(line):
            if not _HAS_STEP.search(line) and points.step is not None:
                if points.epoch is not None and (points.epoch != self._epoch).any():
                    for point in points.each():
                        point.step = self._counted(int(point.epoch or 1), int(point.step or 0))
                        yield point
                    continue
                self._last = int(points.step[-1])
                points.step = points.step + self._base
            yield points

    def _counted(self, epoch: int, i: int) -> int:
        if epoch == self._epoch + 1 and i <= self._last:
            self._base += self._last
        elif epoch < self._epoch:
            self._base = 0
        self._epoch, self._last = epoch, i
        return self._base + i

    def total(self, at: int, total: int) -> Iterator[Item]:
        if not self._has_said_total:
            self._has_said_total = True
            yield Setting(at, "total_steps", float(total), "Iter")

    def other(self, at: int, line: str) -> Iterator[Item]:
        for named in _NAMED.finditer(line):
            what, name = (named.lastgroup or ""), (named["exp"] or named["dir"]).rstrip("/.").rpartition("/")[2]
            if self._named.setdefault(what, name) != name:
                self._named[what] = name
                yield Restart(at, f"the name of another run, {name}", is_other_run=True)
        if _BEGIN.search(line) and self._has_points:
            self._has_points = False
            yield Restart(at, "another launch prints its environment")
        if (clip := _CLIP.search(line)) is not None:
            yield Setting(at, "max_norm", number(clip[1]), "max_norm")
        elif (no_clip := _NO_CLIP.search(line)) is not None:
            yield Setting(at, "max_norm", None, no_clip[0].partition("=")[0].strip())


def _point(at: int, line: str) -> Point | None:
    """Of a line of text, with the step as it stands there and how many there are of the epoch, or of all."""
    if (match := _EPOCH.search(line)) is not None:
        epoch, i, length, rest = match.groups()
        point = Point(at, int(i), epoch=float(epoch))
    elif (match := _ITERATION.search(line)) is not None:
        i, length, rest = match.groups()
        point = Point(at, int(i))
    else:
        return None
    _put(point, rest)
    point.metrics[LENGTH] = float(length)
    return point


def _counted_through(point: OneOrMany) -> OneOrMany:
    length = point.metrics.pop(LENGTH)
    if point.epoch is not None and point.step is not None:
        step = (point.epoch - 1) * length + point.step
        point.step = step.astype(np.int64) if isinstance(step, np.ndarray) else int(step)
    return point


def _point_of_json(at: int, line: str) -> Point:
    numbers = ((name, number(text)) for name, text in _FIELD.findall(line))
    places = {name: value for name, value in numbers if value is not None and 0 <= value < LARGEST_STEP}
    step = places.get("step", places.get("iter"))
    point = Point(at, None if step is None else int(step), epoch=places.get("epoch"))
    _put(point, line)
    return point


def _put(point: Point, text: str) -> None:
    for name, printed in _fields(text):
        column = COLUMNS.get(name)
        if column is None and not name.startswith("loss"):
            continue
        if (value := number(printed)) is not None:
            (point.metrics if column is None else point.values)[column or name] = value


def _fields(text: str) -> Iterable[tuple[str, str]]:
    """As quickly as can be where the text looks as expected: parts set apart by commas (mmcv) or blanks (mmengine)."""
    if "{" in text:
        return _FIELD.findall(text)
    pairs = (part.partition(": ") for part in text.split(", " if ", " in text else "  "))
    return [(name.strip(), value) for name, _, value in pairs]


FORMAT = LineFormat(
    name="mmcv",
    title="mmcv or mmengine log",
    source="mmcv 1.0 to 1.7, mmcv/runner/hooks/logger/text.py: TextLoggerHook._log_info and _dump_log; mmengine 0.1 to "
    "0.10, mmengine/runner/log_processor.py: LogProcessor.get_log_after_iter and visualization/vis_backend.py",
    pattern=re.compile(
        r"Epoch \[\d+\]\[\d+/\d+\]|Epoch\(train\) *\[|Iter\(train\) *\[|Iter \[\d+/\d+\]"
        r'|^\{"mode": "train"|^\{"(?:lr|base_lr|data_time)": .*"(?:data_time|iter|step)": '
    ),
    read=read,
    also=re.compile(r"grad_clip|clip_grad|nvironment info:|ystem environment:|\"env_info\"|work_dir|will be saved to "),
)
