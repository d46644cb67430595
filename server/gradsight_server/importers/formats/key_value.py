"""Any line that names a gradient norm or loss scale and gives its number: `grad_norm=1.2`, `grad norm: 1.2`.

The fallback for programs nobody wrote a format for. A step is looked for in the same line: by a name, else by a
fraction (`[100/5000]`, a progress bar's `100/5000`).
"""

import re
from collections.abc import Callable, Container, Iterator
from dataclasses import replace

from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Item, Point
from gradsight_server.importers.names import chosen, column_of, words_of
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import Printed

OF_CONFIGURATION = {"max_norm", "lr"}
"""Alone in a line they are no point."""

_VALUE = (
    r"(?:[\w.]{0,24}(?:tensor|float\d*|array)\([^()]{1,80}\)"
    r"|[+-]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[KkMB%](?![A-Za-z]))?"
    r"|[+-]?(?:nan|inf(?:inity)?|NaN|Inf(?:inity)?|True|False)(?![A-Za-z]))"
)
_GIVEN = re.compile(
    r"(?:grad(?:ient)?s?[\w./-]{0,24}[ ]?norm|gnorm|total_norm|norm[_ ]grad|(?:loss|grad)[_ ]?scaler?)"
    r"[\w./-]{0,16}[\"']?\s{0,4}[:=|(]?\s{0,4}[\"']?" + _VALUE,
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"(?<![\w.])([A-Za-z_][\w./@%-]{0,60}(?: [\w./@%-]{1,40}){0,3}?)[\"']?\s{0,4}[:=|]\s{0,4}[\"']?(" + _VALUE + ")"
)
_BARE = re.compile(r"(?<![\w.])([A-Za-z_][\w./-]{0,60}) {1,4}(" + _VALUE + r")(?![\w.])")
_STEP = re.compile(
    r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?|it|update)s?\b\s{0,4}[#:=\[(]{0,2}\s{0,4}(\d[\d,]{0,15})", re.IGNORECASE
)
_FRACTION = re.compile(r"(?<![\d/.])(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})(?![\d/.])")
_EPOCH = re.compile(r"\bep(?:och)?\b\W{0,4}(\d{1,9}(?:\.\d+)?)", re.IGNORECASE)
_RANK = re.compile(r"\[?\b(?:rank|RANK|Rank)[ _:=]?(\d{1,6})\b")
_PRINTED = Printed()


def read(lines: Lines, options: Options) -> Iterator[Item]:
    return _read(lines, options, _GIVEN.search)


def with_columns(options: Options) -> LineFormat:
    """The format for a log in which a person names the columns: lines that have one of them."""
    names = "|".join(re.escape(theirs) for _, theirs in options.columns)
    pattern = re.compile(rf"(?<![\w.])(?:{names})[\"']?\s{{0,4}}[:=|(]?\s{{0,4}}[\"']?" + _VALUE)
    return replace(FORMAT, pattern=pattern, read=lambda lines, options: _read(lines, options, pattern.search))


def _read(lines: Lines, options: Options, is_given: Callable[[str], object]) -> Iterator[Item]:
    own = {theirs: ours for ours, theirs in options.columns}
    first_epoch: float | None = None
    for at, line in lines:
        if not is_given(line):
            yield from _PRINTED.read(at, line)
            continue
        point = _point(at, line, own)
        if not point.values.keys() - OF_CONFIGURATION:
            yield from _PRINTED.read(at, line)
            continue
        if point.step is None:
            if first_epoch is None:
                first_epoch = point.epoch
            point.step = _counted(line, point.epoch, first_epoch)
        yield point


def pairs_of(line: str, own: Container[str] = ()) -> dict[str, str]:
    """{name: value} as they stand in a line; of several of one name the first."""
    found: dict[str, str] = {}
    for match in _PAIR.finditer(line):
        found.setdefault(_known_part(match[1]), match[2])
    for match in _BARE.finditer(line):
        if column_of(match[1]) is not None or match[1] in own:
            found.setdefault(match[1], match[2])
    return found


def _known_part(name: str) -> str:
    """Without the words before it that belong to something else: `INFO 3 grad norm` is `grad norm`."""
    if " " not in name or column_of(name) is not None:
        return name
    parts = name.split(" ")
    for num_words in range(min(2, len(parts) - 1), 0, -1):
        last, before = " ".join(parts[-num_words:]), parts[-num_words - 1]
        column = column_of(last)
        # `encoder grad norm` is the norm of a part, `100 grad norm` is not.
        if column is not None and (column != "grad_norm_before_clip" or not words_of(before) or before[-1].isdigit()):
            return last
    return name


def _point(at: int, line: str, own: dict[str, str]) -> Point:
    point = Point(at, None)
    pairs = pairs_of(line, own)
    columns = {theirs: ours for ours, theirs in chosen(pairs, only_sure=True).items() if ours not in own.values()} | own
    for name, text in pairs.items():
        value = number(text)
        if value is None:
            continue
        match columns.get(name):
            case "step":
                point.step = value
            case "epoch":
                point.epoch = value
            case "rank":
                point.rank = int(value) if 0 <= value < 2**31 else 0
            case "wall_time_s":
                point.wall_time_s = value
            case None:
                point.metrics[name] = value
            case column:
                point.values[column] = value
    if point.step is None and (step := _STEP.search(line)) is not None:
        point.step = number(step[1].rstrip(","))
    if point.epoch is None and (epoch := _EPOCH.search(line)) is not None:
        point.epoch = number(epoch[1])
    if not point.rank and (rank := _RANK.search(line)) is not None:
        point.rank = int(rank[1])
    return point


def _counted(line: str, epoch: float | None, first_epoch: float | None) -> float | None:
    """The step by the line's last fraction; one that counts within an epoch is counted through."""
    fractions = [(int(match[1]), int(match[2])) for match in _FRACTION.finditer(line)]
    fractions = [(done, total) for done, total in fractions if done <= total and total > 1]
    if not fractions:
        return None
    done, total = fractions[-1]
    if epoch is None or epoch == done or not epoch.is_integer():
        return float(done)
    begun = epoch - (1 if first_epoch is not None and first_epoch >= 1 else 0)
    return max(begun, 0.0) * total + done


FORMAT = LineFormat(
    name="key_value",
    title="Lines of names and numbers",
    source="any program that prints its gradient norm by name; names are told by importers/names.py, or --map",
    pattern=_GIVEN,
    read=read,
    weight=0.2,
    also=re.compile(r"clip|max_(?:grad_|gradient_)?norm|\b(?:fp16|bf16)\b", re.IGNORECASE),
)
