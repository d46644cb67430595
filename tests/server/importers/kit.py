"""What the importers' tests share: a log from a text or rows, and what was made of it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradsight_server.diagnosis import Column
from gradsight_server.importers.format import Options
from gradsight_server.importers.logs import Log, Part, read_logs

Content = str | bytes | Sequence[Any]


def write(folder: Path, content: Content, name: str = "log") -> Path:
    """A file of that text, or of those rows as JSON lines."""
    path = folder / name
    if not isinstance(content, str | bytes):
        content = "".join(json.dumps(row) + "\n" for row in content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(folder: Path, content: Content, *, max_norm: float | None = None, **names: str) -> Log:
    """The one log that is made of it. `names`: as in --map."""
    options = Options(tuple(names.items()))
    (log,) = read_logs(write(folder, content), max_norm=max_norm, options=options)
    return log


def only_part(log: Log) -> Part:
    (part,) = log.parts
    return part


def column(part: Part, name: str) -> list[float | None]:
    """None where not recorded."""
    found: Column | None = getattr(part.steps, name)
    if found is None:
        return [None] * len(part.steps.step)
    return [value if there else None for value, there in zip(found.values.tolist(), found.recorded, strict=True)]


def norms(part: Part) -> list[float | None]:
    return column(part, "grad_norm_before_clip")


def steps(part: Part) -> list[int]:
    found: list[int] = part.steps.step.tolist()
    return found
