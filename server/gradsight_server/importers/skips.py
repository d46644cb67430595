"""Logs that count the skipped steps between two lines rather than name them: each such step as a point of its own.

How often and how closely steps are skipped can only be judged among all steps. Logs without any skip stay as they are.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gradsight_server.importers.items import Meaning, Point

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
