"""Training logs that something else wrote: what they say, and runs made of them, through the importers."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from gradsight import wire
from gradsight_server.api.answers import Json
from gradsight_server.api.body import BODY_TIMEOUT_S
from gradsight_server.api.diagnosis import check_language
from gradsight_server.api.services import DatabaseHere
from gradsight_server.api.turns import OneAtATime
from gradsight_server.errors import (
    BodyTooLargeError,
    BodyTooSlowError,
    InvalidRequestError,
    NothingToReadError,
    NoTrainingLogError,
    SettingsError,
)
from gradsight_server.importers.format import Options
from gradsight_server.importers.importing import Wish
from gradsight_server.importers.mapping import parse_map
from gradsight_server.importers.opening import DAMAGE, is_packed, open_bytes
from gradsight_server.importers.uploads import Deadline, answer_to
from gradsight_server.judging import VerdictKeeper
from gradsight_server.schemas import ImportAnswer
from gradsight_server.settings import Settings
from gradsight_server.store import runs
from gradsight_server.store.database import Database
from gradsight_server.store.ingest import ingest

router = APIRouter(prefix="/imports", tags=["imports"])

UNPACKED_RATIO = 4
"""A packed log may be so many times as large as one that is sent plain."""
PIECE_BYTES = 2**20
WRITE_TIMEOUT_S = 60.0
_imports = OneAtATime("imports")

Word = Annotated[str | None, Query(min_length=1, max_length=256)]
BODY = {
    "requestBody": {
        "required": True,
        "description": "The log's bytes as they are: text, JSON, a TensorBoard event file; also as gzip, xz or zip.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("", responses={200: {"model": ImportAnswer}}, openapi_extra=BODY)
async def post_log(
    request: Request,
    database: DatabaseHere,
    name: Annotated[str, Query(min_length=1, max_length=256, description="The file's name.")] = "pasted log",
    format: Annotated[str, Query(max_length=64, description="auto tells by the content.")] = "auto",
    max_norm: Annotated[float | None, Query(gt=0, allow_inf_nan=False, description="The threshold in force.")] = None,
    map: Annotated[str | None, Query(max_length=4096, description="norm=my_column,step=it")] = None,
    keep: Annotated[bool, Query(description="Make runs of it; sent again, it changes nothing.")] = False,
    project: Word = None,
    lang: Annotated[str, Query(max_length=16)] = "en",
) -> Json:
    """Says what is wrong in a training log, and keeps it as runs if asked to."""
    settings: Settings = request.app.state.settings
    verdicts: VerdictKeeper = request.app.state.verdicts
    check_language(lang)
    try:
        wish = Wish(Options(parse_map(map)), max_norm, project)
    except SettingsError as error:
        raise InvalidRequestError(str(error)) from None
    destination = _Here(database, verdicts) if keep else None
    with tempfile.TemporaryDirectory(prefix="gradsight-") as folder:
        path = Path(folder, "log")
        await _save(request, path, settings.max_import_bytes)

        def read() -> dict[str, Any]:
            deadline = Deadline.after(settings.max_import_s)
            try:
                plain = _unpacked(path, settings.max_import_bytes * UNPACKED_RATIO, deadline)
                return answer_to(
                    plain, name, wish, format_name=format, destination=destination, deadline=deadline, lang=lang
                )
            except NothingToReadError as error:
                raise NoTrainingLogError(str(error)) from None
            except SettingsError as error:
                raise InvalidRequestError(str(error)) from None

        return Json(await _imports.run(read))


async def _save(request: Request, path: Path, max_bytes: int) -> None:
    """The body as a file, as it comes in.

    Raises:
        BodyTooLargeError, BodyTooSlowError
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    num_bytes = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            with path.open("wb") as file:
                async for chunk in request.stream():
                    num_bytes += len(chunk)
                    if num_bytes > max_bytes:
                        raise _too_large(max_bytes)
                    file.write(chunk)
    except TimeoutError:
        raise BodyTooSlowError(f"The log did not arrive within {BODY_TIMEOUT_S:g} s.") from None


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(
        f"The log is larger than {max_bytes / 2**20:g} MiB; `gradsight import` on its file takes any size."
    )


def _unpacked(path: Path, max_bytes: int, deadline: Deadline) -> Path:
    """The file, unpacked once and for all, so that what is read as a whole has a limit.

    Raises:
        BodyTooLargeError, LogTooLongError
        NothingToReadError: it cannot be unpacked.
    """
    if not is_packed(path):
        return path
    plain = path.with_name("plain")
    num_bytes = 0
    with open_bytes(path) as packed, plain.open("wb") as file:
        try:
            while part := packed.read1(PIECE_BYTES):
                deadline.check()
                num_bytes += len(part)
                if num_bytes > max_bytes:
                    raise _too_large(max_bytes)
                file.write(part)
        except DAMAGE:
            pass  # what comes before the damage is there
    return plain


class _Here:
    """This server as a destination: what is read goes through the one writer, as batches of clients do."""

    def __init__(self, database: Database, verdicts: VerdictKeeper) -> None:
        self._database = database
        self._verdicts = verdicts

    def put_run(self, run_id: str, record: wire.RunRecord) -> None:
        record = wire.decode(wire.encode(record), wire.RunRecord)  # as strict as with a client's
        now_s = time.time()
        self._database.write(lambda conn: runs.put_run(conn, run_id, record, now_s=now_s)).result(WRITE_TIMEOUT_S)
        self._verdicts.note(run_id)

    def post_batch(self, run_id: str, stream: str, batch: wire.Batch) -> None:
        if not wire.is_stream_name(stream):
            raise InvalidRequestError(f"stream must be {wire.STREAM_RULE}, got {stream!r}.")
        batch = wire.decode(wire.encode(batch), wire.Batch)
        now_s = time.time()
        self._database.write(lambda conn: ingest(conn, run_id, stream, batch, now_s=now_s)).result(WRITE_TIMEOUT_S)
        self._verdicts.note(run_id)

    def annotate(self, run_id: str, *, notes: str, is_archived: bool) -> None:
        now_s = time.time()
        changes: dict[str, Any] = {"notes": notes, "archived": True if is_archived else None}
        self._database.write(lambda conn: runs.patch_run(conn, run_id, now_s=now_s, **changes)).result(WRITE_TIMEOUT_S)
