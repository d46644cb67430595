"""A number as logs write it: `nan`, `-Infinity`, `tensor(1.2, device='cuda:0')`, `1,234.5`, `2.06K`, `87%`."""

import math
import re
from typing import Any

NOT_RECORDED = frozenset({"", "-", "--", "–", "null", "none", "n/a", "na", "undefined"})
"""What stands in a cell of which nothing is known. (Not `nan`, which is a value.)"""
MAX_LENGTH = 400
"""No number is longer, be it the largest there is spelled out; what is, is prose or a list."""

_YES_AND_NO = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}
_WRAPPED = re.compile(
    r"(?:(?:torch|np|numpy|jnp|jax|tf)\.)?(?:\w+\.)*"
    r"(?:tensor|array|float\d*|int\d*|uint\d*|half|bfloat16|double|longdouble|bool_?|decimal)"
    r"\(\s*\[*\s*['\"]?([^\s,()\[\]'\"]+)['\"]?\s*\]*\s*(?:,.*)?\)",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:[,' \u00a0\u202f]\d{3})+(?:\.\d*)?(?:e[+-]?\d+)?", re.IGNORECASE)
_SUFFIXED = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)) ?([kmbgt])", re.IGNORECASE)
_SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_WINDOWS = re.compile(r"([+-]?)1\.#(inf|qnan|snan|ind|nan)\d*", re.IGNORECASE)
_NAN = re.compile(r"[+-]?nan(?:\(\w*\))?", re.IGNORECASE)


def number(value: Any) -> float | None:
    """The number a cell stands for; None where nothing was recorded, or nothing that is one number.

    Yes and no are 1.0 and 0.0; a percentage is the number before its sign; `1K` is a thousand.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _of_text(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:  # an integer beyond all floats
            return math.inf if value > 0 else -math.inf
    return None


def is_recorded(value: Any) -> bool:
    """Whether something stands in the cell, be it a number or not."""
    return not (value is None or (isinstance(value, str) and value.strip().lower() in NOT_RECORDED))


def _of_text(text: str) -> float | None:
    if len(text) > MAX_LENGTH:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    text = text.strip().strip("'\"`").strip()
    lower = text.lower()
    if lower in NOT_RECORDED:
        return None
    if lower in _YES_AND_NO:
        return _YES_AND_NO[lower]
    text = text.removesuffix("%").rstrip()
    if wrapped := _WRAPPED.fullmatch(text):
        return _of_text(wrapped[1])
    try:
        return float(text)
    except ValueError:
        pass
    if _THOUSANDS.fullmatch(text):
        return float(re.sub(r"[,' \u00a0\u202f]", "", text))
    if suffixed := _SUFFIXED.fullmatch(text):
        return float(suffixed[1]) * _SUFFIXES[suffixed[2].lower()]
    if windows := _WINDOWS.fullmatch(text):
        size = math.inf if windows[2].lower() == "inf" else math.nan
        return -size if windows[1] == "-" else size
    return math.nan if _NAN.fullmatch(text) else None
