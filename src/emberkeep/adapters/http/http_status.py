"""The HTTP status of each kind of error, in RPC and REST alike, and when to try again."""

from __future__ import annotations

import math
from http import HTTPStatus

from emberkeep.base.errors import (
    Absent,
    Conflict,
    EmberkeepError,
    Forbidden,
    InvalidInput,
    OverQuota,
    RetryLater,
    UnknownOutcome,
)
from emberkeep.blobs.errors import CannotStore, NotUploaded

_STATUS: tuple[tuple[type[EmberkeepError], HTTPStatus], ...] = (
    (NotUploaded, HTTPStatus.FAILED_DEPENDENCY),  # before its base class
    (InvalidInput, HTTPStatus.BAD_REQUEST),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (Absent, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (OverQuota, HTTPStatus.TOO_MANY_REQUESTS),
    (RetryLater, HTTPStatus.SERVICE_UNAVAILABLE),
    (UnknownOutcome, HTTPStatus.GATEWAY_TIMEOUT),
    (CannotStore, HTTPStatus.INSUFFICIENT_STORAGE),
)


def http_status(error: EmberkeepError) -> HTTPStatus:
    """Return the HTTP status for an error: the status of the first class in the table that it is an instance of."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def whole_seconds(seconds: float) -> int:
    """Return the value of the header Retry-After: whole seconds, at least 1."""
    return max(1, math.ceil(seconds))
