"""llm.c: `s:12 trl:9.7592 lr:0.000011 norm:3.01` in main.log, `step 1/19560 | loss 11.0 (+nanz)| norm 15.4 (+nanz)| …`.

The norm is that of the step before clipping, which llm.c does at 1.0 without printing so. The console counts steps from
1, the file from 0. `tel:` and `eval:` lines are evaluations.
"""

import re
from collections.abc import Iterator

from gradsight_server.importers.alike import Alike
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.items import Happened, Item, Meaning, Point, Unread
from gradsight_server.importers.numbers import number

_FILE = re.compile(r"s:(\d{1,15}) trl:(\S+)(?: lr:(\S+))?(?: norm:(\S+))?")
_CONSOLE = re.compile(
    r"step +(\d{1,15})/\d+ \| (?:train )?loss +([^\s|]+)(?: \([^)]*\))? ?"
    r"(?:\| norm +([^\s|]+)(?: \([^)]*\))? ?)?(?:\| lr ([^\s|]+))?(?: \| \(?([\d.]+) ms)?"
)


def read(lines: Lines, options: Options) -> Iterator[Item]:
    alike = Alike(lines, _point)
    has_said = False
    for at, line in lines:
        point = _point(at, line)
        if point is None:
            yield Happened(at, "update_skipped", line.strip()[:200])
        elif not point.values:
            match = _FILE.search(line) or _CONSOLE.search(line)
            yield Unread(at, f"{match[2][:20] if match else ''!r} is no loss")
        else:
            if not has_said and "grad_norm_before_clip" in point.values and _FILE.search(line) is not None:
                has_said = True
                yield Meaning("grad_norm_before_clip", "norm", remark="Printed with two digits after the point.")
            yield point
            yield from alike.after(line)


def _point(at: int, line: str) -> Point | None:
    if (match := _FILE.search(line)) is not None:
        step, loss, lr, norm = match.groups()
        return Point(at, int(step), _values(loss, lr, norm))
    if (match := _CONSOLE.search(line)) is None:
        return None
    step, loss, norm, lr, milliseconds = match.groups()
    values = _values(loss, lr, norm)
    if milliseconds is not None and (time := number(milliseconds)) is not None:
        values["step_time_s"] = time / 1000
    return Point(at, int(step), values)


def _values(loss: str, lr: str | None, norm: str | None) -> dict[str, float]:
    if lr is not None and norm is not None:
        try:
            return {"loss": float(loss), "lr": float(lr), "grad_norm_before_clip": float(norm)}
        except ValueError:
            pass
    texts = {"loss": loss, "lr": lr, "grad_norm_before_clip": norm}
    return {name: value for name, text in texts.items() if (value := number(text)) is not None}


FORMAT = LineFormat(
    name="llmc",
    title="llm.c log",
    source="llm.c, train_gpt2.cu: main, llmc/logger.h: logger_log_train, and train_gpt2.py, as of 2024",
    pattern=re.compile(r"s:\d+ trl:|step +\d+/\d+ \| (?:train )?loss +[^\s|]"),
    read=read,
    also=re.compile(r"skipping update due to (?:loss|grad) z-score"),
)
