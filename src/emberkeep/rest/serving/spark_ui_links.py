"""Links to the Spark UIs of attempts, at the port that serves nothing else.

A link has a random ticket in its path. The ticket shows the UI of one attempt to one browser, the first that opens it,
for as long as the login that asked for it is valid, and for LIFETIME_SECONDS at most. Only hashes of tickets are kept,
in the memory of one process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from aiohttp import web
from yarl import URL

from emberkeep.base.clock import since_boot
from emberkeep.base.identity import Identity
from emberkeep.base.ids import JobId
from emberkeep.base.request_context import is_logged_in
from emberkeep.base.request_identity import REQUEST_IDENTITY

LIFETIME_SECONDS = 8 * 3600.0
MOST_TICKETS = 512
MOST_OF_ONE = 64  # of one identity, so that it cannot end the links of all others
_RANDOM_BYTES = 32


@dataclass(frozen=True)
class SparkUiView:
    """The attempt of a job whose Spark UI is shown."""

    job_id: JobId
    attempt: int


@dataclass(frozen=True)
class _Ticket:
    """``until``: a reading of the clock ``now`` of SparkUiLinks. ``browser``: hash of the cookie of its browser."""

    view: SparkUiView
    identity: Identity
    is_logged_in: Callable[[], bool]
    until: float
    browser: bytes = b""


@dataclass(frozen=True)
class OpenedUi:
    """What a request may see.

    ``identity``: who has asked for the link. ``base``: the path of the ticket. ``cookie``: for a browser that has just
    opened it.
    """

    view: SparkUiView
    identity: Identity
    base: str
    cookie: str


class SparkUiLinks:
    """The tickets of links. ``port``: where the Spark UIs are served.

    If there are too many tickets, the oldest ones end.
    """

    valid_for_ms = int(LIFETIME_SECONDS * 1000)

    def __init__(self, port: int, now: Callable[[], float] = since_boot) -> None:
        self._port = port
        self._now = now
        self._tickets: dict[bytes, _Ticket] = {}  # the oldest first

    def new(self, request: web.Request, view: SparkUiView) -> str:
        """Return a link for the caller of ``request``, with the host name by which it has reached this server."""
        secret, now, identity = secrets.token_urlsafe(_RANDOM_BYTES), self._now(), request[REQUEST_IDENTITY]
        self._tickets = {key: ticket for key, ticket in self._tickets.items() if self._is_valid(ticket)}
        own = [key for key, ticket in self._tickets.items() if ticket.identity.name == identity.name]
        for key in (*_oldest(own, MOST_OF_ONE - 1), *_oldest(list(self._tickets), MOST_TICKETS - 1)):
            self._tickets.pop(key, None)
        self._tickets[_digest(secret)] = _Ticket(
            view, identity, lambda: is_logged_in(request), until=now + LIFETIME_SECONDS
        )
        host = request.url.host or "localhost"
        return str(URL.build(scheme=request.scheme, host=host, port=self._port, path=f"/{secret}/"))

    def opened(self, request: web.Request) -> OpenedUi | None:
        """Return what the request may see; None without a valid ticket of this browser in its path."""
        secret = request.rel_url.raw_path.removeprefix("/").partition("/")[0]
        key = _digest(secret)
        ticket = self._tickets.get(key)
        if ticket is None:
            return None
        if not self._is_valid(ticket):
            del self._tickets[key]
            return None
        base = f"/{secret}"
        if not ticket.browser:
            cookie = secrets.token_urlsafe(_RANDOM_BYTES)
            self._tickets[key] = replace(ticket, browser=_digest(cookie))
            return OpenedUi(ticket.view, ticket.identity, base, cookie)
        shown = request.cookies.get(self.cookie_name, "")
        if not hmac.compare_digest(_digest(shown), ticket.browser):
            return None
        return OpenedUi(ticket.view, ticket.identity, base, "")

    @property
    def cookie_name(self) -> str:
        """Name of the cookie of each ticket. Browsers keep one for each path, and send it to every port of a host."""
        return f"emberkeep-spark-ui-{self._port}"

    def _is_valid(self, ticket: _Ticket) -> bool:
        return self._now() < ticket.until and ticket.is_logged_in()


def _oldest(keys: list[bytes], kept: int) -> list[bytes]:
    """Return what must go of ``keys``, the oldest first, so that at most ``kept`` stay."""
    return keys[: max(0, len(keys) - kept)]


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
