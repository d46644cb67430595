"""A server for one command: on a port of its own, behind a secret of its own, on a database that goes with it."""

import contextlib
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gradsight_server.app import create_app
from gradsight_server.errors import SettingsError
from gradsight_server.serving import Server, bind, local_url
from gradsight_server.settings import Settings

START_WITHIN_S = 60.0


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
        bound = bind("127.0.0.1", 0)
        started = threading.Event()
        server = Server(create_app(settings), on_start=started.set)
        run = {"sockets": [bound]}
        thread = threading.Thread(target=server.run, kwargs=run, name="gradsight-server", daemon=True)
        thread.start()
        until = time.monotonic() + START_WITHIN_S
        while not started.wait(0.1):
            if not thread.is_alive() or time.monotonic() > until:
                raise SettingsError(f"the server did not start within {START_WITHIN_S:.0f} s.")
        try:
            yield Private(local_url(bound), token)
        finally:
            server.should_exit = True
            thread.join()
