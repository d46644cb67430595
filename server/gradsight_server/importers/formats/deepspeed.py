"""DeepSpeed's progress lines (`step=10, skipped=6, lr=[…], mom=[…]`) and its lines about overflows, old and new.

Only progress lines have a number, and they count: the overflows between two of them are placed by their time of day,
else evenly, and the steps between them were applied. Of several ranks that all speak of one overflow one is believed.
Where two engines train in one process (an actor and a critic), the first to print a step is `engine-1`, the second
`engine-2`, and an overflow belongs to the one whose scale it has and whose count rises.
"""

import re
from collections.abc import Iterator

from gradsight_server.importers import skips
from gradsight_server.importers.clock import time_s
from gradsight_server.importers.format import LineFormat, Lines, Options
from gradsight_server.importers.formats._deepspeed import (
    Engine,
    Overflow,
    Progress,
    after_last,
    guess,
    is_copy,
    shared,
)
from gradsight_server.importers.items import Item, Point, Setting
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import NAMES, Printed

MAX_WAITING = 1_000
"""So many overflows without a progress line are given without waiting on."""

_LINE = re.compile(
    r"step=(?P<step>\d{1,15}), skipped=(?P<skipped>\d{1,15})(?:, lr=[\[(]*(?P<lr>[^,\])]+))?"
    r"|Attempted loss +scale: (?P<scale>[\d.e+]+), (?:reducing to (?P<after>[\d.e+]+)|but hysteresis)"
    r"|Grad overflow on iteration\D{0,6}(?P<iteration>\d{1,15})"
    r"|Reducing dynamic loss scale from (?P<at>[\d.e+]+) to (?P<to>[\d.e+]+)"
)
_RANK = re.compile(r"Rank (\d+)\]? ")
_SCALER = re.compile(r"'init_scale': ([\d.e+]+), 'scale_window': (\d+)")
_PRINTED = Printed({**NAMES, "world_size": "world_size", "steps_per_print": "steps_per_print"})


def read(lines: Lines, options: Options) -> Iterator[Item]:
    """Overflows wait for the next progress line, which counts them."""
    reader = _Reader()
    for at, line in lines:
        match = _LINE.search(line)
        if match is None:
            yield from reader.configuration(at, line)
        elif match["step"] is not None:
            yield from reader.progress(at, line, match)
        else:
            reader.overflow(at, line, match)
            if reader.has_waited_enough:
                yield from reader.end()
    yield from reader.end()


class _Reader:
    def __init__(self) -> None:
        self._overflows: list[Overflow] = []
        self._group: list[Progress] = []
        """Progress lines of one step: one an engine."""
        self._engines: list[Engine] = []
        self._interval: int | None = None
        self._rank: str | None = None
        self._iteration: int | None = None
        self._has_said_placing = False

    @property
    def has_waited_enough(self) -> bool:
        return len(self._overflows) > MAX_WAITING

    # What the lines say

    def configuration(self, at: int, line: str) -> Iterator[Item]:
        if (scaler := _SCALER.search(line)) is not None:
            text = f"dynamic(init_scale={float(scaler[1])!r}, growth_interval={scaler[2]})"
            yield Setting(at, "scaler", text, "dynamic_loss_scale_args")
            yield Setting(at, "growth_interval", float(scaler[2]), "scale_window")
        for setting in _PRINTED.read(at, line):
            if setting.name != "steps_per_print":
                yield setting
            elif isinstance(setting.value, float) and 1 <= setting.value <= 1e9:
                self._interval = int(setting.value)

    def overflow(self, at: int, line: str, match: re.Match[str]) -> None:
        if match["iteration"] is not None:
            if (iteration := int(match["iteration"])) != self._iteration:
                self._iteration = iteration
                self._overflows.append(Overflow(at, time_s(line), iteration=iteration))
            return
        rank = _RANK.search(line)
        if rank is not None and self._rank is None:
            self._rank = rank[1]
        scale, after = number(match["scale"] or match["at"]), number(match["after"] or match["to"])
        last = self._overflows[-1] if self._overflows else None
        if self._iteration is not None:  # said of that iteration, by one rank or another
            if last is not None and last.scale is None:
                last.scale, last.after = scale, after
            return
        if match["at"] is not None or (rank is not None and rank[1] != self._rank):
            return
        found = Overflow(at, time_s(line), scale, scale if after is None else after)
        if rank is None and last is not None and is_copy(found, last):
            return
        self._overflows.append(found)

    def progress(self, at: int, line: str, match: re.Match[str]) -> Iterator[Item]:
        found = Progress(at, time_s(line), int(match["step"]), int(match["skipped"]), number(match["lr"]))
        if self._group and self._group[0].step != found.step:
            yield from self._close()
        self._group.append(found)
        if found.step and len(self._group) == len(self._engines):
            yield from self._close()

    # What they mean

    def _close(self) -> Iterator[Item]:
        """Each engine has printed this step."""
        group, self._group = self._group, []
        while len(self._engines) < len(group) and (group[0].step or not self._engines):
            is_only = not self._engines and (len(group) == 1 or not group[0].step)
            self._engines.append(Engine("main" if is_only else f"engine-{len(self._engines) + 1}"))
        overflows = [overflow for overflow in self._overflows if overflow.line < group[-1].line]
        self._overflows = self._overflows[len(overflows) :]
        pairs = list(zip(self._engines, group, strict=False))
        wanted = [self._num_new(engine, progress, len(overflows)) for engine, progress in pairs]
        shares = shared([engine for engine, _ in pairs], overflows, wanted)
        for (engine, progress), share, num_skipped in zip(pairs, shares, wanted, strict=True):
            yield from self._window(engine, progress, share, num_skipped)

    def _num_new(self, engine: Engine, progress: Progress, num_overflows: int) -> int:
        """How many steps were skipped since the engine's last progress line."""
        if progress.step < engine.step or progress.skipped < engine.skipped:
            engine.step = engine.skipped = 0
            engine.time_s = None
        is_resumed = engine.step == 0 and progress.step > (self._interval or progress.step)
        if is_resumed:
            assert self._interval is not None
            engine.step = progress.step - self._interval
        return min(progress.skipped, num_overflows) if is_resumed else progress.skipped - engine.skipped

    def _window(
        self, engine: Engine, progress: Progress, overflows: list[Overflow], num_skipped: int
    ) -> Iterator[Item]:
        before, step = engine.step, progress.step
        overflows = overflows[: max(num_skipped, 0)]
        guesses = [guess(overflow, engine, progress, overflows[0]) for overflow in overflows]
        unknown = [Overflow(progress.line, None) for _ in range(min(num_skipped, skips.MAX_WINDOW) - len(overflows))]
        steps = skips.placed(before, step, guesses + [None] * len(unknown))
        skipped = dict(zip(steps, overflows + unknown, strict=False))
        if skipped and not self._has_said_placing:
            self._has_said_placing = True
            yield skips.PLACED
        engine.has_skips = engine.has_skips or bool(skipped)
        is_short = step - before <= skips.MAX_WINDOW
        for at in (range(before + 1, step + 1) if is_short else [*steps, step]) if engine.has_skips else [step]:
            yield _point(engine, at, skipped.get(at), progress)
        if step > before and engine.time_s is not None and progress.time_s is not None:
            engine.step_s = (progress.time_s - engine.time_s) / (step - before)
        engine.step, engine.skipped = step, progress.skipped
        engine.time_s = progress.time_s if step else None  # the one of step 0 is of the preparations

    def end(self) -> Iterator[Item]:
        """Overflows that no progress line follows, and the applied steps between them."""
        if self._group:
            yield from self._close()
        overflows, self._overflows = self._overflows, []
        engines = self._engines or [Engine("main")]
        shares = shared(engines, overflows, [len(overflows)] * len(engines))
        for engine, share in zip(engines, shares, strict=True):
            for overflow, step in zip(share, after_last(engine, share), strict=True):
                if step is not None and step - engine.step <= skips.MAX_WINDOW:
                    for at in range(engine.step + 1, step):
                        yield _point(engine, at, None, None, line=overflow.line)
                yield _point(engine, step, overflow, None)


def _point(
    engine: Engine, step: int | None, overflow: Overflow | None, progress: Progress | None, line: int = 0
) -> Point:
    values = {} if step == 0 else {"skipped": 0.0 if overflow is None else 1.0}
    if engine.scale is not None:
        values["loss_scale"] = engine.scale
        engine.scale = None
    if overflow is not None and overflow.scale is not None:
        values["loss_scale"] = overflow.scale
        engine.scale = overflow.after
        if overflow.after is not None:
            values["loss_scale_after"] = overflow.after
    if progress is not None and progress.step == step and progress.lr is not None:
        values["lr"] = progress.lr
    if overflow is not None or progress is not None:
        line = overflow.line if overflow is not None else progress.line  # type: ignore[union-attr]  # one is there
    reason = None if overflow is None else "overflow"
    if step is not None:
        engine.step = step
    return Point(line, step, values, stream=engine.stream, skip_reason=reason)


FORMAT = LineFormat(
    name="deepspeed",
    title="DeepSpeed progress and overflow lines",
    source="DeepSpeed 0.3 to 0.18, runtime/engine.py: _report_progress, runtime/fp16/loss_scaler.py: update_scale, "
    "fused_optimizer.py and unfused_optimizer.py: _update_scale and step, zero/stage_1_and_2.py and stage3.py: step",
    pattern=re.compile(r"step=\d{1,15}, skipped=\d|Attempted loss +scale: |Grad overflow on iteration"),
    read=read,
    weight=0.2,  # stands beside lines of others that have norms
    also=re.compile(
        r"Reducing dynamic loss scale from|gradient_clipping|fp16_enabled|dynamic_loss_scale_args|_per_print"
    ),
)
