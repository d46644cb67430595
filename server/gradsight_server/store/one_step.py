"""One step with everything that is known of it."""

from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from gradsight import wire
from gradsight_server.errors import StepNotFoundError
from gradsight_server.store import attempts, layer_blocks, views
from gradsight_server.store.expressions import bound_segment, nonfinite_words
from gradsight_server.store.models import layer_sets, steps


def one_step(
    conn: Connection, run_id: str, step: int, *, stream: str = "main", attempt: int | None = None
) -> dict[str, Any]:
    """A step's columns and layers, as REST gives them: null where not recorded or not finite.

    Raises:
        RunNotFoundError, StreamNotFoundError, StepNotFoundError, InvalidRequestError
    """
    stream_key = attempts.stream_key_of(conn, run_id, stream)
    shown = () if stream_key is None else views.segments(conn, run_id, stream_key, attempt=attempt, low=step, high=step)
    for segment in shown:
        row = conn.execute(select(steps).where(bound_segment(steps)), segment.parameters).one_or_none()
        if row is not None:
            return {
                "step": step,
                "attempt": segment.number,
                "wall_time_s": row.wall_time_s,
                **{name: getattr(row, name) for name in wire.COLUMNS},
                "nonfinite": nonfinite_words(row.nonfinite),
                "layers": _layers_of(conn, segment),
            }
        if segment.is_sealed:
            raise StepNotFoundError(f"Of step {step!r} of stream {stream!r} only rollups are kept.")
    raise StepNotFoundError(f"Stream {stream!r} has no step {step!r}.")


def _layers_of(conn: Connection, segment: views.Segment) -> list[dict[str, Any]]:
    row = layer_blocks.newest(conn, segment.key, segment.first_step, segment.last_step)
    if row is None:
        return []
    of_set = (layer_sets.c.run_id == segment.key[0], layer_sets.c.layers_id == row.layers_id)
    norms = row.norms[0].astype(np.float64).tolist()
    names = conn.scalar(select(layer_sets.c.layers).where(*of_set)) or [[f"layer {i}"] for i in range(len(norms))]
    return [_layer(*pair) for pair in zip(names, norms, strict=True)]


def _layer(names: list[str], norm: float) -> dict[str, Any]:
    word = wire.word(norm)
    if isinstance(word, str):
        return {"names": names, "norm": None, "nonfinite": word}
    return {"names": names, "norm": None if norm < 0 else norm, "nonfinite": None}
