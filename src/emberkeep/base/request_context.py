"""What an HTTP request carries from the access check to its handler and to the audit log."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from aiohttp import web


class Login(StrEnum):
    """How the caller of a request has proven who it is."""

    TOKEN = "token"  # noqa: S105 - commands, programs, daemons
    SESSION = "session"  # a browser that has logged in
    NONE = "none"


REQUEST_LOGIN: Final = web.RequestKey("REQUEST_LOGIN", Login)
# whether the login is still valid
REQUEST_IS_LOGGED_IN: Final[web.RequestKey[Callable[[], bool]]] = web.RequestKey("REQUEST_IS_LOGGED_IN")
REQUEST_TARGET: Final = web.RequestKey("REQUEST_TARGET", dict[str, str])  # what it is about, besides its path


def is_logged_in(request: web.Request) -> bool:
    """True if the request's login is still valid: not logged out, expired or revoked since the request arrived."""
    still = request.get(REQUEST_IS_LOGGED_IN)
    return still is None or still()


def name_target(request: web.Request, **parts: str) -> None:
    """Record what a request is about, besides what its path says, for its entry in the audit log."""
    request[REQUEST_TARGET] = parts
