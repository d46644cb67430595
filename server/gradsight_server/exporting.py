"""`gradsight export`: a run of a server, into a file."""

import gzip
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx

from gradsight_server.asking import asking, explained
from gradsight_server.errors import NothingToReadError, SettingsError

FORMATS = ("jsonl", "csv", "parquet")
TIMEOUT_S = 60.0
"""Between two pieces of the answer."""
PIECE_BYTES = 2**20


def export_run(
    run_id: str, output: Path | None, *, format: str | None, stream: str | None, server: str, token: str | None
) -> str:
    """Writes the file, and says in a sentence what it did. A file of this name is there only once all of it is.

    Args:
        output: `-` is the standard output; the server's suggestion where left out. What ends in `.gz` is compressed.
        format: told by the file's name where left out.

    Raises:
        NothingToReadError: no server, no such run, or the answer broke off.
        SettingsError: the format cannot be right, or the file is there already.
    """
    asked = {"format": _format(output, format)} | ({} if stream is None else {"stream": stream})
    try:
        with asking(server, token, f"runs/{run_id}/export", asked, timeout_s=TIMEOUT_S) as answer:
            if answer.status_code != 200:
                answer.read()
                raise explained(server, answer)
            if output is not None and str(output) == "-":
                _copy(answer, sys.stdout.buffer)
                return ""
            output = output or Path(_suggested(answer))
            with _new_file(output) as file:
                _copy(answer, file)
    except httpx.HTTPError as error:
        raise NothingToReadError(f"the export of run {run_id!r} broke off ({error}): nothing was written.") from error
    return f"{output} holds run {run_id} ({output.stat().st_size / 1e6:.1f} MB)."


def _format(output: Path | None, format: str | None) -> str:
    if format is None and output is not None and str(output) != "-":
        format = output.name.removesuffix(".gz").rpartition(".")[2]
        if format not in FORMATS:
            raise SettingsError(f"--format must be one of {', '.join(FORMATS)}: {output.name!r} does not tell which.")
    if format not in (None, *FORMATS):
        raise SettingsError(f"--format must be one of {', '.join(FORMATS)}, got {format!r}.")
    return format or "jsonl"


def _suggested(answer: httpx.Response) -> str:
    """Only its last part: what a server says must not choose a folder of ours."""
    name = answer.headers.get("content-disposition", "").partition('filename="')[2].rstrip('"')
    return Path(name).name or "export"


@contextmanager
def _new_file(output: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    """A file that takes its name at the end of the block, if that comes without an error."""
    if output.exists():
        raise SettingsError(f"{output} is there already: name a file that is not.")
    part = output.with_name(f"{output.name}.part-{os.getpid()}")
    try:
        with gzip.open(part, "wb", compresslevel=6) if output.suffix == ".gz" else part.open("wb") as file:
            yield file
        part.replace(output)
    except OSError as error:
        raise SettingsError(f"{output} cannot be written: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)


def _copy(answer: httpx.Response, file: IO[bytes] | gzip.GzipFile) -> None:
    for piece in answer.iter_bytes(PIECE_BYTES):
        file.write(piece)
    file.flush()
