"""`gradsight diagnose`: runs on a server, or logs without one; what is wrong with them, and the exit code."""

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from gradsight_server.asking import get_json
from gradsight_server.cli import complain
from gradsight_server.diagnosis import SEVERITIES, diagnose
from gradsight_server.diagnosis.inputs import Floats
from gradsight_server.diagnosis_view import SPARK_COLUMNS, show
from gradsight_server.errors import NothingToReadError, SettingsError
from gradsight_server.importers.format import Options
from gradsight_server.importers.logs import Log, read_logs
from gradsight_server.importers.mapping import parse_map
from gradsight_server.importers.opening import standard_input

RUN_ID = re.compile(r"[0-9a-fA-F]{8}(-?)([0-9a-fA-F]{4}\1){3}[0-9a-fA-F]{12}")
FAIL_ON = ("warning", "critical")
WIDTH_OF_A_PIPE = 100


class Diagnosed(NamedTuple):
    """A diagnosis as JSON, and what else is shown with it."""

    name: str
    diagnosis: dict[str, Any]
    norms: Floats
    notes: Sequence[str] = ()
    parts: "Sequence[Diagnosed]" = ()
    """Of a log with several runs or streams each; this is the one that is worst off, then."""
    log: dict[str, Any] | None = None
    """What else is told of a log, as JSON."""

    def as_json(self) -> dict[str, Any]:
        return self.diagnosis if self.log is None else self.diagnosis | {"log": self.log}

    @property
    def severity(self) -> int:
        """The rank of the worst that was found."""
        parts = [self.diagnosis["clipping"], self.diagnosis["loss_scaling"], *self.diagnosis["findings"]]
        return max(SEVERITIES.index(part["severity"]) for part in parts)


def diagnose_all(
    targets: Sequence[str],
    *,
    server: str,
    token: str | None,
    stream: str | None,
    max_norm: float | None,
    log_format: str | None,
    columns: str | None,
    as_json: bool,
    fail_on: str | None,
) -> int:
    """Prints the diagnoses; 1 where one is as bad as `fail_on`, or where there was nothing to read.

    Raises:
        SettingsError: wrong use.
    """
    if max_norm is not None and not (max_norm > 0 and math.isfinite(max_norm)):
        raise SettingsError(f"--max-norm must be a positive number, got {max_norm!r}.")
    if fail_on not in (None, *FAIL_ON):
        raise SettingsError(f"--fail-on must be {' or '.join(FAIL_ON)}, got {fail_on!r}.")
    options = Options(parse_map(columns))
    found: list[Diagnosed | None] = []
    for target in targets:
        try:
            of_run = _of_run(target, server, token, stream, max_norm)
            found += [of_run] if of_run else _of_logs(target, log_format, options, stream, max_norm)
        except NothingToReadError as error:
            complain(str(error))
            found.append(None)
    if as_json:
        answers = [None if one is None else one.as_json() for one in found]
        if len(answers) > 1 or answers[0] is not None:
            print(json.dumps(answers if len(answers) > 1 else answers[0], allow_nan=False))
    else:
        _print(found)
    worst = max((one.severity for one in found if one is not None), default=0)
    is_bad = fail_on is not None and worst >= SEVERITIES.index(fail_on)
    return 1 if is_bad or None in found else 0


def _print(found: Sequence[Diagnosed | None]) -> None:
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=WIDTH_OF_A_PIPE, highlight=False)
    shown = [part for one in found if one is not None for part in (one.parts or (one,))]
    for i, one in enumerate(shown):
        if i:
            console.rule()
        show(console, one.name, one.diagnosis, one.norms, one.notes)


def _of_run(
    target: str, server: str, token: str | None, stream: str | None, max_norm: float | None
) -> Diagnosed | None:
    """None where the target is not a run's id, or a file has that very name."""
    if not RUN_ID.fullmatch(target) or Path(target).exists():
        return None
    if max_norm is not None:
        raise SettingsError("--max-norm is for logs: a run on a server knows its own threshold.")
    run = get_json(server, token, f"runs/{target}")
    name = stream or ("main" if "main" in run["streams"] or not run["streams"] else run["streams"][0])
    answer = get_json(server, token, f"runs/{target}/diagnosis", {"stream": name})
    query = {"stream": name, "columns": "grad_norm_before_clip", "points": SPARK_COLUMNS}
    column = get_json(server, token, f"runs/{target}/series", query)["columns"]["grad_norm_before_clip"]
    norms = [norm for norm, odd in zip(column["max"], column["num_nonfinite"], strict=True) if odd or norm is not None]
    others = [other for other in run["streams"] if other != name]
    notes = [f"This is stream {name!r}; the run also has {', '.join(others)} (--stream)."] if others else []
    return Diagnosed(run["name"], answer, np.array(norms, dtype=np.float64), notes)


def _of_logs(
    target: str, log_format: str | None, options: Options, stream: str | None, max_norm: float | None
) -> list[Diagnosed]:
    """The log of that name; of a folder, all in it. `-` is what comes through a pipe."""
    if target == "-":
        with standard_input() as path:
            logs = read_logs(path, format_name=log_format, options=options, max_norm=max_norm, name="standard input")
            return [_of_log(log, stream) for log in logs]
    path = Path(target)
    if not path.exists():
        raise NothingToReadError(f"{target!r} is neither a file nor a run's id (32 hex digits).")
    logs = read_logs(path, format_name=log_format, options=options, max_norm=max_norm)
    return [_of_log(log, stream) for log in logs]


def _of_log(log: Log, stream: str | None) -> Diagnosed:
    parts = [part for part in log.parts if stream is None or part.stream == stream]
    if not parts:
        known = ", ".join(dict.fromkeys(part.stream for part in log.parts))
        raise NothingToReadError(f"{log.name!r} has no stream {stream!r}; it has {known}.")
    found = []
    for i, part in enumerate(parts):
        column = part.steps.grad_norm_before_clip
        norms = np.empty(0) if column is None else column.values[column.recorded]
        title = log.title_of(part)
        name = f"{log.name}  ({title})" if title else log.name
        notes = log.notes if i == len(parts) - 1 else ()  # they are of the whole log
        found.append(Diagnosed(name, diagnose(part.steps, part.context).to_json(), norms, notes))
    worst = max(found, key=lambda one: one.severity)
    if len(found) == 1 and not log.notes:
        return worst
    told: dict[str, Any] = {"format": log.format_name, "notes": list(log.notes)}
    if len(found) > 1:
        told["parts"] = [
            {"run": part.run + 1, "run_name": part.run_name, "stream": part.stream, "num_attempts": part.num_attempts}
            | {"diagnosis": one.diagnosis}
            for part, one in zip(parts, found, strict=True)
        ]
    return worst._replace(parts=found, log=told)
