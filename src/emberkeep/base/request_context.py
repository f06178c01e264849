"""What an HTTP request carries from the access check to its handler and to the audit log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
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
# The name of the identity whose request is being served in this task; "" outside a request.
_CALLER: Final[ContextVar[str]] = ContextVar("emberkeep.caller", default="")
REQUEST_TARGET: Final = web.RequestKey("REQUEST_TARGET", dict[str, str])  # what it is about, besides its path


def is_logged_in(request: web.Request) -> bool:
    """True if the request's login is still valid: not logged out, expired or revoked since the request arrived."""
    still = request.get(REQUEST_IS_LOGGED_IN)
    return still is None or still()


def name_target(request: web.Request, **parts: str) -> None:
    """Record what a request is about, besides what its path says, for its entry in the audit log."""
    request[REQUEST_TARGET] = parts


@contextlib.contextmanager
def called_by(name: str) -> Iterator[None]:
    """Let ``caller`` return ``name`` in the body."""
    token = _CALLER.set(name)
    try:
        yield
    finally:
        _CALLER.reset(token)


def caller() -> str:
    """Return the name of the identity that asks for what this task does; "" if no request is being served."""
    return _CALLER.get()
