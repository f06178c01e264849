"""A server's connection that ends early unless its client presents a valid login.

aiohttp gives a client an hour for its first request, and a request's headers up to 1 MiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, cast

from aiohttp import hdrs, web

from emberkeep.base.connections import Connections, Rejection

LOGIN_SECONDS = 10.0  # after connecting: for the TLS handshake and a request with a valid login
IDLE_SECONDS = 75.0  # between two requests: longer than clients and proxies keep idle connections
MOST_HEAD = 32 * 1024  # bytes of a request's line and headers before the login; a browser's cookies take some
READ_BUFFER = 256 * 1024  # bytes of a request's body that are read ahead; large pieces cost less

# Bodies are not decompressed: a small one could decompress to more than any limit.
_SETTINGS: dict[str, Any] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": IDLE_SECONDS,
    "read_bufsize": READ_BUFFER,
}
_Handle = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_CONTINUE = "100-continue"
_HEAD_END = b"\r\n\r\n"
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class ServedConnection(web.RequestHandler):
    """One connection of a client, from its acceptance. Unproven until ``prove`` is called.

    While it is unproven, it lasts LOGIN_SECONDS at most and serves one request.
    """

    __slots__ = ("_connections", "_deadline", "_head", "_is_replaced", "_opening", "_wire", "address", "is_proven")

    def __init__(
        self, server: web.Server, connections: Connections, address: str, is_replaced: Callable[[], bool]
    ) -> None:
        """``is_replaced``: whether another server has taken the port, so that ``server`` would never close this."""
        super().__init__(server, loop=asyncio.get_running_loop(), **_SETTINGS)
        self.address = address
        self.is_proven = False
        self._connections = connections
        self._is_replaced = is_replaced
        self._deadline: asyncio.TimerHandle | None = None
        self._opening: asyncio.Future[Any] | None = None
        self._wire: asyncio.Transport | None = None
        self._head: bytearray | None = bytearray()  # of the first request; None once it is complete

    def begin(self, opening: asyncio.Future[Any], login_seconds: float) -> None:
        """Start the deadline for the login. ``opening`` connects the socket with this object."""
        self._opening = opening
        self._deadline = asyncio.get_running_loop().call_later(login_seconds, self._expire)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast("asyncio.Transport", transport)
        super().connection_made(transport)
        if self._is_replaced():  # during a TLS handshake, which may take seconds
            self._wire.abort()

    def data_received(self, data: bytes) -> None:
        if self._head is None or self._is_small_head(self._head, data):
            super().data_received(data)
            return
        self._connections.reject(self, Rejection.LARGE_HEAD)
        if self._wire is not None:
            self._wire.write(_TOO_LARGE)
        self.force_close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.end()
        super().connection_lost(exc)

    def log_exception(self, *args: Any, **fields: Any) -> None:
        """Log a malformed request only if its client has a login: a stranger's requests must not fill the log."""
        if self.is_proven:
            super().log_exception(*args, **fields)

    def prove(self) -> None:
        """Record that a request has presented a valid login."""
        if not self.is_proven:
            self.is_proven = True
            self._cancel_deadline()
            self._connections.prove(self)

    def drop(self) -> None:
        """Close the connection at once. Data that was not sent yet is lost."""
        if self._wire is not None:
            self._wire.abort()
        elif self._opening is not None:
            self._opening.cancel()

    def end(self) -> None:
        """Record that the connection has ended. Idempotent."""
        self._cancel_deadline()
        self._connections.end(self)

    def _is_small_head(self, head: bytearray, data: bytes) -> bool:
        """True unless the first request's line and headers take more than MOST_HEAD bytes."""
        searched = max(0, len(head) - len(_HEAD_END) + 1)
        head += data[: MOST_HEAD + 1 - len(head)]
        if head.find(_HEAD_END, searched) < 0:
            return len(head) <= MOST_HEAD
        self._head = None
        return True

    def _expire(self) -> None:
        self._connections.reject(self, Rejection.NO_LOGIN)
        self.drop()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def prove(request: web.Request) -> None:
    """Record that the request has presented a valid login: its connection is no longer limited."""
    connection = request.protocol
    if isinstance(connection, ServedConnection):
        connection.prove()


def without_expectations(handle: _Handle) -> _Handle:
    """Return a handler of requests that refuses every expectation but "100-continue".

    aiohttp would answer with the header's text, even before the access check, and fail if that is not UTF-8.
    """

    async def handle_expected(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get(hdrs.EXPECT, _CONTINUE).lower() == _CONTINUE:
            return await handle(request)
        refusal = web.Response(status=HTTPStatus.EXPECTATION_FAILED)
        refusal.force_close()
        return refusal

    return handle_expected


async def close_unproven(request: web.Request, response: web.StreamResponse) -> None:
    """Close the connection after its response unless it has a login. For ``on_response_prepare`` of an application."""
    connection = request.protocol
    if isinstance(connection, ServedConnection) and not connection.is_proven:
        response.force_close()
        response.headers[hdrs.CONNECTION] = "close"
