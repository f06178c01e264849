"""Serves the address of a Spark Connect server on this machine's loopback: ``sc://localhost:15002``.

Each connection of a client gets a tunnel of its own through the JobManager to the job's current driver. The address
stays the same when the driver or the leading JobManager is lost. A connection that cannot get a tunnel is closed, which
gRPC reports as UNAVAILABLE; PySpark's client then repeats its call.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from emberkeep.base.errors import EmberkeepError, Fatal, OverQuota, RetryLater
from emberkeep.base.tunnels import Pipe, StreamPipe, join

_HOST: Final = "127.0.0.1"
_MOST: Final = 64  # connections; each client process has one
_PAUSE = 0.5
_NOTICE_SECONDS = 30.0  # between two notices of the same kind

Open = Callable[[], Awaitable[tuple[str, Pipe]]]
"""Opens a tunnel; returns the server's token with it. Raises EmberkeepError."""


async def first_token(open_tunnel: Open, patience: float) -> str:
    """Return the server's token once the server accepts connections.

    Raises RetryLater if it does not within ``patience`` seconds, and what ``open_tunnel`` raises.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            token, tunnel = await open_tunnel()
        except (RetryLater, OverQuota):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_PAUSE)
        else:
            await tunnel.close()
            return token


class ConnectAddress:
    """The address. ``notice`` gets sentences about connections that got no tunnel."""

    def __init__(self, open_tunnel: Open, notice: Callable[[str], None]) -> None:
        self._open = open_tunnel
        self._notice = notice
        self._noticed_at = 0.0
        self._connections: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[int]:
        """Serve at ``port`` (0: a free one) within the context; yield the port. Raises Fatal (port in use)."""
        try:
            server = await asyncio.start_server(self._accept, _HOST, port)
        except OSError as error:
            raise Fatal(f"cannot listen on {_HOST}:{port}: {error.strerror}", hint="choose another --port") from None
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MOST:
            self._say(f"more than {_MOST} clients are connected: a further one was refused")
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(StreamPipe(reader, writer)), name="connect-client")
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, client: Pipe) -> None:
        try:
            _, tunnel = await self._open()
        except EmberkeepError as error:
            self._say(f"a client cannot be connected now: {error}")
            await client.close()
            return
        await join(client, tunnel)

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if not self._noticed_at or now - self._noticed_at > _NOTICE_SECONDS:
            self._noticed_at = now
            self._notice(text)
