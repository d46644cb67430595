"""By which names this server may be asked for: a page that rebinds its own name to our address is turned away."""

import ipaddress
import re
import socket
from collections.abc import Iterable
from fnmatch import fnmatchcase

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^][:/?#@\\\s]+))(?::\d*)?")


class Hosts:
    """The names that are this server's own."""

    def __init__(self, bound: str, allowed: Iterable[str] = ()) -> None:
        machine = socket.gethostname().lower()
        short = machine.partition(".")[0]
        self._names = {"localhost", bound.lower(), machine, short, f"{short}.local"}
        self._patterns = [name.lower() for name in allowed]
        self._any_address = _address(bound) in (ipaddress.ip_address("0.0.0.0"), ipaddress.ip_address("::"))

    def allow(self, header: str | None) -> bool:
        """Whether a Host header names this server. Without one the asker is no browser, so nothing was rebound."""
        if header is None:
            return True
        name = host_name(header)
        address = _address(name)
        if address is not None and (self._any_address or address.is_loopback):
            return True
        return name in self._names or self.allow_by_option(name)

    def allow_by_option(self, name: str) -> bool:
        """Whether the person who started the server named this host."""
        return any(fnmatchcase(name, pattern) for pattern in self._patterns)


def host_name(header: str) -> str:
    """The name in a Host header, without port, brackets and the dot that may end it; empty where it isn't one."""
    found = _HOST.fullmatch(header.strip().lower())
    return (found["address"] or found["name"]).removesuffix(".") if found else ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
