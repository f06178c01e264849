"""Connections to ZooKeeper that leave a silent server in time to save the session at another one, for kazoo.

kazoo waits a whole session timeout until a server takes a connection. One whose machine is off never does, and the
session ends although the other servers are well. kazoo also takes its own requests for signs of life: while there is
always another one, it does not notice that no reply comes.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler

# Of the session timeout. Without requests, kazoo takes as long to notice that a server is silent.
_SILENCE: Final = 2 / 3
_FEWEST_SERVERS: Final = 3  # a single name may stand for the addresses of all servers
_SHORTEST: Final = 1.2  # seconds; a lost first packet is repeated after one second
_MOST_DOUBLINGS: Final = 10

_Ready = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]


class PromptHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Connects in clear. ``session_timeout``: seconds; ``servers``: how many there are.

    The attempts to connect to all servers fit into the part of the session timeout that a silence leaves. After each
    round in which no server took a connection in time, an attempt may take twice as long: servers or a network may be
    slow.
    """

    def __init__(self, session_timeout: float, servers: int) -> None:
        super().__init__()
        self._session_timeout = session_timeout
        self._servers = max(servers, _FEWEST_SERVERS)
        self._late = 0  # attempts in a row that took too long
        self._unanswered_since: float | None = None

    @property
    def patience(self) -> float:
        """Seconds that the next attempt to connect may take."""
        first = max(_SHORTEST, self._session_timeout * (1 - _SILENCE) / self._servers)
        return float(min(self._session_timeout, first * 2 ** min(self._late // self._servers, _MOST_DOUBLINGS)))

    def create_connection(self, address: tuple[str, int], hostname: str | None = None, **_: Any) -> socket.socket:
        """Connect within ``patience``. Raises OSError."""
        self._unanswered_since = None
        deadline = time.monotonic() + self.patience
        try:
            connected = socket.create_connection(address, self.patience)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected = self.secured(connected, hostname or address[0], deadline)
            except BaseException:
                connected.close()
                raise
        except TimeoutError:
            self._late += 1
            raise
        self._late = 0
        return connected

    def secured(self, connected: socket.socket, hostname: str, deadline: float) -> socket.socket:
        """Return the connection to use, made by ``deadline`` of the monotonic clock. Raises OSError."""
        del hostname, deadline
        return connected

    def select(self, reading: Sequence[Any], writing: Sequence[Any], *others: Any) -> _Ready:
        """Wait as ``select.select`` does. Raises TimeoutError if the server has left a request unanswered too long."""
        ready = self.ready(reading, writing, *others)
        now = time.monotonic()
        if writing:
            if self._unanswered_since is None:
                self._unanswered_since = now
        elif reading and reading[0] in ready[0]:  # kazoo puts the connection before the pipe that announces requests
            self._unanswered_since = None
        elif self._unanswered_since is not None and now - self._unanswered_since > _SILENCE * self._session_timeout:
            raise TimeoutError(errno.ETIMEDOUT, f"no reply for {now - self._unanswered_since:.1f} s")
        return ready

    def ready(self, *sockets: Any) -> _Ready:
        """Wait as ``select.select`` does."""
        found: _Ready = super().select(*sockets)
        return found
