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
from gradsight_server.log_file import read_log

RUN_ID = re.compile(r"[0-9a-fA-F]{8}(-?)([0-9a-fA-F]{4}\1){3}[0-9a-fA-F]{12}")
FAIL_ON = ("warning", "critical")
WIDTH_OF_A_PIPE = 100


class Diagnosed(NamedTuple):
    """A diagnosis as JSON, and what else is shown with it."""

    name: str
    diagnosis: dict[str, Any]
    norms: Floats
    notes: Sequence[str] = ()

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
    found: list[Diagnosed | None] = []
    for target in targets:
        try:
            found.append(_of_run(target, server, token, stream, max_norm) or _of_file(target, max_norm))
        except NothingToReadError as error:
            complain(str(error))
            found.append(None)
    if as_json:
        answers = [None if one is None else one.diagnosis for one in found]
        if len(answers) > 1 or answers[0] is not None:
            print(json.dumps(answers if len(answers) > 1 else answers[0], allow_nan=False))
    else:
        _print(found)
    worst = max((one.severity for one in found if one is not None), default=0)
    is_bad = fail_on is not None and worst >= SEVERITIES.index(fail_on)
    return 1 if is_bad or None in found else 0


def _print(found: Sequence[Diagnosed | None]) -> None:
    console = Console(highlight=False) if sys.stdout.isatty() else Console(width=WIDTH_OF_A_PIPE, highlight=False)
    for i, one in enumerate(one for one in found if one is not None):
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


def _of_file(target: str, max_norm: float | None) -> Diagnosed:
    path = Path(target)
    if not path.exists():
        raise NothingToReadError(f"{target!r} is neither a file nor a run's id (32 hex digits).")
    log = read_log(path, max_norm=max_norm)
    column = log.steps.grad_norm_before_clip
    norms = np.empty(0) if column is None else column.values[column.recorded]
    return Diagnosed(str(path), diagnose(log.steps, log.context).to_json(), norms, log.notes)
