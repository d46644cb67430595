"""verl and others with its lines: `step:12 - actor/grad_norm:0.73 - critic/grad_norm:np.float64(2.1) - …`.

A step there is one of reinforcement learning, with several updates: norm, loss and rate are means over them. Where a
critic is trained too, actor and critic are streams of their own. Lines of validation alone are no points.
"""

import math
import re
from collections.abc import Iterator

from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Meaning, Point, Unread
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

COLUMNS = {
    "actor": {
        "actor/grad_norm": "grad_norm_before_clip",
        "actor/loss": "loss",
        "actor/pg_loss": "loss",
        "actor/lr": "lr",
        "train/loss": "loss",
        "train/grad_norm": "grad_norm_before_clip",
        "train/lr": "lr",
        "grad_norm": "grad_norm_before_clip",
        "policy_loss": "loss",
        "actor_lr": "lr",
    },
    "critic": {
        "critic/grad_norm": "grad_norm_before_clip",
        "critic/vf_loss": "loss",
        "critic/loss": "loss",
        "critic/lr": "lr",
    },
}
METRICS = frozenset({"critic/score/mean", "critic/rewards/mean", "actor/entropy", "actor/entropy_loss", "actor/ppo_kl"})
MEAN = "A mean over the updates of one step, each of which is clipped by itself."

_STEP = re.compile(r"(?:step|training/global_step):(\d{1,15}) - (.*)")
_NEEDED = frozenset((*COLUMNS["actor"], *COLUMNS["critic"], *METRICS))
_PRINTED = Printed({**NAMES, "total_training_steps": "total_steps"})


def read(lines: Lines, options: Options) -> Iterator[Item]:
    alike = Alike(lines, lambda at, line: _point(at, line, "actor"))
    has_critic = has_said = False
    for at, line in lines:
        match = _STEP.search(line)
        if match is None:
            yield from _PRINTED.read(at, line)
            continue
        has_critic = has_critic or "critic/grad_norm" in dict(_fields(match[2]))
        for role in COLUMNS:
            point = _point(at, line, role)
            if point is None or (role == "critic" and not has_critic):
                continue
            if not has_said:
                has_said = True
                yield Meaning("grad_norm_before_clip", f"{role}/grad_norm", averaged_over_steps=math.nan, remark=MEAN)
            point.stream = role if has_critic else "main"
            yield point
        if ":" not in match[2]:
            yield Unread(at, "a step without a value")
        if not has_critic:
            yield from alike.after(line)


def _point(at: int, line: str, role: str) -> Point | None:
    """What a line tells of the actor or of the critic."""
    match = _STEP.search(line)
    if match is None:
        return None
    fields, columns = dict(_fields(match[2])), COLUMNS[role]
    values = {columns[name]: value for name, value in fields.items() if name in columns}
    if "actor/loss" in fields and role == "actor":
        values["loss"] = fields["actor/loss"]
    metrics = {name: value for name, value in fields.items() if name in METRICS and role == "actor"}
    return Point(at, int(match[1]), values, metrics) if values else None


def _fields(text: str) -> Iterator[tuple[str, float]]:
    for part in text.split(" - "):
        name, _, printed = part.partition(":")
        if name in _NEEDED and (value := number(printed)) is not None:
            yield name, value


FORMAT = LineFormat(
    name="verl",
    title="verl console",
    source="verl 0.1 to 0.6, verl/utils/logger/aggregate_logger.py: concat_dict_to_str",
    pattern=re.compile(r"step:\d+ - [\w/@.\-]+:"),
    read=read,
    also=re.compile(r"'grad_clip': |'clip_grad': |total_training_steps"),
)
