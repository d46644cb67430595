"""Any line that names a gradient norm or loss scale and gives its number: `grad_norm=1.2`, `grad norm: 1.2`.

The fallback for programs nobody wrote a format for. A step is looked for in the same line: by a name, else by a
fraction (`[100/5000]`, a progress bar's `100/5000`; see `_fractions.py`).
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.formats._fractions import Fraction, fractions_of, is_sure, numbered
from gradsight_server.importers.items import Item, Point, Unread
from gradsight_server.importers.names import chosen, column_of, is_of_evaluation, words_of
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import Printed

OF_CONFIGURATION = {"max_norm", "lr"}
"""Alone in a line they are no point."""

MAX_PLANS = 1_000
KEYS = ("step", "epoch", "rank", "wall_time_s")
MISSING: Any = object()

_VALUE = (
    r"(?:[+-]?(?:\d{1,3}(?:,\d{3}){1,8}(?:\.\d{1,40})?|\d{1,320}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,5})?(?:[KkMB%](?![A-Za-z]))?"
    r"|[+-]?(?:nan|inf(?:inity)?|NaN|Inf(?:inity)?|True|False)(?![A-Za-z])"
    r"|(?:torch\.|np\.|numpy\.|jnp\.)?(?:tensor|float\d{0,2}|[Aa]rray)\([^()]{1,80}\))"
)
_GIVEN = re.compile(
    # Spelled out rather than IGNORECASE, which would keep the search from leaping to the first letters.
    r"(?:(?:[Gg]rad(?:ient)?s?|GRAD)[\w./-]{0,24}[ ]?(?:[Nn]orm|NORM)|[Gg]norm|[Tt]otal_norm|[Nn]orm[_ /][Gg]rad"
    r"|(?:[Ll]oss|[Gg]rad|LOSS)[_ ]?(?:[Ss]caler?|SCALE))"
    r"[\w./-]{0,16}[\"']?\s{0,4}[:=|(]?\s{0,12}[\"']?" + _VALUE
)
_LOSS = re.compile(r"[Ll]oss|LOSS")
"""On a line of its own beside that of the norm."""
_GIVES = re.compile(r"[\"']?\s{0,4}[:=|]\s{0,12}[\"']?(" + _VALUE + ")")
"""What stands behind a name; the name is looked for backwards from there, which takes no time to speak of."""
_NAME = re.compile(r"(?<![\w.])[A-Za-z_][\w./@%-]*(?: [\w./@%-]+){0,3}\Z")
MAX_NAME = 100
_BARE = re.compile(r"(?<![\w.])([A-Za-z_][\w./-]{0,60}) {1,12}(" + _VALUE + r")(?![\w.])")
_STEP = re.compile(
    r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?|it|update)s?\b\s{0,4}[#:=\[(]{0,2}\s{0,12}(\d[\d,]{0,15})", re.IGNORECASE
)
_BEFORE = re.compile(r"(/|[A-Za-z]+)[\s_.-]{0,4}\Z")
_OF_NO_STEP = {
    "skip", "skipped", "remaining", "left", "per", "time", "total", "max", "num", "number", "of", "warmup",
}  # fmt: skip
"""Words that make a count or a duration of a step's name: `time per step`, `skipped iterations`, `max steps`."""
_STEP_ALL_THE_SAME = {("num", "updates"), ("num", "update"), ("global", "step", "max", "steps")}
_UNIT = re.compile(r"[A-Za-z%]| (?:[mun]?s|secs?|seconds?|mins?|minutes?|h|hours?)\b(?!\s{0,4}[:=])")
"""Behind a number that is no step."""
_EPOCH = re.compile(r"\bep(?:och)?\b\W{0,4}(\d{1,9}(?:\.\d+)?)", re.IGNORECASE)
_HEADER = re.compile(
    r"[\s=*#-]{0,20}ep(?:och)?\W{0,4}(\d{1,9})(?:\s{0,4}(?:/|of)\s{0,4}\d{1,9})?[\s:=*#-]{0,80}", re.IGNORECASE
)
"""A line of its own before the lines of an epoch, as Keras prints it."""
_STEP_HEADER = re.compile(
    r"(?:.{0,160}?(?:^|\s))?(?:\[epoch=(?P<epoch>\d{1,9})(?:/\d{1,9})?\])?"
    r"\[(?:step|iter(?:ation)?|batch)[ =:]{1,2}(?P<step>\d{1,15})(?:/(?P<total>\d{1,15}))?"
    r"(?:, ?epoch[ =:]\d{1,9})?\]:?\s{0,8}"
    r"|[\s=*#-]{0,20}(?:[Ss]tep|[Ii]teration)[ =:#]{1,2}(?P<alone>\d{1,15})(?: ?/ ?\d{1,15})?[\s:=*#-]{0,80}"
)
"""A line of its own before the lines of a step, as Composer and OLMo print it."""
_RANK = re.compile(r"\[?\b(?:rank|RANK|Rank)[ _:=]?(\d{1,6})\b")
_LABEL = re.compile(r"\s{0,4}(\d{1,5}): ")
"""What `srun --label` writes before each line: a rank, if several say the same step; else it may count anything."""
_SUMMARY = re.compile(r"(?:\([^)]{1,80}\) ?)?wandb:\s")
"""W&B's own lines: what a run ended with, once more."""
_NUMBER = re.compile(r"(?<![\w.])(" + _VALUE + ")")
_EVALUATION = re.compile(
    r"(?:(?!step|iter|epoch|loss)[^=]){0,120}?\b(?:eval(?:uation)?|val(?:idation)?)\s{0,4}(?:[\]:|-]|step|iter|epoch)",
    re.IGNORECASE,
)
"""At a line's beginning, or behind what a logger puts there: nothing in the line is of a training step."""
_PRINTED = Printed()


def read(lines: Lines, options: Options) -> Iterator[Item]:
    return _read(lines, options, _GIVEN.search)


def with_columns(options: Options) -> LineFormat:
    """The format for a log in which a person names the columns: lines that have one of them."""
    pattern = named(*(theirs for _, theirs in options.columns))
    return replace(FORMAT, pattern=pattern, words=(), read=lambda lines, options: _read(lines, options, pattern.search))


def named(*names: str) -> re.Pattern[str]:
    """One of these names, whatever it is, and its number."""
    anyone = "|".join(map(re.escape, names))
    return re.compile(rf"(?<![\w.])(?:{anyone})[\"']?\s{{0,4}}[:=|(]?\s{{0,12}}[\"']?(" + _VALUE + ")")


def _read(lines: Lines, options: Options, is_given: Callable[[str], object]) -> Iterator[Item]:
    return numbered(_found(lines, options, is_given))


def _found(lines: Lines, options: Options, is_given: Callable[[str], object]) -> Iterator[tuple[Item, list[Fraction]]]:
    """Items, and the fractions of which one may be the step of a point without a number."""
    own = {theirs: ours for ours, theirs in options.columns}
    plans: dict[tuple[str, ...], _Plan | None] = {}
    header_epoch: float | None = None
    header = _Header()
    waiting: Point | None = None
    """The loss of a step of which a norm may come yet."""
    newest_step: float | None = None
    """Of the newest norm."""
    labels = _Labels()
    alike = Alike(lines, lambda at, line: _point(at, line, own))
    for at, line in lines:
        if _SUMMARY.match(line) is not None:
            continue
        parts = _NUMBER.split(line)
        skeleton = tuple(parts[::2])
        plan = plans.get(skeleton, MISSING)
        if plan is MISSING:
            if len(plans) >= MAX_PLANS:
                plans.clear()
            is_read = is_given(line) or _LOSS.search(line)
            plan = plans[skeleton] = _plan(line, own, is_aside=not is_given(line)) if is_read else None
        if plan is not None and plan.is_aside:
            if (loss := plan.loss(at, parts[1::2], header)) is not None:
                if loss.step == newest_step:
                    yield loss, []
                else:
                    waiting = loss
                continue
            plan = None
        if plan is None:
            if (of_epoch := _HEADER.fullmatch(line)) is not None:
                header_epoch = float(of_epoch[1])
            elif (of_step := _STEP_HEADER.fullmatch(line)) is not None:
                header = _Header.of(of_step)
            yield from ((item, []) for item in _PRINTED.read(at, line))
            continue
        if plan.has_decimal_comma(parts):
            yield Unread(at, "a number with a comma in it that is no thousands' separator"), []
            continue
        point = plan.point(at, parts[1::2])
        if not point.values.keys() - OF_CONFIGURATION:
            yield from ((item, []) for item in _PRINTED.read(at, line))
            continue
        if plan.label is not None:
            point.rank = labels.rank(number(parts[1::2][plan.label]), point.step)
        if point.epoch is None:
            point.epoch = header_epoch
        fractions: list[Fraction] = []
        if point.step is None:
            of_epoch = _EPOCH.search(line)
            fractions = fractions_of(line, -1 if of_epoch is None else of_epoch.start(1))
            if not is_sure(fractions) and (step := header.step_of(point)) is not None:
                point.step, fractions = step, []
        if waiting is not None and waiting.step == point.step:
            yield waiting, []
        waiting, newest_step = None, point.step
        yield point, fractions
        if header_epoch is None and plan.is_whole:
            for points in alike.after(line):
                newest_step = None if points.step is None else float(points.step[-1])
                yield points, []


def _point(at: int, line: str, own: Mapping[str, str]) -> Point:
    return _plan(line, own).point(at, _NUMBER.split(line)[1::2])


@dataclass(slots=True)
class _Header:
    """A step that the lines below are of, as long as none of them says something once more."""

    step: float | None = None
    told: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, match: re.Match[str]) -> "_Header":
        step = float(match["step"] or match["alone"])
        is_within_epoch = match["epoch"] is not None and match["total"] is not None
        return cls(float(match["epoch"]) * float(match["total"]) + step if is_within_epoch else step)

    def step_of(self, point: Point) -> float | None:
        if not self.told.isdisjoint(point.values):
            self.step = None
        self.told.update(point.values)
        return self.step


@dataclass(slots=True)
class _Labels:
    """Whether a number before each line is a rank's: once two of them have told of one step."""

    step: float | None = None
    """The newest of label 0."""
    are_ranks: bool = False

    def rank(self, label: float | None, step: float | None) -> int:
        if not label:
            self.step = step
            return 0
        self.are_ranks = self.are_ranks or (step is not None and step == self.step)
        return int(label) if self.are_ranks else 0


@dataclass(slots=True)
class _Plan:
    """Which numbers of a line are what: the same for all lines that differ in their numbers only."""

    columns: list[tuple[int, str]]
    """(place among the line's numbers, our column)"""
    metrics: list[tuple[int, str]]
    step: int | None = None
    epoch: int | None = None
    rank: int | None = None
    wall_time_s: int | None = None
    label: int | None = None
    fixed_rank: int = 0
    """Where it is part of a word: `rank3`."""
    is_aside: bool = False
    """The line has no norm, and yet a loss."""

    @property
    def is_whole(self) -> bool:
        """Whether it is all there is to such a line."""
        return self.step is not None and self.rank is None and self.label is None

    def has_decimal_comma(self, parts: list[str]) -> bool:
        """Whether a value is like `12,5` or `0,125`: `parts` are the line's texts and numbers in turn."""
        texts = ((parts[2 * place + 1], parts[2 * place + 2]) for place, _ in self.columns)
        return any(text.startswith("0,") or (after == "," and text.replace(",", "").isdigit()) for text, after in texts)

    def point(self, at: int, numbers: list[str]) -> Point:
        point = Point(at, None, rank=self.fixed_rank)
        for place, column in self.columns:
            if (value := number(numbers[place])) is not None:
                point.values[column] = value
        for place, name in self.metrics:
            if (value := number(numbers[place])) is not None:
                point.metrics[name] = value
        if self.step is not None:
            point.step = number(numbers[self.step])
        if self.epoch is not None:
            point.epoch = number(numbers[self.epoch])
        if self.wall_time_s is not None:
            point.wall_time_s = number(numbers[self.wall_time_s])
        if self.rank is not None and 0 <= (rank := number(numbers[self.rank]) or 0) < 2**31:
            point.rank = int(rank)
        return point

    def loss(self, at: int, numbers: list[str], header: _Header) -> Point | None:
        """The loss that a line beside that of the norm tells of a step; None where it names no step."""
        point = self.point(at, numbers)
        if "loss" not in point.values or point.rank or self.label is not None:
            return None
        if point.step is None and header.told.isdisjoint(point.values):
            point.step = header.step_of(point)
        return None if point.step is None else point


def _plan(line: str, own: Mapping[str, str], *, is_aside: bool = False) -> _Plan:
    place_of = {match.start(): i for i, match in enumerate(_NUMBER.finditer(line))}
    found = _pairs(line, own)
    pairs = {name: place_of[start] for name, (start, _) in found.items() if start in place_of}
    taken = set(own.values())
    no_steps = {name for name, (start, text) in found.items() if not _may_be_step(line, name, start, text)}
    chosen_columns = chosen((name for name in pairs if name not in no_steps), only_sure=True).items()
    columns = {theirs: ours for ours, theirs in chosen_columns if ours not in taken} | dict(own)
    plan = _Plan([], [], is_aside=is_aside)
    is_evaluation = _EVALUATION.match(line) is not None and not own
    for name, place in pairs.items():
        column = columns.get(name)
        if column is None or (is_evaluation and column not in KEYS):
            plan.metrics.append((place, name))
        elif column in KEYS:
            setattr(plan, column, place)
        else:
            plan.columns.append((place, column))
    if plan.step is None:
        steps = (step for step in _STEP.finditer(line) if not _is_of_no_step(line, step.start(), step.end()))
        plan.step = next((place_of[step.start(1)] for step in steps if step.start(1) in place_of), None)
    if plan.epoch is None and (epoch := _EPOCH.search(line)) is not None:
        plan.epoch = place_of.get(epoch.start(1))
    if plan.rank is None and (rank := _RANK.search(line)) is not None:
        plan.rank = place_of.get(rank.start(1))
        if plan.rank is None:
            plan.fixed_rank = int(rank[1])
    elif plan.rank is None and (label := _LABEL.match(line)) is not None:
        plan.label = place_of.get(label.start(1))
    return plan


def _may_be_step(line: str, name: str, start: int, text: str) -> bool:
    """Of a name that stands for no step: yes."""
    if column_of(name) != "step":
        return True
    words = words_of(name)
    is_count = bool(_OF_NO_STEP.intersection(words[:-1])) and words not in _STEP_ALL_THE_SAME
    return not (is_count or text.endswith("%") or _UNIT.match(line, start + len(text)))


def _is_of_no_step(line: str, start: int, end: int) -> bool:
    """Whether what stands around a step's name and number makes something else of it."""
    before = _BEFORE.search(line, max(0, start - 24), start)
    return (before is not None and (before[1] == "/" or before[1].lower() in _OF_NO_STEP)) or (
        _UNIT.match(line, end) is not None
    )


def pairs_of(line: str) -> dict[str, str]:
    """{name: value} as they stand in a line; of several of one name the first."""
    return {name: value for name, (_, value) in _pairs(line, ()).items()}


def bare_names(line: str) -> list[str]:
    """Words right before a number, whatever they are; each once, in order."""
    return list(dict.fromkeys(match[1] for match in _BARE.finditer(line)))


def _pairs(line: str, own: Container[str]) -> dict[str, tuple[int, str]]:
    """{name: (where its value begins, the value)}"""
    found: dict[str, tuple[int, str]] = {}
    end = 0
    for match in _GIVES.finditer(line):
        name = _NAME.search(line[max(end, match.start() - MAX_NAME) : match.start()])
        end = match.end()
        if name is not None:
            found.setdefault(_known_part(name[0], own), (match.start(1), match[1]))
    for match in _BARE.finditer(line):
        bare = match[1]
        if column_of(bare) is None and bare not in own:
            whole = _NAME.search(line[max(0, match.end(1) - MAX_NAME) : match.end(1)])  # `grad norm 1.2`
            bare = _known_part(whole[0], own) if whole is not None else bare
        elif column_of(bare) == "step" and bare not in own and _is_of_no_step(line, match.start(), match.end()):
            continue
        if column_of(bare) is not None or bare in own:
            found.setdefault(bare, (match.start(2), match[2]))
    return found


def _known_part(name: str, own: Container[str]) -> str:
    """Without the words before it that belong to something else: `INFO 3 grad norm` is `grad norm`."""
    if " " not in name or name in own or column_of(name) is not None:
        return name
    parts = name.split(" ")
    for first in range(1, len(parts)):
        if (last := " ".join(parts[first:])) in own:
            return last
    for num_words in range(min(2, len(parts) - 1), 0, -1):
        last, before = " ".join(parts[-num_words:]), parts[-num_words - 1]
        column = column_of(last)
        # `encoder grad norm` is the norm of a part, `100 grad norm` is not.
        if column == "step" and _OF_NO_STEP.intersection(words_of(before)[-1:]):
            continue
        if column == "loss" and is_of_evaluation(before):
            continue
        if column is not None and (column != "grad_norm_before_clip" or not words_of(before) or before[-1].isdigit()):
            return last
    return name


FORMAT = LineFormat(
    name="key_value",
    title="Lines of names and numbers",
    source="any program that prints its gradient norm by name; names are told by importers/names.py, or --map",
    pattern=_GIVEN,
    read=read,
    weight=0.2,
    only_matching=False,  # what a line has in it is looked at once for all lines of its kind
    words=(
        "norm",
        "cale",
        "oss",
        "OSS",
        "lip",
        "NORM",
        "CALE",
        "LIP",
        "Norm",
        "f16",
        "fp16",
        "poch",
        "POCH",
        "[step",
        "[batch",
        "[iter",
        "Step ",
        "Iteration ",
    ),
)
