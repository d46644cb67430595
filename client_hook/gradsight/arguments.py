"""The numbers and truths that policies, thresholds and monitors are given, checked once, at construction.

Each check gives the value as a plain float or int (a numpy scalar is fine, a bool is no number), or raises a
ConfigurationError that names the argument and the value.
"""

import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import Any

from gradsight.errors import ConfigurationError
from gradsight.wire import ALERT_KINDS


def positive(name: str, value: Any) -> float:
    """A number above 0; `inf` is one."""
    number = _real(name, value, "a positive number")
    if not number > 0:  # also true for NaN
        raise ConfigurationError(f"{name} must be positive, got {value!r}.")
    return number


def finite_from(name: str, value: Any, *, least: float) -> float:
    """A finite number not below `least`; where `least` is 0, above it."""
    number = _real(name, value, "a number")
    if not math.isfinite(number) or number < least or number == 0:
        wanted = f"from {least:g} on" if least else "positive"
        raise ConfigurationError(f"{name} must be {wanted} and finite, got {value!r}.")
    return number


def decay(name: str, value: Any) -> float:
    """The weight of the past in a moving mean, 0 ≤ value < 1: at 1 it would never learn."""
    number = _real(name, value, "a number")
    if not 0 <= number < 1:
        raise ConfigurationError(f"{name} must be from 0 to below 1, got {value!r}.")
    return number


def percentage(name: str, value: Any) -> float:
    number = _real(name, value, "a number")
    if not 0 <= number <= 100:
        raise ConfigurationError(f"{name} must be from 0 to 100, got {value!r}.")
    return number


def whole(name: str, value: Any, *, least: int, most: int = 2**53 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        until = "on" if most == 2**53 - 1 else f"to {most:,}"
        raise ConfigurationError(f"{name} must be a whole number from {least} {until}, got {value!r}.")
    return int(value)


def truth(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one: the text "no" would count as True."""
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, got {value!r}.")
    return value


def one_of(name: str, value: Any, known: Collection[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ConfigurationError(f"{name} must be one of {', '.join(known)}, got {value!r}.")
    return value


def alert_kinds(name: str, value: Any) -> frozenset[str]:
    """Kinds of alerts, as a set."""
    if isinstance(value, str) or not isinstance(value, Collection):  # a single text would be taken letter by letter
        raise ConfigurationError(f"{name} must be a set of kinds of alerts, got {value!r}.")
    for kind in value:
        if kind not in ALERT_KINDS:
            raise ConfigurationError(f"{name} must hold kinds among {', '.join(ALERT_KINDS)}, got {kind!r}.")
    return frozenset(value)


def patterns(name: str, value: Any) -> tuple[str, ...]:
    """Patterns on parameter names, as a tuple."""
    is_sequence = isinstance(value, list | tuple)  # a single text would be taken letter by letter
    if not is_sequence or not all(isinstance(pattern, str) and pattern for pattern in value):
        raise ConfigurationError(f"{name} must be a tuple of patterns on parameter names, got {value!r}.")
    return tuple(value)


def state_number(name: str, value: Any) -> float:
    """A number of a saved state: finite and not negative; whole where it is a count (`num_…`)."""
    if name.startswith("num_"):
        return whole(name, value, least=0)
    number = _real(name, value, "a number")
    if not 0 <= number < math.inf:
        raise ConfigurationError(f"{name} must be a finite number from 0 on, got {value!r}.")
    return number


def _real(name: str, value: Any, wanted: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ConfigurationError(f"{name} must be {wanted}, got {value!r}.")
    try:
        return float(value)
    except OverflowError as error:
        raise ConfigurationError(f"{name} must be {wanted} that a float can hold, got {value!r}.") from error
