"""The time of day that a line begins with, for the distance between two lines: no zone is known."""

import re
from datetime import datetime

_DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[,.]\d{3})?")


def time_s(line: str) -> float | None:
    """Seconds, from an arbitrary moment on; None where the line has none."""
    match = _DATE.search(line, 0, 120)
    try:
        moment = None if match is None else datetime.fromisoformat(match[0])
    except ValueError:
        return None
    return None if moment is None else (moment - datetime.min).total_seconds()
