"""Bodies of WebHDFS requests and replies, in pieces large enough to be worth passing to a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

from aiohttp import web

from emberkeep.base.errors import RetryLater

IDLE_SECONDS = 60.0  # without a byte of the body, after which a transfer fails
_PIECE_BYTES = 512 * 1024  # passed to a thread, or taken from one, at a time


async def body(http: web.Request) -> AsyncIterator[bytes]:
    """Yield the pieces of the body. Raises RetryLater if the body ends early, or no byte arrives for IDLE_SECONDS."""
    received = bytearray()
    try:
        while True:
            async with asyncio.timeout(IDLE_SECONDS):
                data = await http.content.readany()
            received += data
            if received and (not data or len(received) >= _PIECE_BYTES):
                yield bytes(received)
                received.clear()
            if not data:
                return
    except (TimeoutError, ConnectionError, web.RequestPayloadError) as error:
        raise RetryLater(f"the file was not received in full: {str(error) or type(error).__name__}") from error


def gathered(pieces: Iterator[bytes]) -> bytes:
    """Return the next pieces joined into one; b"" at the end."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) >= _PIECE_BYTES:
            break
    return bytes(data)
