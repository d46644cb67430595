"""A server for one command: on a port of its own, behind a secret of its own, on a database that goes with it."""

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gradsight_server.app import create_app
from gradsight_server.serving import bind, serving
from gradsight_server.settings import Settings


class Private(NamedTuple):
    url: str
    token: str


@contextlib.contextmanager
def private_server() -> Iterator[Private]:
    """The real server, in a thread of this process; nothing of it is left afterwards.

    Raises:
        SettingsError: it did not start.
    """
    token = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="gradsight-", ignore_cleanup_errors=True) as folder:
        settings = Settings(db=str(Path(folder) / "log.db"), host="127.0.0.1", token=token)  # type: ignore[arg-type]
        with serving(create_app(settings), bind("127.0.0.1", 0)) as url:
            yield Private(url, token)
