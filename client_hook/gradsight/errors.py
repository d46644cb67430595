"""What can go wrong on the client side.

GradsightError
├── ConfigurationError (ValueError)      a wrong argument, at construction
├── WireError (ValueError)               a record that breaks the wire contract
├── TransportError                       the server did not take what was sent
│   ├── ServerUnreachableError           no answer that counts, the message says why: try again later
│   │   └── NoServerError                nobody listens there
│   ├── ServerRefusedError               this request will never be taken: dropping it is the only way on
│   └── ServerRefusedTokenError          the token is missing or wrong: the request itself is fine
├── ClosedError (RuntimeError)           a run or monitor used after it was closed
└── TrainingStopped (RuntimeError)       an alert the training was to stop on; raised only where asked for
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradsight.alerts import Alert


class GradsightError(Exception):
    """Base of every error this package raises."""


class ConfigurationError(GradsightError, ValueError):
    """An argument that cannot be right; the message names it and the value."""


class WireError(GradsightError, ValueError):
    """A record that breaks the wire contract; `field` is the path of the offending field."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class TransportError(GradsightError):
    """The server did not take what was sent."""


class ServerUnreachableError(TransportError):
    """Nobody answered, or the answer said to come back later; the message is for people, in one line."""


class NoServerError(ServerUnreachableError):
    """Nobody listens at this address."""


class ServerRefusedError(TransportError):
    """The server will never take this request; `status` is its HTTP status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class ServerRefusedTokenError(TransportError):
    """The token is missing or wrong; the request may be sent again with the right one."""


class ClosedError(GradsightError, RuntimeError):
    """A run or monitor was used after it was closed."""


class TrainingStopped(GradsightError, RuntimeError):  # noqa: N818  # it is no mistake: the training asked to be stopped
    """An alert named in `stop_on` has opened. The step that raises this has changed nothing."""

    def __init__(self, alert: "Alert") -> None:
        super().__init__(str(alert))
        self.alert = alert
