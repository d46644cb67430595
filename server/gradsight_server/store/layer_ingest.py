"""The layer norms of a batch: checked against the layers they are about, and stored as they came."""

import numpy as np
from sqlalchemy import Connection, insert, update

from gradsight import wire
from gradsight.errors import WireError
from gradsight_server.store import layer_blocks
from gradsight_server.store.models import layer_sets
from gradsight_server.store.places import Place


def take_in(conn: Connection, place: Place, batch: wire.Batch, layer_rank: list[int]) -> bool:
    """Stores the names, where they came, and a row per layer step.

    Args:
        layer_rank: who recorded each layer step.

    Returns:
        Whether the names behind `layers_id` are still unknown, so that the client should send them.

    Raises:
        WireError: a row is not as wide as its layers are many, or a norm is negative.
    """
    norms = _packed(batch)
    _check_signs(norms)
    width = len(norms) // 4 // len(batch.layer_step) if batch.layer_step else len(batch.layers or ())
    if batch.layer_step and width == 0:
        raise WireError("layer_norms has rows of 0 layers, expected one or more", field="layer_norms")
    if place.layers_id is None:
        return False
    needed = _know_layers(conn, place, place.layers_id, width, batch)
    if batch.layer_step:
        known_step = -1 if place.extent is None else place.extent.last_step
        layer_blocks.write(conn, place.key, place.layers_id, batch.layer_step, layer_rank, norms, known_step=known_step)
    return needed


def _check_signs(norms: bytes) -> None:
    values = np.frombuffer(norms, dtype="<f4")
    negative = values[values < 0]
    if (negative != wire.NO_GRADIENT).any():
        worst = float(negative[negative != wire.NO_GRADIENT][0])
        raise WireError(
            f"layer_norms has {worst!r}; a norm cannot be negative, but for −1, which says that there was no gradient",
            field="layer_norms",
        )


def _packed(batch: wire.Batch) -> bytes:
    norms = batch.layer_norms
    if isinstance(norms, list):
        return wire.pack_norms([wire.number(norm) for norm in row] for row in norms)
    return norms or b""


def _know_layers(conn: Connection, place: Place, layers_id: str, width: int, batch: wire.Batch) -> bool:
    """Checks the width, keeps names that are new, and says whether they are still unknown."""
    if place.num_layers is not None and width not in (0, place.num_layers):
        raise WireError(
            f"layer_norms has {width} layers, layers_id {layers_id!r} stands for {place.num_layers}: "
            "other layers need another id",
            field="layer_norms",
        )
    names = wire.layer_names(batch.layers) if batch.layers else None
    if place.num_layers is None and width:
        row = {"run_id": place.run_id, "layers_id": layers_id, "layers": names, "num_layers": width}
        conn.execute(insert(layer_sets), row)
    elif place.num_layers is not None and names is not None and not place.has_layer_names:
        of_set = (layer_sets.c.run_id == place.run_id, layer_sets.c.layers_id == layers_id)
        conn.execute(update(layer_sets).where(*of_set).values(layers=names))
    return names is None and not place.has_layer_names
