"""`gradsight serve`: settings, socket, database, application; and what was spooled in this folder is taken in."""

import getpass
import os
import socket
import sys
import threading
from pathlib import Path

from gradsight import spool, transport
from gradsight.errors import GradsightError
from gradsight_server import serving
from gradsight_server.app import create_app, open_database
from gradsight_server.cli import complain
from gradsight_server.commands import spool_folder, told
from gradsight_server.errors import GradsightServerError, SettingsError
from gradsight_server.settings import Settings, load_settings
from gradsight_server.store.database import Database


def serve(**options: object) -> None:
    """Serves until a signal says to stop.

    Raises:
        SettingsError: an option cannot be right, the port is taken, the database cannot be opened.
    """
    settings = load_settings(**options)
    settings.check_exposure()
    with serving.bind(settings.host, settings.port) as bound:
        app = create_app(settings, open_or_explain(settings))
        serving.serve(app, bound, on_start=lambda: _greet(settings, bound))


def open_or_explain(settings: Settings) -> Database:
    """The open database.

    Raises:
        SettingsError: it cannot be opened; in one line, whichever driver said why.
    """
    try:
        return open_database(settings)
    except GradsightServerError:
        raise
    except Exception as error:  # each driver has errors of its own; a person at a terminal wants a sentence
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise SettingsError(f"the database {settings.shown_db} cannot be opened: {reason}") from error


def _greet(settings: Settings, bound: socket.socket) -> None:
    here = serving.local_url(bound)
    port = bound.getsockname()[1]
    address = here if settings.is_loopback else here.replace("127.0.0.1", socket.gethostname())
    print(f"Gradsight is at {address}  (Ctrl-C stops it; the database is {settings.shown_db})", flush=True)
    if line := ssh_line(port, os.environ.get("SSH_CONNECTION", "")):
        print(f"From your own machine: {line}, then open http://localhost:{port}", flush=True)
    folder = spool_folder()
    if spool.pending(folder):
        threading.Thread(
            target=_take_in, args=(folder, here, settings.secret), name="gradsight-take-in", daemon=True
        ).start()


def ssh_line(port: int, ssh_connection: str) -> str:
    """How to reach a port of this machine through the SSH connection one is logged in by; empty without one."""
    parts = ssh_connection.split()
    if len(parts) != 4:
        return ""
    _, _, address, ssh_port = parts
    at_port = "" if ssh_port == "22" else f"-p {ssh_port} "
    return f"ssh -N -L {port}:127.0.0.1:{port} {at_port}{getpass.getuser()}@{address}"


def _take_in(folder: Path, server: str, token: str | None) -> None:
    """Sends the spool through the front door, as `gradsight sync` would."""
    way = transport.HttpTransport(server, token)
    try:
        print(told(transport.send_spooled(folder, way), folder), flush=True)
    except (GradsightError, OSError) as error:
        complain(f"{folder} was not taken in whole: {error}")
    finally:
        way.close()
        sys.stdout.flush()
