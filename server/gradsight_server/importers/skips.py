"""Logs that count skipped steps rather than name them: each step of such a window as a point of its own."""

from collections.abc import Iterator

from gradsight_server.importers.items import Meaning, Point

MAX_WINDOW = 10_000
"""Of a longer window only the skipped steps become points."""


def between(
    line: int, before: int, step: int, num_skipped: int, *, is_last_skipped: bool = False, stream: str = "main"
) -> Iterator[Point]:
    """The steps after `before` and up to `step`, this one not among them, of a window in which some were skipped.

    Which ones the log does not say, so that they are spread evenly: no streak is made up. Nothing comes of a window
    without a skipped step.

    Args:
        num_skipped: Of the whole window, `step` itself among them.
        is_last_skipped: Whether `step` is one of them.
    """
    num_others = step - before - 1
    left = min(num_skipped - is_last_skipped, num_others)
    if num_skipped <= 0 or num_others <= 0:
        return
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
