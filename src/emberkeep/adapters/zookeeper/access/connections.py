"""Connections to ZooKeeper that leave a silent server in time to save the session at another one, for kazoo.

kazoo waits a whole session timeout until a server takes a connection. One whose machine is off never does, and the
session ends although the other servers are well. kazoo also takes its own requests for signs of life: while there is
always another one, it does not notice that no reply comes.

A third of the session timeout is left after a silence, and an attempt to connect may take 1.2 s or more, also at the
silent server. So a session outlives one silent server for each 4 s of its timeout, and none while this process pauses.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

# Of the session timeout, since the last reply. Without requests, kazoo takes as long to notice that a server is silent:
# it sends a ping after half of that time.
_SILENCE: Final = 2 / 3
_FEWEST_SERVERS: Final = 3  # a single name may stand for the addresses of all servers
_SHORTEST: Final = 1.2  # seconds; a lost first packet is repeated after one second
_MOST_DOUBLINGS: Final = 10

_Ready = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]


class PromptHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Connects in clear. ``session_timeout``: seconds; ``servers``: how many there are.

    The attempts to connect to all servers fit into the part of the session timeout that a silence leaves, unless that
    is too short for them. An attempt ends with the server's first reply. After each round in which no server has
    replied in time, an attempt may take twice as long: servers or a network may be slow.
    """

    def __init__(self, session_timeout: float, servers: int) -> None:
        super().__init__()
        self._session_timeout = session_timeout
        self._servers = max(servers, _FEWEST_SERVERS)
        self._late = 0  # attempts in a row that took too long
        self._first_due: float | None = None  # when a new connection must have got its first reply
        self._replied = 0.0
        self._unanswered_since: float | None = None

    @property
    def patience(self) -> float:
        """Seconds that the next attempt to connect may take."""
        first = max(_SHORTEST, self._session_timeout * (1 - _SILENCE) / self._servers)
        return float(min(self._session_timeout, first * 2 ** min(self._late // self._servers, _MOST_DOUBLINGS)))

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: Any) -> socket.socket:
        """Connect within ``patience``. Raises OSError."""
        due = time.monotonic() + self.patience
        try:
            connected = socket.create_connection(address, self.patience)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected = self.secured(connected, hostname or address[0], due)
            except BaseException:
                connected.close()
                raise
        except TimeoutError:
            self._late += 1
            raise
        self._first_due, self._unanswered_since = due, None
        return connected

    def secured(self, connected: socket.socket, hostname: str, due: float) -> socket.socket:
        """Return the connection to use, made by ``due`` of the monotonic clock. Raises OSError."""
        del hostname, due
        return connected

    def select(
        self,
        reading: Sequence[Any],
        writing: Sequence[Any],
        errors: Sequence[Any],
        timeout: float | None = None,
    ) -> _Ready:
        """Wait as ``select.select`` does. Raises TimeoutError if the server has left a request unanswered too long."""
        due = self._reply_due()
        if due is not None:
            left = max(0.0, due - time.monotonic())
            timeout = left if timeout is None else min(timeout, left)
        ready = self.ready(reading, writing, errors, timeout)
        if writing:
            self._unanswered_since = self._unanswered_since or time.monotonic()
        elif reading and reading[0] in ready[0]:  # kazoo puts the connection before the pipe that announces requests
            if self._first_due is not None:
                self._first_due, self._late = None, 0
            self._replied, self._unanswered_since = time.monotonic(), None
        elif due is not None and time.monotonic() >= due:
            self._late += self._first_due is not None
            raise TimeoutError(errno.ETIMEDOUT, "the server does not reply")
        return ready

    def _reply_due(self) -> float | None:
        """Return when the server must have replied; None if no reply is awaited."""
        if self._first_due is not None:
            return self._first_due
        if self._unanswered_since is None:
            return None
        # A reply takes time, too: this process may have paused, so that its request comes long after the last reply.
        silent, asked = _SILENCE * self._session_timeout, (1 - _SILENCE) * self._session_timeout
        return max(self._replied + silent, self._unanswered_since + asked)

    def ready(self, *sockets: Any) -> _Ready:
        """Wait as ``select.select`` does."""
        found: _Ready = super().select(*sockets)
        return found
