"""mmcv and mmengine, text and JSON: `Epoch [1][50/1000] lr: …, grad_norm: 7.2`, `Epoch(train) [1][ 50/1000] lr: …`.

All numbers are means: with mmcv over the steps since the line before, with mmengine over a window, of 10 unless the
configuration says otherwise. The norm is taken before clipping and is only there where clipping is on.
"""

import re
from collections.abc import Iterable, Iterator

from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Restart, Setting, Unread
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

_EPOCH = re.compile(r"Epoch *(\(train\))? *\[(\d{1,9})\]\[ *(\d{1,9})/(\d{1,9})\]\s*(.*)")
_ITERATION = re.compile(r"Iter *(\(train\))? *\[ *(\d{1,15})/(\d{1,15})\]\s*(.*)")
_JSON = re.compile(r'^\{"(?:mode": "train"|lr"|base_lr"|data_time")')
_FIELD = re.compile(r'(?<![\w.])"?([\w.]{1,80})"?: {1,4}"?([-\d.e+]+|nan|inf|NaN|-?Infinity)')
_CLIP = re.compile(r"(?:grad_clip|clip_grad)\W{0,4}=?\W{0,4}(?:dict\()?[^)]{0,80}?\bmax_norm\W{0,4}[=:]\s*([\d.e+-]+)")
_NO_CLIP = re.compile(r"\b(?:grad_clip|clip_grad) ?= ?None")
_LOGGER = re.compile(r" - (\w+) - INFO - (?:Epoch|Iter)")
_BEGIN = re.compile(r"Environment info:|System environment:|\"env_info\"")


def read(lines: Lines, options: Options) -> Iterator[Item]:
    reader = _Reader()
    logger = ""
    for at, line in lines:
        if (found := _LOGGER.search(line)) is not None and found[1] != logger:
            if logger:
                yield Restart(at, f"{found[1]} writes, after {logger}")
            logger = found[1]
        if (match := _EPOCH.search(line)) is not None:
            is_engine, epoch, i, num, rest = match.groups()
            step = (int(epoch) - 1) * int(num) + int(i)
            yield from reader.point(at, step, float(epoch), rest, is_engine=bool(is_engine))
        elif (match := _ITERATION.search(line)) is not None:
            is_engine, i, total, rest = match.groups()
            yield from reader.total(at, int(total))
            yield from reader.point(at, int(i), None, rest, is_engine=bool(is_engine))
        elif _JSON.match(line):
            yield from reader.json(at, line)
        else:
            yield from reader.other(at, line)


class _Reader:
    def __init__(self) -> None:
        self._means = Means(MEANS, remark="Of the steps since the line before.")
        self._has_points = self._has_said_total = False
        self._epoch = self._base = self._last = 0

    def point(self, at: int, step: int, epoch: float | None, rest: str, *, is_engine: bool) -> Iterator[Item]:
        values: dict[str, float] = {}
        metrics: dict[str, float] = {}
        for name, text in _fields(rest):
            column = COLUMNS.get(name)
            if column is None and not name.startswith("loss"):
                continue
            if (value := number(text)) is not None:
                (metrics if column is None else values)[column or name] = value
        if not values:
            yield Unread(at, "the line ends before any value of the step")
            return
        if not self._means.is_said:
            yield from self._windows() if is_engine else self._means.seen(step)
        self._has_points = True
        yield Point(at, step, values, metrics, epoch=epoch)

    def _windows(self) -> Iterator[Item]:
        self._means.is_said = True
        for column, source in MEANS.items():
            remark = "Of the last steps before the line, as many as log_processor's window_size."
            yield Meaning(column, source, averaged_over_steps=ENGINE_WINDOW, remark=remark)

    def json(self, at: int, line: str) -> Iterator[Item]:
        """mmcv counts `iter` within the epoch there, unless it trains by iterations; mmengine has a `step` of all."""
        if '"loss' not in line and '"grad_norm"' not in line:
            return
        numbers = ((name, number(text)) for name, text in _FIELD.findall(line))
        places = {name: value for name, value in numbers if value is not None and 0 <= value < LARGEST_STEP}
        epoch, i = places.get("epoch"), places.get("iter")
        if (step := places.get("step")) is None and i is not None:
            step = float(self._counted(int(epoch or 1), int(i)))
        if step is None:
            yield Unread(at, "neither a step nor an iteration")
            return
        yield from self.point(at, int(step), epoch, line, is_engine="step" in places)

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
        if _BEGIN.search(line) and self._has_points:
            self._has_points = False
            yield Restart(at, "another launch prints its environment")
        if (clip := _CLIP.search(line)) is not None:
            yield Setting(at, "max_norm", number(clip[1]), "max_norm")
        elif (no_clip := _NO_CLIP.search(line)) is not None:
            yield Setting(at, "max_norm", None, no_clip[0].partition("=")[0].strip())


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
    also=re.compile(r"grad_clip|clip_grad|nvironment info:|ystem environment:|\"env_info\""),
)
