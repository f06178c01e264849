"""Join two connections: what one sends, the other receives, until one of them ends.

A TCP connection to a Spark Connect server goes through the cluster as a WebSocket, because the cluster's ports speak
HTTP only. Bytes travel in binary messages; how they are cut has no meaning.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, Protocol

import aiohttp

if TYPE_CHECKING:
    from aiohttp import web

CHUNK: Final = 64 * 1024  # bytes of one message
HEARTBEAT: Final = 20.0  # seconds after which a silent peer is asked for a sign of life
_CLOSE_SECONDS = 5.0


class Pipe(Protocol):
    """One connection. Errors of the connection count as its end."""

    async def read(self) -> bytes:
        """Return the next bytes; b"" at the end."""

    async def write(self, data: bytes) -> None:
        """Send bytes, and wait while the peer is slow."""

    async def close(self) -> None:
        """Close the connection. Idempotent."""


class SocketPipe:
    """A WebSocket, of either side."""

    def __init__(self, socket: web.WebSocketResponse | aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        """See Pipe. An empty message is skipped, and any other kind of message ends the connection."""
        while True:
            message = await self._socket.receive()
            if message.type is not aiohttp.WSMsgType.BINARY:
                return b""
            if message.data:
                return bytes(message.data)

    async def write(self, data: bytes) -> None:
        await self._socket.send_bytes(data)

    async def close(self) -> None:
        await self._socket.close()


class StreamPipe:
    """A TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        return await self._reader.read(CHUNK)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writer.wait_closed()
        except TimeoutError:  # a peer that hangs does not read what was sent last
            self._writer.transport.abort()
        except OSError:
            pass


async def join(one: Pipe, other: Pipe) -> None:
    """Pass bytes both ways until one side ends, then close both."""
    passing = [asyncio.create_task(_pass(one, other)), asyncio.create_task(_pass(other, one))]
    try:
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
        for pipe in (one, other):
            with contextlib.suppress(OSError, RuntimeError, aiohttp.ClientError):
                await pipe.close()


async def _pass(source: Pipe, target: Pipe) -> None:
    # RuntimeError: aiohttp's WebSocket was closed by the other direction.
    with contextlib.suppress(OSError, RuntimeError, aiohttp.ClientError):
        while data := await source.read():
            await target.write(data)
