"""A log that somebody drops on the page: what it says, and runs made of it on the way if it is to be kept."""

import time
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from gradsight_server.diagnosis import StreamSteps, diagnose
from gradsight_server.errors import LogTooLongError
from gradsight_server.importers.assembly import Assembly
from gradsight_server.importers.following import Counted
from gradsight_server.importers.importing import Both, Wish, import_own, sending_of
from gradsight_server.importers.items import Happened
from gradsight_server.importers.logs import Gathering, Log, Part, log_of, read_log
from gradsight_server.importers.opening import open_bytes, opening_otherwise
from gradsight_server.importers.placing import Row, Rows
from gradsight_server.importers.reading import Source, items_of, sources_of
from gradsight_server.importers.sending import Destination, SentRun

POINTS = 64
DIGITS = 4


@dataclass(frozen=True, slots=True)
class Deadline:
    """Until when a log must have been read."""

    limit_s: float
    at_s: float

    @classmethod
    def after(cls, limit_s: float) -> "Deadline":
        return cls(limit_s, time.monotonic() + limit_s)

    def check(self) -> None:
        """
        Raises:
            LogTooLongError: it is past.
        """
        if time.monotonic() > self.at_s:
            raise LogTooLongError(
                f"The log was not read within {self.limit_s:g} s; `gradsight import` on its file has the time."
            )

    def row(self, row: Row) -> None:
        """As a sink: a document is read as a whole, and only then gives rows."""
        self.check()

    def rows(self, rows: Rows) -> None:
        self.check()

    def happened(self, run: int, attempt: int, event: Happened) -> None:
        self.check()


def answer_to(
    path: Path,
    name: str,
    wish: Wish,
    *,
    format_name: str | None,
    destination: Destination | None,
    deadline: Deadline,
    lang: str = "en",
) -> dict[str, Any]:
    """What the page is told of a log.

    Args:
        path: Where its bytes lie.
        name: What a person calls it.
        destination: Where its runs go; None where it is not to be kept.
        lang: What the diagnosis is written in.

    Raises:
        NothingToReadError: there is nothing about gradients in it; nothing was kept.
        SettingsError: there is no such format.
        LogTooLongError
    """
    source = sources_of(path, format_name, name, wish.options)[0]
    source = Source(source.path, source.format, name, identity=f"upload/{name}")

    def opened(file: Path) -> BufferedIOBase:
        return Counted(open_bytes(file), lambda num_bytes: deadline.check())

    with opening_otherwise(opened):
        log, sent = _read(source, wish, destination, deadline)
    return {
        "format": {"name": log.format_name, "title": log.format_title},
        "notes": list(log.notes),
        "kept": bool(sent),
        "runs": [_told(log, part, sent.get(part.run), lang) for part in log.parts],
    }


def _read(
    source: Source, wish: Wish, destination: Destination | None, deadline: Deadline
) -> tuple[Log, dict[int, SentRun]]:
    """The log, and the runs that were made of it, by their number in it."""
    if source.format is None:
        log = read_log(source)
        made = [] if destination is None else import_own(source, destination, wish).runs
        return log, dict(enumerate(made))
    gathering = Gathering()
    sending = None if destination is None else sending_of(source, destination, wish)
    sink = Both(deadline, gathering, *(() if sending is None else (sending,)))
    assembly = Assembly(sink, name=source.name, max_norm=wish.max_norm)
    if sending is not None:
        sending.assembly = assembly
    assembly.take_all(items_of(source, wish.options))
    assembly.close()
    if sending is not None:
        sending.close()
    return log_of(source, gathering, assembly), {} if sending is None else sending.runs


def _told(log: Log, part: Part, sent: SentRun | None, lang: str) -> dict[str, Any]:
    otherwise = log.name if part.run == 0 else f"{log.name} #{part.run + 1}"
    return {
        "name": sent.name if sent is not None else part.run_name or otherwise,
        "run": part.run + 1,
        "stream": part.stream,
        "num_attempts": part.num_attempts,
        "num_steps": len(part.steps.step),
        "run_id": sent.run_id if sent is not None else None,
        "url": f"/runs/{sent.run_id}" if sent is not None else None,
        "sparkline": sparkline_of(part.steps),
        "diagnosis": diagnose(part.steps, part.context, lang=lang).to_json(),
    }


def sparkline_of(steps: StreamSteps) -> dict[str, list[Any]]:
    """The norm and its threshold in at most 64 points, as lists of runs have them."""
    rows = np.array_split(np.arange(len(steps.step)), min(POINTS, max(len(steps.step), 1)))
    norm, threshold = steps.grad_norm_before_clip, steps.max_norm
    return {
        "step": [int(steps.step[part[0]]) for part in rows if len(part)],
        "norm": [_largest(norm.values[part]) if norm is not None else None for part in rows if len(part)],
        "max_norm": [_largest(threshold.values[part]) if threshold is not None else None for part in rows if len(part)],
        "num_nonfinite": [int(norm.nonfinite[part].sum()) if norm is not None else 0 for part in rows if len(part)],
    }


def _largest(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    finite = values[np.isfinite(values)]
    return float(f"{finite.max():.{DIGITS}g}") if len(finite) else None
