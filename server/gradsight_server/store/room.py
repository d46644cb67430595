"""Whether the database can still grow."""

from sqlalchemy import Connection, delete, insert

from gradsight_server.store.models import bucket_blobs

PROBE_BYTES = 2**16
"""As much as a batch may well need."""
_NOBODY = ""
_PROBE = {
    "run_id": _NOBODY,
    "stream_key": 0,
    "attempt_key": 0,
    "kind": "probe",
    "level": 0,
    "bucket": 0,
    "layers_id": "",
    "blob": bytes(PROBE_BYTES),
}


def try_to_grow(conn: Connection) -> None:
    """Writes something and takes it back: fails as a batch would."""
    conn.execute(insert(bucket_blobs), _PROBE)
    conn.execute(delete(bucket_blobs).where(bucket_blobs.c.run_id == _NOBODY))
