"""Where a page of a list ended, as text that the next request brings back."""

import base64
from collections.abc import Sequence
from types import GenericAlias
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, tuple_

from gradsight_server.errors import InvalidRequestError


def encode(*key: float | str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode().rstrip("=")


def decode(cursor: str, *kinds: Any) -> tuple[Any, ...]:
    """The key in a cursor, of these types; those of integers say how large the column's can be.

    Raises:
        InvalidRequestError: it is none of ours, or of a list in another order.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key: tuple[Any, ...] = msgspec.json.decode(text, type=GenericAlias(tuple, kinds))
    except (ValueError, msgspec.DecodeError):
        raise not_ours(cursor) from None
    if any("\0" in part for part in key if isinstance(part, str)):  # no text of ours has one, and PostgreSQL takes none
        raise not_ours(cursor)
    return key


def not_ours(cursor: str) -> InvalidRequestError:
    return InvalidRequestError(f"cursor must be a next_cursor of this very list, got {cursor!r}.")


def after(columns: Sequence[ColumnElement[Any]], key: tuple[Any, ...], *, descending: bool) -> ColumnElement[bool]:
    """The rows that follow this key in the list's order."""
    row = tuple_(*columns)
    return row < key if descending else row > key
