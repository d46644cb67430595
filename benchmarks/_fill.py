"""Long runs, quickly: steps and layer norms are written past `ingest`, many at once, and rolled up as it would."""

from functools import partial
from typing import Any

import numpy as np
from sqlalchemy import Connection, insert

from gradsight import wire
from gradsight_server.store import extents, keys, layer_blocks, pyramid, statements
from gradsight_server.store.database import Database
from gradsight_server.store.extents import AttemptKey, Extent
from gradsight_server.store.models import layer_sets
from gradsight_server.store.runs import put_run

CHUNK_STEPS = 8_192
COLUMNS = ("loss", "lr", "grad_norm_before_clip", "max_norm", "clip_coef")
TIMEOUT_S = 600.0


def fill(database: Database, run_id: str, num_steps: int, *, num_layers: int = 0) -> None:
    """A run of one attempt, as a batch of each chunk of steps would have left it, but for counters and ticks."""
    key = database.write(lambda conn: _begin(conn, run_id, num_layers)).result(TIMEOUT_S)
    chunk = CHUNK_STEPS if num_layers <= 200 else 1_024
    extent: Extent | None = None
    for first in range(0, num_steps, chunk):
        steps = np.arange(first, min(first + chunk, num_steps))
        work = partial(_write, key=key, steps=steps, before=extent, num_layers=num_layers)
        extent = database.write(work).result(TIMEOUT_S)


def _begin(conn: Connection, run_id: str, num_layers: int) -> AttemptKey:
    put_run(conn, run_id, wire.RunRecord(), now_s=1.0)
    if num_layers:
        names = [[f"blocks.{i}.weight"] for i in range(num_layers)]
        row: dict[str, Any] = {"run_id": run_id, "layers_id": "benchmark", "layers": names, "num_layers": num_layers}
        conn.execute(insert(layer_sets), row)
    return run_id, keys.new_stream(conn, run_id, "main"), keys.new_attempt(conn, run_id, "benchmark", 1.0)


def _write(conn: Connection, key: AttemptKey, steps: Any, before: Extent | None, num_layers: int) -> Extent:
    random = np.random.default_rng(int(steps[0]))
    n = len(steps)
    norm = random.lognormal(-0.5, 0.3, n)
    norm[random.integers(0, n)] *= 100
    columns = (2 + random.normal(0, 0.1, n), np.full(n, 3e-4), norm, np.ones(n), np.minimum(1, 1 / norm))
    numbers, times = steps.tolist(), (1.7e9 + 0.1 * steps).tolist()
    rows = zip(numbers, times, *(column.tolist() for column in columns), strict=True)
    statements.upsert_steps(conn, COLUMNS, [(*key, step, 0, time_s, *rest, 0) for step, time_s, *rest in rows])
    known_step = -1 if before is None else before.last_step
    if num_layers:
        norms = random.lognormal(-3, 1, (n, num_layers)).astype("<f4").tobytes()
        layer_blocks.write(conn, key, "benchmark", numbers, [0] * n, norms, known_step=known_step)
    extent = extents.reach(conn, key, before, numbers[0], numbers[-1])
    last_before = None if before is None else before.last_step
    pyramid.roll_up(conn, key, steps, last_before=last_before, extent=extent)
    return extent
