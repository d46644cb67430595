"""Batches without the steps that retention has sealed: what comes for them again, or late, changes nothing any more."""

from msgspec import UNSET

from gradsight import wire


def without_sealed(batch: wire.Batch, sealed_before: int) -> wire.Batch:
    """The batch itself where it has no such step; else one with the rest of it."""
    touched = (*batch.step, *batch.layer_step)
    if not touched or min(touched) >= sealed_before:
        return batch
    kept = [i for i, step in enumerate(batch.step) if step >= sealed_before]
    rest = wire.Batch(**{name: getattr(batch, name) for name in batch.__struct_fields__ if name not in _BY_STEP})
    rest.step = [batch.step[i] for i in kept]
    for name in ("wall_time_s", "rank", *wire.COLUMNS):
        values = getattr(batch, name)
        if values is not UNSET:
            setattr(rest, name, [values[i] for i in kept])
    kept = [i for i, step in enumerate(batch.layer_step) if step >= sealed_before]
    rest.layer_step = [batch.layer_step[i] for i in kept]
    norms = batch.layer_norms
    if isinstance(norms, bytes):
        size = len(norms) // max(len(batch.layer_step), 1)
        rest.layer_norms = b"".join(norms[size * i : size * (i + 1)] for i in kept)
    elif norms is not None:
        rest.layer_norms = [norms[i] for i in kept]
    return rest


_BY_STEP = ("step", "wall_time_s", "rank", *wire.COLUMNS, "layer_step", "layer_norms")
