"""Logs that count the skipped steps between two lines rather than name them: each such step as a point of its own.

How often and how closely steps are skipped can only be judged among all steps. Logs without any skip stay as they are.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gradsight_server.importers.items import Item, Meaning, Point

MAX_WINDOW = 2_000
"""Of a longer window only the skipped steps become points."""


def between(
    line: int, before: int, step: int, num_skipped: int, *, is_last_skipped: bool = False, stream: str = "main"
) -> Iterator[Point]:
    """The steps after `before` and up to `step`, this one not among them.

    Which of them were skipped the log does not say, so that these are spread evenly: no streak is made up.

    Args:
        num_skipped: Of the whole window, `step` itself among them.
        is_last_skipped: Whether `step` is one of them.
    """
    num_others = step - before - 1
    left = min(num_skipped - is_last_skipped, num_others, MAX_WINDOW)
    skipped = {int((i + 0.5) * num_others / left) for i in range(left)}
    for i in range(num_others) if num_others <= MAX_WINDOW else sorted(skipped)[:MAX_WINDOW]:
        is_skipped = i in skipped
        yield Point(
            line=line,
            step=before + 1 + i,
            values={"skipped": float(is_skipped)},
            stream=stream,
            skip_reason="overflow" if is_skipped else None,
        )


def meaning(source: str) -> Meaning:
    """What to say once where `between` had to choose."""
    return Meaning(
        column="skipped",
        source=source,
        remark="The log counts the skipped steps between two lines without saying which; they are spread evenly.",
    )


PLACED = Meaning(
    "skipped",
    "skipped steps",
    remark="They have no number of their own in this log and are placed by their time of day, else evenly.",
)


class Between:
    """Skipped steps that a log tells of between two lines with a number, without a number of their own.

    They wait for the next such line, and get numbers by their time of day, else evenly; from the first of them on each
    applied step is a point, too.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Point, float | None]] = []
        self._step: int | None = None
        self._time_s: float | None = None
        self._has_skips = self._has_said = False

    @property
    def is_idle(self) -> bool:
        """Whether there has been no skip so far."""
        return not self._has_skips

    def skipped(self, point: Point, time_s: float | None = None) -> Iterator[Point]:
        """Takes the point of a skipped step; gives those that have waited for too long."""
        self._waiting.append((point, time_s))
        self._has_skips = True
        if len(self._waiting) > MAX_WINDOW:
            yield from self.unnumbered()

    def until(
        self,
        step: float | None,
        time_s: float | None = None,
        *,
        line: int,
        step_s: float | None = None,
        before: int | None = None,
    ) -> Iterator[Item]:
        """The points before the one of a line.

        Args:
            step: The line's; None where it has none.
            step_s: How long a step takes, where the line tells.
            before: The last step that the line does not speak of, where it tells.
        """
        if step is None or not 0 <= step < 1e15:
            yield from self.unnumbered()
            return
        end = int(step)
        first = next((time for _, time in self._waiting if time is not None), None)
        if self._step is not None and self._step < end:
            begin, begin_s = self._step, self._time_s
        elif before is not None and 0 <= before < end:
            begin = before
            begin_s = time_s - (end - begin) * step_s if step_s and time_s is not None else None
        elif step_s and time_s is not None and first is not None:
            num_steps = max(len(self._waiting), round(min((time_s - first) / step_s, MAX_WINDOW)))
            begin = max(0, end - num_steps - 1)
            begin_s = time_s - (end - begin) * step_s
        else:
            begin, begin_s = max(0, end - len(self._waiting) - 1), None
        if self._waiting and not self._has_said:
            self._has_said = True
            yield PLACED
        if self._has_skips:
            yield from self._numbered(begin, begin_s, end, time_s, line)
        self._step, self._time_s = end, time_s

    def _numbered(self, begin: int, begin_s: float | None, end: int, end_s: float | None, line: int) -> Iterator[Point]:
        waiting, self._waiting = self._waiting, []
        lasts = None if begin_s is None or end_s is None or end_s <= begin_s else end_s - begin_s
        guesses = [
            None
            if lasts is None or begin_s is None or time is None
            else begin + (time - begin_s) / lasts * (end - begin)
            for _, time in waiting
        ]
        steps = placed(begin, end - 1, guesses)
        for point, _ in waiting[len(steps) :]:
            yield point
        at = dict(zip(steps, (point for point, _ in waiting), strict=False))
        for number in range(begin + 1, end) if end - begin <= MAX_WINDOW else steps:
            skipped = at.get(number)
            if skipped is None:
                yield Point(line, number, {"skipped": 0.0})
            else:
                skipped.step = number
                yield skipped

    def unnumbered(self) -> Iterator[Point]:
        """Those that no line with a number follows."""
        waiting, self._waiting = self._waiting, []
        for point, _ in waiting:
            yield point


def placed(before: int, step: int, guesses: Sequence[float | None]) -> list[int]:
    """A step of its own for each skip, after `before` and up to `step`, in order and near its guess.

    Without a guess they are spread evenly between their neighbours. No more skips than steps are placed.
    """
    num = min(len(guesses), step - before)
    known = [(i, guess) for i, guess in enumerate(guesses[:num]) if guess is not None]
    ends = [(-1, float(before)), *known, (num, step + 1.0)]
    filled = np.interp(np.arange(num), [i for i, _ in ends], [guess for _, guess in ends])
    steps = np.clip(np.round(filled).astype(np.int64), before + 1, step).tolist()
    for i in range(1, num):
        steps[i] = max(steps[i], steps[i - 1] + 1)
    for i in range(num - 1, -1, -1):
        steps[i] = min(steps[i], step - (num - 1 - i))
    return [int(at) for at in steps]
