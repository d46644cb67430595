"""A PostgreSQL of the tests' own, from the machine's binaries; run as a script, install them where there are none."""

import functools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

NewDatabase = Callable[[str], AbstractContextManager[str]]
"""Gives the URL of a new database until the block ends; see the fixture `new_database`."""

DEADLINE_S = 60.0
MIN_VERSION = 14
# The server ends, and its folder goes, with the pipe to its standard input: also where the tests are killed.
WATCHED = 'folder=$1; shift; "$@" 2>"$folder/log" & cat >/dev/null; kill -INT $!; wait; rm -rf "$folder"'
# What a power cut would destroy is worth nothing here; connections are by a socket in the cluster's own folder.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "listen_addresses": "",
}


@functools.cache
def find_postgres() -> Path | None:
    """The folder of the newest PostgreSQL's binaries; None where there is none that we support."""
    folders = [Path(found).parent for found in (shutil.which("postgres"),) if found]
    if asked := shutil.which("pg_config"):
        folders.append(Path(subprocess.run([asked, "--bindir"], capture_output=True, text=True).stdout.strip()))
    folders += Path("/usr/lib/postgresql").glob("*/bin")
    versions = {_version(folder): folder for folder in folders if (folder / "initdb").exists()}
    return versions[max(versions)] if versions and max(versions) >= MIN_VERSION else None


def install_postgres() -> None:
    """Asks the system for PostgreSQL where we may; `find_postgres` then tells whether that went well."""
    if sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], env=quiet)
        subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "postgresql"], env=quiet)


class Cluster:
    """A running server; each test takes a database of its own from it."""

    def __init__(self, socket_folder: Path) -> None:
        self._socket_folder = socket_folder
        self._num_databases = 0

    def url(self, database: str) -> str:
        """What SQLAlchemy and `gradsight serve --db` take."""
        return f"postgresql+psycopg://postgres@/{database}?host={quote(str(self._socket_folder), safe='')}"

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """The name of a new database, a copy of `template`, until the block ends."""
        self._num_databases += 1
        name = f"test_{self._num_databases}"
        self._say(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template)))
        try:
            yield name
        finally:
            self._say(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def wait_until_ready(self) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                return self._say(sql.SQL("SELECT 1"))
            except psycopg.OperationalError:
                if time.monotonic() > until_s:
                    raise
            time.sleep(0.02)

    def _say(self, statement: sql.SQL | sql.Composed) -> None:
        where = {"host": str(self._socket_folder), "user": "postgres", "dbname": "postgres"}
        with psycopg.connect(**where, autocommit=True) as conn:  # type: ignore[arg-type]  # its keywords are no mapping
            conn.execute(statement)


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A new cluster until the block ends; as root under another user, since PostgreSQL refuses to be root."""
    binaries = find_postgres()
    assert binaries is not None
    owner = _other_user() if os.geteuid() == 0 else None
    who = {} if owner is None else {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
    folder = Path(tempfile.mkdtemp(prefix="gradsight-postgres-"))
    if owner is not None:
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    options = {"cwd": folder, **who}
    found = ["--pgdata", str(folder / "data")]
    make = [str(binaries / "initdb"), *found, "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8"]
    made = subprocess.run([*make, "--locale=C"], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert made.returncode == 0, made.stderr
    flags = [f"-c{name}={value}" for name, value in (SETTINGS | {"unix_socket_directories": str(folder)}).items()]
    serve = [str(binaries / "postgres"), "-D", str(folder / "data"), *flags]
    command = ["/bin/sh", "-c", WATCHED, "sh", str(folder), *serve]
    options["start_new_session"] = True  # else what kills the tests' process group kills who would clear up
    with subprocess.Popen(command, stdin=subprocess.PIPE, **options) as process:  # type: ignore[call-overload]
        cluster = Cluster(folder)
        cluster.wait_until_ready()
        yield cluster
        process.stdin.close()
        process.wait(DEADLINE_S)
    shutil.rmtree(folder, ignore_errors=True)  # the shell may not remove from /tmp what it does not own the parent of


def _version(folder: Path) -> int:
    said = subprocess.run([folder / "initdb", "--version"], capture_output=True, text=True).stdout
    digits = said.rpartition(") ")[2].partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _other_user() -> pwd.struct_passwd:
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


if __name__ == "__main__":
    if find_postgres() is None:
        install_postgres()
        find_postgres.cache_clear()
    print(find_postgres() or "no PostgreSQL for the tests: its half of them will be left out.")
