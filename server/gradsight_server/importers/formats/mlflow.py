"""A run's folder of MLflow's file store: `metrics/<name>` holds lines `milliseconds value step`."""

from collections.abc import Iterator
from heapq import merge
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from gradsight_server.importers.format import FileFormat, Options
from gradsight_server.importers.items import Item, Point, Setting, Unread
from gradsight_server.importers.names import chosen, setting_of
from gradsight_server.importers.numbers import number
from gradsight_server.importers.printed import TEXTS

MAX_METRICS = 2_000
MAX_PARAMETER_BYTES = 8_192


class _Entry(NamedTuple):
    step: int
    time_ms: int
    name: str
    value: float


def _recognise(path: Path, head: bytes) -> bool:
    return path.is_dir() and (path / "meta.yaml").is_file() and (path / "metrics").is_dir()


def _read(path: Path, options: Options) -> Iterator[Item]:
    yield from _settings(path)
    folder = path / "metrics"
    # MLflow makes folders of a name's slashes.
    files = sorted(file for file in folder.rglob("*") if file.is_file())[:MAX_METRICS]
    by_name = {file.relative_to(folder).as_posix(): file for file in files}
    own = {theirs: ours for ours, theirs in options.columns}
    columns = {name: column for column, name in chosen(by_name).items() if column not in ("step", "epoch")} | own
    broken: list[Unread] = []
    entries = merge(*(_entries(name, file, broken) for name, file in by_name.items()))
    for line, (step, group) in enumerate(groupby(entries, key=lambda entry: entry.step), 1):
        point = Point(line, step)
        for entry in group:  # the newest of one step wins, as in MLflow's own charts
            point.wall_time_s = entry.time_ms / 1e3
            if (column := columns.get(entry.name)) is not None:
                point.values[column] = entry.value
            else:
                point.metrics[entry.name] = entry.value
        yield point
    yield from broken


def _settings(path: Path) -> Iterator[Item]:
    name = path / "tags" / "mlflow.runName"
    if name.is_file():
        yield Setting(0, "run_name", name.read_text("utf-8", errors="replace")[:256].strip(), "mlflow.runName")
    for file in sorted((path / "params").glob("*")) if (path / "params").is_dir() else ():
        setting = setting_of(file.name)
        if setting is None or not file.is_file() or file.stat().st_size > MAX_PARAMETER_BYTES:
            continue
        text = file.read_text("utf-8", errors="replace").strip()
        value = number(text)
        if value is not None or setting in TEXTS or text in ("None", "null"):
            yield Setting(0, setting, text if setting in TEXTS else value, file.name)


def _entries(name: str, file: Path, broken: list[Unread]) -> Iterator[_Entry]:
    """A metric's values by step; they are sorted, since a file is small and a resumed run goes back."""
    found = []
    with file.open(encoding="utf-8", errors="replace") as lines:
        for i, line in enumerate(lines, 1):
            parts = line.split()
            value = number(parts[1]) if len(parts) in (2, 3, 5) else None  # the newest add a dataset's name and digest
            step = parts[2] if len(parts) > 2 else "0"
            if value is None or not parts[0].isdecimal() or not step.isdecimal():
                broken.append(
                    Unread(i, f"metrics/{name} must hold `milliseconds value step`, got {line.strip()[:60]!r}")
                )
                continue
            found.append(_Entry(int(step), int(parts[0]), name, value))
    return iter(sorted(found, key=lambda entry: entry[:3]))


FORMAT = FileFormat(
    name="mlflow",
    title="MLflow run folder",
    source="mlflow 3.6, store/tracking/file_store.py: FileStore._log_run_metric, _get_metric_from_file",
    recognise=_recognise,
    read=_read,
)
