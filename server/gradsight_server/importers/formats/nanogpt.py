"""build-nanogpt, nanochat, nanoGPT and their kin: `step 12 | loss: 3.1 | lr 6e-4 | norm: 0.5 | dt: 338.1ms`.

The norm is that of the step before clipping. nanochat smooths its loss and prints `lrm`, what the rate is multiplied
by; nanoGPT prints no norm at all, which is for whoever reads the points to say.
"""

import re
from collections.abc import Iterator

from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Setting, Unread
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

COLUMNS = {
    "loss": "loss",
    "train loss": "loss",
    "training loss": "loss",
    "train_loss": "loss",
    "lr": "lr",
    "learning rate": "lr",
    "norm": "grad_norm_before_clip",
    "grad norm": "grad_norm_before_clip",
    "grad_norm": "grad_norm_before_clip",
    "gnorm": "grad_norm_before_clip",
}
TIMES = frozenset({"dt", "time", "step time"})
SMOOTHED = Meaning("loss", "loss", remark="Smoothed: an exponential mean over the steps before.")

_HEAD = re.compile(
    r"(?<!per )(?:[Ss]tep|[Ii]ter(?:ation)?)[ :]+(\d{1,15})(?:/(\d{1,15}))?(?: \([\d.]+%\))?(?: {0,20}\||:|,) ?(.*)"
)
_PART = re.compile(r"([A-Za-z][A-Za-z_ ]{0,30}?)(?:: {0,4}| {1,4})([-+]?(?:[\d.]|nan|inf)\S*)", re.IGNORECASE)
_PRINTED = Printed({**NAMES, "max_iters": "total_steps", "num_iterations": "total_steps"})


def read(lines: Lines, options: Options) -> Iterator[Item]:
    alike = Alike(lines, _point)
    has_said_total = has_said_smoothed = False
    for at, line in lines:
        match = _HEAD.search(line)
        point = _point(at, line)
        if match is None or point is None:
            yield from _PRINTED.read(at, line)
            continue
        if "val loss" in point.metrics:
            continue  # an evaluation
        if not point.values:
            yield Unread(at, "a step without a value that is known")
            continue
        if match[2] is not None and not has_said_total:
            has_said_total = True
            yield Setting(at, "total_steps", float(match[2]), "step")
        if "lrm" in point.metrics and not has_said_smoothed:
            has_said_smoothed = True
            yield SMOOTHED
        yield point
        yield from alike.after(line)


def _point(at: int, line: str) -> Point | None:
    match = _HEAD.search(line)
    if match is None:
        return None
    point = Point(at, int(match[1]))
    for part in re.split(r" ?\| ?|, ", match[3]):
        _put(point.values, point.metrics, part)
    return point


def _put(values: dict[str, float], metrics: dict[str, float], part: str) -> None:
    match = _PART.match(part)
    if match is None:
        return
    name, text = match[1].lower(), match[2]
    column = COLUMNS.get(name)
    if column is not None or name in ("lrm", "val loss"):
        if (value := number(text)) is not None:
            (metrics if column is None else values)[column or name] = value
    elif name in TIMES and text.endswith("ms") and (value := number(text[:-2])) is not None:
        values["step_time_s"] = value / 1000


FORMAT = LineFormat(
    name="nanogpt",
    title="nanoGPT-like console",
    source="build-nanogpt train_gpt2.py, nanochat scripts/base_train.py, nanoGPT train.py (their print statements, "
    "2023 to 2025)",
    pattern=re.compile(
        r"te[rp](?:ation)?[ :]+\d+(?:/\d+)?(?: \([\d.]+%\))?(?: {0,20}\| ?(?:[Tt]rain\w{0,3}[ _])?[Ll]oss: |: loss )"
    ),
    read=read,
    weight=0.6,
    also=re.compile(r"grad_clip|clip_grad"),
)
