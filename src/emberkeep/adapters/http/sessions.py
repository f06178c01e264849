"""Sessions of browsers, and the one-time codes in login links.

Both are random, expire, are bounded in number, and live in the memory of one process. Only hashes of them are kept.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from aiohttp import hdrs, web

from emberkeep.base.clock import since_boot
from emberkeep.base.identity import Identity

IDLE_SECONDS = 3600.0  # an open page asks for news every few seconds, which counts as use
LIFETIME_SECONDS = 12 * 3600.0
CODE_SECONDS = 600.0
MOST_SESSIONS = 256
MOST_CODES = 64
_RANDOM_BYTES = 32
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True)
class _Session:
    """A session: its user, when it ends unless it is used, and when it ends in any case.

    Both times are readings of the clock ``now`` of WebSessions, in seconds.
    """

    identity: Identity
    idle_until: float
    until: float

    def is_over(self, now: float) -> bool:
        return now >= min(self.idle_until, self.until)


@dataclass(frozen=True)
class _Code:
    identity: Identity
    until: float  # a reading of the clock ``now`` of WebSessions, in seconds


EntryT = TypeVar("EntryT", _Session, _Code)


class WebSessions:
    """The sessions that are open, and the codes that have not been used yet.

    If there are too many sessions, the least recently used one of the identity with the most sessions ends; if there
    are too many codes, the oldest one of the identity with the most codes.
    ``is_valid`` returns True if an identity may still log in: the sessions and codes of an identity whose tokens are
    revoked or have expired end.
    """

    def __init__(
        self, now: Callable[[], float] = since_boot, is_valid: Callable[[Identity], bool] = lambda _: True
    ) -> None:
        self._now = now
        self.is_valid = is_valid
        self._sessions: dict[bytes, _Session] = {}  # the least recently used first
        self._codes: dict[bytes, _Code] = {}  # the oldest first

    def new_code(self, identity: Identity) -> str:
        """Return a code that begins one session of ``identity`` within CODE_SECONDS."""
        secret, now = secrets.token_urlsafe(_RANDOM_BYTES), self._now()
        self._codes = {key: code for key, code in self._codes.items() if now < code.until}
        _make_room(self._codes, MOST_CODES)
        self._codes[_digest(secret)] = _Code(identity, now + CODE_SECONDS)
        return secret

    def redeem(self, secret: str) -> Identity | None:
        """Use up a code. Return the identity for which a session may be started; None if the code is not valid."""
        code = self._codes.pop(_digest(secret), None)
        if code is None or self._now() >= code.until or not self.is_valid(code.identity):
            return None
        return code.identity

    def begin(self, identity: Identity, seconds: float = LIFETIME_SECONDS) -> str:
        """Return the id of a new session, which ends after ``seconds`` in any case."""
        session_id, now = secrets.token_urlsafe(_RANDOM_BYTES), self._now()
        self._sessions = {key: session for key, session in self._sessions.items() if not session.is_over(now)}
        _make_room(self._sessions, MOST_SESSIONS)
        self._sessions[_digest(session_id)] = _Session(
            identity, now + IDLE_SECONDS, now + min(seconds, LIFETIME_SECONDS)
        )
        return session_id

    def use(self, session_id: str) -> Identity | None:
        """Return the session's identity; None if the session is not open.

        An open session stays open for another IDLE_SECONDS, within its lifetime.
        """
        key, now = _digest(session_id), self._now()
        session = self._sessions.pop(key, None)
        if session is None or session.is_over(now) or not self.is_valid(session.identity):
            return None
        self._sessions[key] = replace(session, idle_until=now + IDLE_SECONDS)
        return session.identity

    def is_open(self, session_id: str) -> bool:
        """True if the session is open. Does not count as use."""
        session = self._sessions.get(_digest(session_id))
        return session is not None and not session.is_over(self._now()) and self.is_valid(session.identity)

    def seconds_left(self, session_id: str) -> float:
        """Return for how long the session may last if it is used; 0 if it is not open. Does not count as use."""
        session = self._sessions.get(_digest(session_id))
        return 0.0 if session is None or not self.is_open(session_id) else session.until - self._now()

    def end(self, session_id: str) -> None:
        """End a session. Unknown ids are ignored."""
        self._sessions.pop(_digest(session_id), None)


@dataclass(frozen=True)
class WebAccess:
    """What a browser that has logged in may do: ``routes`` are pairs of method and declared pattern."""

    sessions: WebSessions
    routes: frozenset[tuple[str, str]]

    def allows(self, request: web.Request) -> bool:
        """True if the request is for one of the routes, or matches no route, which is answered with 404 or 405."""
        resource = request.match_info.route.resource
        method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
        return resource is None or (method, resource.canonical) in self.routes


def session_cookie_name(request: web.Request) -> str:
    """Return the name of the session's cookie, with the port that the browser connects to.

    Browsers share cookies between the ports of a host. Two clusters on one machine therefore need two names.
    """
    port = request.headers.get(hdrs.HOST, "").rpartition(":")[2]
    name = f"emberkeep-{port if port.isascii() and port.isdecimal() else _DEFAULT_PORTS.get(request.scheme, '0')}"
    return f"__Host-{name}" if request.secure else name


def session_of(request: web.Request) -> str | None:
    """Return the session id that the browser has sent, open or not."""
    return request.cookies.get(session_cookie_name(request))


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _make_room(entries: dict[bytes, EntryT], most: int) -> None:
    """Delete an entry if there are ``most``: the first one of whoever has the most, who so ends no other's."""
    if len(entries) < most:
        return
    counts = Counter(entry.identity.name for entry in entries.values())
    highest = max(counts.values())
    del entries[next(key for key, entry in entries.items() if counts[entry.identity.name] == highest)]
