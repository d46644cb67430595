"""What users and environments give a run, checked once, at the door."""

import importlib.metadata
import json
import math
import operator
import os
import platform
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from gradsight import wire
from gradsight.errors import ConfigurationError


def word(name: str, value: Any, *, most: int = 256) -> str:
    """A name that the wire can carry."""
    if not isinstance(value, str) or not 1 <= len(value) <= most or "\0" in value or not _is_unicode(value):
        raise ConfigurationError(f"{name} must be a text of 1 to {most} characters (none of them NUL), got {value!r}.")
    return value


def stream(value: Any, *, what: str = "stream") -> str:
    """A stream's name, which arrives as it is."""
    if not isinstance(value, str) or not wire.is_stream_name(value) or not _is_unicode(value):
        raise ConfigurationError(f"{what} must be {wire.STREAM_RULE}, got {value!r}.")
    return value


def text(value: Any, *, most: int) -> str:
    """Any text as the wire can carry it: what it cannot is replaced."""
    return _as_unicode(str(value)).replace("\0", "\N{REPLACEMENT CHARACTER}")[:most]


def number(value: Any) -> float:
    """A value as a float: a tensor's is read without its graph."""
    return float(value.detach() if hasattr(value, "detach") else value)


def truth(name: str, value: Any) -> bool:
    """True or False: a tensor's or numpy's too, 0 and 1; the text "no" would count as True."""
    if isinstance(value, bool):
        return value
    plain = value.item() if hasattr(value, "item") else value
    if not isinstance(plain, bool | int | float) or plain not in (0, 1):
        raise ConfigurationError(f"{name} must be True or False, got {value!r}.")
    return bool(plain)


def folder(name: str, value: Any) -> Path:
    """A folder, by its whole path: the process may go elsewhere."""
    try:
        path = Path(value)
        is_path = "\0" not in str(path)
    except TypeError:
        is_path = False
    if not is_path:
        raise ConfigurationError(f"{name} must be the path of a folder, got {value!r}.")
    try:
        return path.absolute()
    except OSError:  # the working directory is gone; that nothing can be written here is said where it is tried
        return path


def norm(name: str, value: float) -> None:
    """Refuses a negative one, as the server would: there the steps beside it would go with it."""
    if value < 0:
        raise ConfigurationError(f"{name} must not be negative: it is a norm, got {value!r}.")


def _is_unicode(value: str) -> bool:
    """Whether it can be encoded: half of a surrogate pair cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_unicode(value: str) -> str:
    return value if _is_unicode(value) else value.encode("utf-8", "replace").decode()


def words(name: str, values: Any) -> list[str]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise ConfigurationError(f"{name} must be a list of texts, got {values!r}.")
    if len(values) > 64:
        raise ConfigurationError(f"{name} must be at most 64, got {len(values)}.")
    return [word(name, value) for value in values]


def step(value: Any) -> int:
    """An optimizer step's number."""
    number = operator.index(value)
    if isinstance(value, bool) or not 0 <= number <= wire.MAX_STEP:
        raise ConfigurationError(f"step must be a whole number from 0 to 2^53−1, got {value!r}.")
    return number


def total_steps(value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= wire.MAX_STEP):
        raise ConfigurationError(f"total_steps must be a whole number from 1 on, got {value!r}.")
    return value


def server(address: Any, *, what: str = "server") -> str:
    """The server's address without a slash at its end."""
    given = address.strip() if isinstance(address, str) else ""  # one read from a file ends in a newline
    try:
        parts, url = urlsplit(given), httpx.URL(given)
        url.raw_host.decode("ascii").encode("idna")  # as the socket will: it refuses labels that are empty or too long
        is_whole = bool(url.host) and (parts.port or 1) > 0 and not re.search(r"[\s?#]", given)
    except (ValueError, httpx.InvalidURL):
        is_whole = False
    if not is_whole or parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"{what} must be an address like http://127.0.0.1:8420, got {address!r}.")
    return given.rstrip("/")


def token(value: Any, *, what: str = "token") -> str | None:
    """The token without space around it; None for an empty one. No message says what it is."""
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{what} must be a text, got a {type(value).__name__}.")
    given = (value or "").strip()  # one read from a file ends in a newline
    if not _is_unicode(given):
        raise ConfigurationError(f"{what} must be text in UTF-8, but has other bytes in it.")
    if any(character < " " or character == "\x7f" for character in given):
        raise ConfigurationError(f"{what} must be one line without control characters, but has some in it.")
    return given or None


def run_id(resume: Any, *, is_shared: bool) -> str:
    """32 hex digits: the run that is resumed, the one the environment names, or, where no other rank has to know it, a
    new one."""
    given, source = (
        (resume, "resume") if resume is not None else (os.environ.get("GRADSIGHT_RUN_ID"), "GRADSIGHT_RUN_ID")
    )
    if given:
        digits = str(given).replace("-", "").lower()
        if not re.fullmatch(r"[0-9a-f]{32}", digits):
            raise ConfigurationError(f"{source} must be a run id of 32 hex digits, got {given!r}.")
        return digits
    if is_shared:
        raise ConfigurationError("all_ranks needs one GRADSIGHT_RUN_ID that every rank knows, got none.")
    return uuid.uuid4().hex


def config(value: Any) -> dict[str, Any]:
    """Settings as JSON can carry them; what it cannot is shown as its repr."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"config must be a mapping, got {value!r}.")
    kept = {_as_unicode(str(key)): _jsonable(item, depth=0) for key, item in value.items()}
    if len(json.dumps(kept)) > 500_000:
        raise ConfigurationError(f"config must be at most 500,000 characters, got {len(json.dumps(kept))}.")
    return kept


def _jsonable(value: Any, *, depth: int) -> Any:
    if isinstance(value, str):
        return _as_unicode(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= wire.MAX_STEP else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else wire.word(value)
    if depth < 8 and isinstance(value, Mapping):
        return {_as_unicode(str(key)): _jsonable(item, depth=depth + 1) for key, item in value.items()}
    if depth < 8 and isinstance(value, list | tuple):
        return [_jsonable(item, depth=depth + 1) for item in value]
    return _as_unicode(repr(value))


def frameworks() -> dict[str, str]:
    """Versions of what this process trains with, without importing anything."""
    found = {"python": platform.python_version(), "gradsight": _version("gradsight")}
    for name in ("torch", "jax", "tensorflow", "transformers", "lightning", "numpy"):
        if name in sys.modules:
            found[name] = str(getattr(sys.modules[name], "__version__", None) or _version(name))
    return found


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
