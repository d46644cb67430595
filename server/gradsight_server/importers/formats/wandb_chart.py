"""The CSV that a Weights & Biases chart exports: a column `Step`, then `run - metric`, each with `__MIN` and `__MAX`.

A history (`run.history().to_csv()`, `scan_history` as JSON lines) is an ordinary table with `_step`; `output.log` is
whatever the script printed.
"""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from gradsight_server.importers.format import FileFormat, Options
from gradsight_server.importers.items import Item, Meaning, Point, Restart, Setting, Unread
from gradsight_server.importers.names import chosen
from gradsight_server.importers.numbers import is_recorded, number
from gradsight_server.importers.opening import decoded, read_whole

AXES = ("Step", "Relative Time (Wall)", "Relative Time (Process)", "Wall Time", "trainer/global_step", "global_step")
ENDS = ("__MIN", "__MAX")


def _recognise(path: Path, head: bytes) -> bool:
    first = head.split(b"\n", 1)[0]
    return b'"Step"' in first and b" - " in first and b"__MIN" in first


def _read(path: Path, options: Options) -> Iterator[Item]:
    rows = csv.reader(io.StringIO(decoded(read_whole(path)), newline=""))
    names = next(rows, [])
    cells = [row for row in rows if any(cell.strip() for cell in row)]
    by_run: dict[str, dict[str, int]] = {}
    for i, name in enumerate(names):
        run, dash, metric = name.partition(" - ")
        if dash and not metric.endswith(ENDS):
            by_run.setdefault(run, {})[metric] = i
    step_at = next((names.index(axis) for axis in AXES if axis in names), 0)
    own = {theirs: ours for ours, theirs in options.columns}
    yield Meaning("grad_norm_before_clip", "chart export", remark="A chart's export may hold a sample of the steps.")
    for i, (run, metrics) in enumerate(by_run.items()):
        if i:
            yield Restart(1, f"the columns of run {run!r}")
        yield Setting(1, "run_name", run, "column name")
        columns = {name: column for column, name in chosen(metrics).items()} | own
        for line, row in enumerate(cells, 2):
            point = Point(line, number(row[step_at]) if step_at < len(row) else None)
            for metric, place in metrics.items():
                cell = row[place] if place < len(row) else None
                value = number(cell)
                if value is None:
                    if is_recorded(cell):
                        yield Unread(line, f"{metric} must be a number, got {str(cell)[:60]!r}")
                elif (column := columns.get(metric)) is not None:
                    point.values[column] = value
                else:
                    point.metrics[metric] = value
            if point.values or point.metrics:
                yield point


FORMAT = FileFormat(
    name="wandb_chart",
    title="Weights & Biases chart export",
    source="W&B's web app, chart menu, Export to CSV (2026)",
    recognise=_recognise,
    read=_read,
)
