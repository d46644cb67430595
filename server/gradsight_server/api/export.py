"""A run as a file: streamed, so that one of ten million steps takes no more memory than one of a thousand."""

import re
import time
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from gradsight_server.api.services import DatabaseHere, RunId
from gradsight_server.exports import messages, parquet, table, walk
from gradsight_server.exports.lines import encode
from gradsight_server.store import export
from gradsight_server.store.database import Database
from gradsight_server.store.export import Contents

router = APIRouter(prefix="/runs/{run_id}", tags=["export"])

Format = Literal["jsonl", "csv", "parquet"]
MEDIA_TYPES: dict[Format, str] = {
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
FormatAsked = Annotated[Format, Query(description="jsonl holds everything; csv and parquet a row for each step.")]
PIECE_BYTES = 2**16
"""Lines are gathered to about so much before they are handed on."""


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"description": "The file.", "content": {name: {} for name in MEDIA_TYPES.values()}}},
)
def export_run(
    database: DatabaseHere,
    run_id: RunId,
    format: FormatAsked = "jsonl",
    stream: Annotated[str | None, Query(min_length=1, max_length=256, description="Only this one.")] = None,
) -> StreamingResponse:
    """The run as a file that `gradsight import` reads back: every step of every rank and attempt that is kept."""
    if format == "parquet":
        parquet.check_installed()
    with database.reading() as conn:
        contents = export.contents(conn, run_id, stream=stream)
    headers = {"Content-Disposition": f'attachment; filename="{_file_name(contents)}.{format}"'}
    if format == "parquet":
        headers["Content-Encoding"] = "identity"  # it is compressed already
    pieces = _pieces(database, contents, format, stream)
    return StreamingResponse(pieces, media_type=MEDIA_TYPES[format], headers=headers)


def _pieces(database: Database, contents: Contents, format: Format, stream: str | None) -> Iterator[bytes]:
    now_s = time.time()
    if format == "jsonl":
        return _gathered(map(encode, walk.lines(database, contents, stream=stream, now_s=now_s)))
    max_layers = contents.max_layers if format == "parquet" else 0
    parts = walk.slices(database, table.by_stream(contents.launches), max_layers=max_layers)
    if format == "csv":
        return table.csv_text(parts)
    head = next(messages.heads(contents, stream=stream, now_s=now_s))
    return parquet.parquet_bytes(contents, head, parts)


def _gathered(lines: Iterator[bytes]) -> Iterator[bytes]:
    piece = bytearray()
    for line in lines:
        piece += line
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def _file_name(contents: Contents) -> str:
    """What a browser suggests: the run's name as far as any file system takes it, and the beginning of its id."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(contents.record.name)).strip("-.")[:64]
    begin = contents.run_id[:8]
    return name if name.endswith(begin) else f"{name}-{begin}".lstrip("-")
