"""The page's files: found in a checkout or a wheel, hashed into their URL, compressed once, and never read by path.

Whatever is served was listed from a folder first, so no URL can reach a file outside it.
"""

import gzip
import hashlib
import mimetypes
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).parent
PAGES = PACKAGE / "pages"
"""Pages that exist without web/: login, docs."""

SMALLEST_WORTH_GZIP = 1_000
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_COMPRESSIBLE = ("text/", "application/json", "application/manifest", "image/svg")


def find_web() -> Path:
    """The page's folder: the repository's own in a checkout, the wheel's copy elsewhere."""
    for folder in (PACKAGE / "web", PACKAGE.parent.parent / "web"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"web/ is neither in {PACKAGE} nor beside the checkout's server/: reinstall gradsight.")


def find_package_file(package: str, *parts: str) -> Path:
    """A file of an installed package, found without importing the package (plotly takes half a second)."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {package!r} is not installed: pip install 'gradsight[server]'.")
    return Path(spec.origin).parent.joinpath(*parts)


def media_type(name: str) -> str:
    """The Content-Type of a file, the same on every machine for what a browser must be sure of."""
    kind = _TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


@dataclass(frozen=True)
class Asset:
    """One file's bytes as they go out."""

    media_type: str
    raw: bytes | None
    """None where only the compressed form is kept."""
    gzipped: bytes | None

    def body(self, *, accepts_gzip: bool) -> tuple[bytes, bool]:
        """The bytes to send, and whether they are gzipped."""
        if self.gzipped is not None and accepts_gzip:
            return self.gzipped, True
        return (self.raw if self.raw is not None else gzip.decompress(self.gzipped or b"")), False


class Assets:
    """Named files under one hashed URL, `/static/<hash>/<name>`."""

    def __init__(self, scan: Callable[[], dict[str, Path]], *, first_line: bytes = b"") -> None:
        self._scan = scan
        self._first_line = first_line
        self._lock = threading.Lock()
        self._files: dict[str, Path] = {}
        self._signature: list[tuple[str, int, int]] = []
        self._hash = ""
        self._kept: dict[str, Asset] = {}

    @classmethod
    def of_folder(cls, folder: Path) -> "Assets":
        """Every file below `folder`, hidden ones left out."""
        return cls(
            lambda: {
                path.relative_to(folder).as_posix(): path
                for path in sorted(folder.rglob("*"))
                if path.is_file() and not path.name.startswith(".")
            }
        )

    @classmethod
    def of_files(cls, files: dict[str, Path], *, first_line: bytes = b"") -> "Assets":
        """Single files, by the name they are asked for.

        Args:
            first_line: Goes before what is in each of them.
        """
        return cls(lambda: files, first_line=first_line)

    def hash(self) -> str:
        """What stands for these files in the URL. Looks at them again: editing the page needs no restart."""
        files = self._scan()
        signature = [(name, stat.st_mtime_ns, stat.st_size) for name, path in files.items() if (stat := path.stat())]
        with self._lock:
            if signature != self._signature:
                self._files, self._signature, self._kept = files, signature, {}
                self._hash = _digest(files, self._first_line)
            return self._hash

    @property
    def files(self) -> Mapping[str, Path]:
        """By name, as they were when they were last hashed."""
        return self._files

    def get(self, hashed: str, name: str) -> Asset | None:
        """The file of that name, compressed the first time somebody asks; None where there is none (any more)."""
        if hashed != self._hash and hashed != self.hash():
            return None
        with self._lock:
            if name not in self._kept and name in self._files:
                self._kept[name] = _load(self._files[name], self._first_line)
            return self._kept.get(name)


def _digest(files: dict[str, Path], first_line: bytes) -> str:
    digest = hashlib.blake2b(first_line, digest_size=8)
    for name, path in files.items():
        raw = path.read_bytes()
        digest.update(f"{name}\0{len(raw)}\0".encode() + raw)
    return digest.hexdigest()


def _load(path: Path, first_line: bytes) -> Asset:
    raw = first_line + path.read_bytes()
    kind = media_type(path.name)
    if len(raw) < SMALLEST_WORTH_GZIP or not kind.startswith(_COMPRESSIBLE):
        return Asset(kind, raw, None)
    # Level 6: on plotly's 5 MB, level 9 takes three times as long for one per cent.
    return Asset(kind, None, gzip.compress(raw, 6, mtime=0))
