"""Accepts a port's connections within its limits. A shortage of descriptors neither ends nor occupies the server."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from aiohttp import web

from emberkeep.adapters.http.served_connection import LOGIN_SECONDS, ServedConnection
from emberkeep.base.clock import since_boot
from emberkeep.base.connections import Connections

log = structlog.get_logger(__name__)

_BACKLOG = 128  # connections that wait to be accepted
_AT_ONCE = 8  # connections that are accepted before the loop serves the earlier ones again
_REPORT_SECONDS = 60.0  # between two lines in the log about callers' certificates
_PAUSE = 0.2  # seconds before the next connection is accepted after an error


class Listener:
    """Listens on a bound socket until ``close``, which closes the socket but no accepted connection."""

    def __init__(
        self,
        bound: socket.socket,
        connections: Connections,
        server: Callable[[], web.Server | None],
        tls: ssl.SSLContext | None = None,
        login_seconds: float = LOGIN_SECONDS,
    ) -> None:
        """``server`` returns the server of the next connection, or None to refuse the connection.

        ``tls`` encrypts all connections; None: they are not encrypted. ``login_seconds``: a connection without a valid
        login is closed after this time.
        """
        self._socket = bound
        self._connections = connections
        self._server = server
        self._tls = tls
        self._login_seconds = login_seconds
        self._resume: asyncio.TimerHandle | None = None
        self._is_short = False  # the last acceptance failed
        self._opening: set[asyncio.Task[Any]] = set()
        self._reported_at: float | None = None  # when a caller's certificate was last refused, and logged

    def open(self) -> None:
        """Listen. Raises OSError if another process took the port."""
        self._socket.listen(_BACKLOG)
        self._attend()

    def close(self) -> None:
        """Stop listening and close the socket. Idempotent."""
        if self._resume is not None:
            self._resume.cancel()
        if self._socket.fileno() < 0:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        for opening in self._opening:
            opening.cancel()

    def _attend(self) -> None:
        self._resume = None
        asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._is_short = False
            self._receive(connection, address[0])

    def _pause(self, error: OSError) -> None:
        """Free a descriptor if possible, and accept nothing for a moment: each attempt would fail at once."""
        if not self._is_short:
            log.error(
                "cannot accept a connection",
                reason=str(error),
                hint="raise the limit of open files (ulimit -n) and start again",
            )
        self._is_short = True
        self._connections.displace_one()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        self._resume = loop.call_later(_PAUSE, self._attend)

    def _receive(self, accepted: socket.socket, address: str) -> None:
        server = self._server()
        if server is None:
            accepted.close()
            return
        connection = ServedConnection(server, self._connections, address, lambda: self._server() is not server)
        if not self._connections.admit(connection):
            accepted.close()
            return
        accepted.setblocking(False)
        loop = asyncio.get_running_loop()
        connecting = loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._tls)
        opening = asyncio.create_task(connecting, name="accepted connection")
        connection.begin(opening, self._login_seconds)
        self._opening.add(opening)
        opening.add_done_callback(partial(self._opened, accepted, connection))

    def _opened(self, accepted: socket.socket, connection: ServedConnection, opening: asyncio.Task[Any]) -> None:
        self._opening.discard(opening)
        if opening.cancelled() or opening.exception() is not None:
            accepted.close()
            connection.end()
            if not opening.cancelled() and isinstance(failure := opening.exception(), ssl.SSLCertVerificationError):
                self._report(connection, failure)

    def _report(self, connection: ServedConnection, failure: ssl.SSLCertVerificationError) -> None:
        """Log that a caller's certificate was refused: the caller itself only sees that the connection breaks."""
        now = since_boot()
        if self._reported_at is None or now - self._reported_at >= _REPORT_SECONDS:
            self._reported_at = now
            log.warning(
                "refused a connection for its certificate",
                address=connection.address,
                reason=failure.verify_message,
                hint="renew the certificate of that node; browsers and programs need none",
            )
