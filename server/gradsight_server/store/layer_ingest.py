"""The layer norms of a batch: checked against the layers they are about, and stored as they came."""

from itertools import repeat

from sqlalchemy import Connection, insert, select, update

from gradsight import wire
from gradsight.errors import WireError
from gradsight_server.store import statements
from gradsight_server.store.models import layer_sets


def take_in(conn: Connection, key: tuple[str, int, int], batch: wire.Batch, rank_of_step: dict[int, int]) -> bool:
    """Stores the names, where they came, and a row per layer step.

    Returns:
        Whether the names behind `layers_id` are still unknown, so that the client should send them.

    Raises:
        WireError: a row is not as wide as its layers are many.
    """
    layers_id = batch.layers_id or (wire.layers_id(batch.layers) if batch.layers else None)
    norms = _packed(batch)
    width = len(norms) // 4 // len(batch.layer_step) if batch.layer_step else len(batch.layers or ())
    if batch.layer_step and width == 0:
        raise WireError("layer_norms has rows of 0 layers, expected one or more", field="layer_norms")
    if layers_id is None:
        return False
    needed = _know_layers(conn, key[0], layers_id, width, batch)
    if batch.layer_step:
        _write_rows(conn, key, layers_id, norms, batch, rank_of_step)
    return needed


def _packed(batch: wire.Batch) -> bytes:
    norms = batch.layer_norms
    if isinstance(norms, list):
        return wire.pack_norms([wire.number(norm) for norm in row] for row in norms)
    return norms or b""


def _know_layers(conn: Connection, run_id: str, layers_id: str, width: int, batch: wire.Batch) -> bool:
    """Checks the width, keeps names that are new, and says whether they are still unknown."""
    of_set = (layer_sets.c.run_id == run_id, layer_sets.c.layers_id == layers_id)
    query = select(layer_sets.c.num_layers, layer_sets.c.layers.is_not(None).label("named"))
    known = conn.execute(query.where(*of_set)).one_or_none()
    if known is not None and width not in (0, known.num_layers):
        raise WireError(
            f"layer_norms has {width} layers, layers_id {layers_id!r} stands for {known.num_layers}: "
            "other layers need another id",
            field="layer_norms",
        )
    names = wire.layer_names(batch.layers) if batch.layers else None
    if known is None and width:
        row = {"run_id": run_id, "layers_id": layers_id, "layers": names, "num_layers": width}
        conn.execute(insert(layer_sets), row)
    elif known is not None and names is not None and not known.named:
        conn.execute(update(layer_sets).where(*of_set).values(layers=names))
    return names is None and not (known is not None and known.named)


def _write_rows(
    conn: Connection,
    key: tuple[str, int, int],
    layers_id: str,
    norms: bytes,
    batch: wire.Batch,
    rank_of_step: dict[int, int],
) -> None:
    """A row per layer step, of the rank that recorded the step in this batch."""
    size = len(norms) // len(batch.layer_step)
    blobs = [norms[start : start + size] for start in range(0, len(norms), size)]
    default = next(iter(rank_of_step.values()), 0)
    ranks = [rank_of_step.get(step, default) for step in batch.layer_step]
    rows = zip(*map(repeat, key), batch.layer_step, ranks, repeat(layers_id), blobs, strict=False)
    statements.upsert_layer_rows(conn, list(rows))
