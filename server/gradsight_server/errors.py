"""What can go wrong in the server; `status` is the HTTP status it leaves with.

GradsightServerError                     500
├── InvalidRequestError (ValueError)     422  a value that cannot be right; the message names it
├── NoTrainingLogError (ValueError)      422  a log that was sent in has nothing about gradients in it
├── RunNotFoundError                     404
├── StreamNotFoundError                  404
├── StepNotFoundError                    404
├── AlertNotFoundError                   404
├── ControlRefusedError                  409  a threshold that cannot be changed from outside; the message says why
├── DatabaseClosedError (RuntimeError)   503  a database used after it was closed
├── DatabaseBusyError                    503  another process holds the database for longer than we wait
├── DiskFullError                        507  the database cannot grow: nothing of the request is stored
├── NewerDatabaseError                   500  the database was migrated by a newer Gradsight
├── SettingsError (ValueError)           500  the server was told something that cannot be right; it does not start
├── NothingToReadError                   500  a command found no server, run or log to read; it ends with exit code 1
└── RefusedRequestError                  400  a request turned away before anything looked at what it asks for
    ├── BrokenBodyError                  400  the body is not whole, or not in the encoding it claims
    ├── UnauthorizedError                401  the token is missing or wrong
    ├── HostNotAllowedError              403  asked for by a name that isn't this server's
    ├── CrossSiteError                   403  another site's page wanted to write
    ├── BodyTooSlowError                 408  the body did not arrive in time
    ├── BodyTooLargeError                413  more bytes than the server takes, as sent or decompressed
    ├── LogTooLongError                  413  a log that takes longer to read than the server gives it
    ├── UnsupportedMediaTypeError        415  a Content-Type or Content-Encoding the server does not read
    └── ServerBusyError                  503  too many batches wait for the writer: come back later
"""

from typing import ClassVar


class GradsightServerError(Exception):
    """Base of every error the server raises."""

    status: ClassVar[int] = 500


class InvalidRequestError(GradsightServerError, ValueError):
    """A value of a request that cannot be right; the message names it and says what would be."""

    status = 422


class NoTrainingLogError(GradsightServerError, ValueError):
    """A log that was sent in cannot be read, or says nothing about gradients; the message says what it has instead."""

    status = 422


class RunNotFoundError(GradsightServerError):
    """No run has this id: it was never created by PUT, or it was deleted."""

    status = 404

    def __init__(self, run_id: str) -> None:
        super().__init__(f"There is no run {run_id!r}; PUT /api/v1/runs/{{run_id}} creates one.")


class StreamNotFoundError(GradsightServerError):
    """The run has no stream of this name."""

    status = 404


class StepNotFoundError(GradsightServerError):
    """The stream has no such step, or not in the attempt asked for."""

    status = 404


class AlertNotFoundError(GradsightServerError):
    """The run has no alert of this number."""

    status = 404


class ControlRefusedError(GradsightServerError):
    """The threshold cannot be changed from outside: the run does not allow it, has ended, or has no such threshold."""

    status = 409


class DatabaseClosedError(GradsightServerError, RuntimeError):
    """The database was used after `close()`: the server is stopping."""

    status = 503


class DatabaseBusyError(GradsightServerError):
    """Another process holds the database for longer than we wait: come back later."""

    status = 503


class DiskFullError(GradsightServerError):
    """There is no room left for the database; what was to be stored is not, and nothing else has changed."""

    status = 507


class NewerDatabaseError(GradsightServerError):
    """The database was migrated by a newer Gradsight than this one."""


class SettingsError(GradsightServerError, ValueError):
    """A setting that cannot be right: the server does not start."""


class NothingToReadError(GradsightServerError):
    """A command found no server, run or log to read."""


class RefusedRequestError(GradsightServerError):
    """A request turned away before anything looked at what it asks for."""

    status = 400


class BrokenBodyError(RefusedRequestError):
    """The body is not whole, or not in the encoding it claims."""


class UnauthorizedError(RefusedRequestError):
    """The token is missing or wrong."""

    status = 401


class HostNotAllowedError(RefusedRequestError):
    """The server was asked for by a name that isn't its own, as in DNS rebinding."""

    status = 403


class CrossSiteError(RefusedRequestError):
    """A page of another site wanted to write."""

    status = 403


class BodyTooSlowError(RefusedRequestError):
    """The body did not arrive in time."""

    status = 408


class BodyTooLargeError(RefusedRequestError):
    """More bytes than the server takes, as sent or decompressed."""

    status = 413


class LogTooLongError(RefusedRequestError):
    """A log that takes longer to read than the server gives it: `gradsight import` has the time."""

    status = 413


class UnsupportedMediaTypeError(RefusedRequestError):
    """A Content-Type or Content-Encoding the server does not read."""

    status = 415


class ServerBusyError(RefusedRequestError):
    """Too many batches wait for the writer: come back later."""

    status = 503
