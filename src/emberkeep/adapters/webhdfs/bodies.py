"""Bodies of WebHDFS requests and replies, in pieces large enough to be worth passing to a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import NamedTuple

from aiohttp import StreamReader, web

from emberkeep.base.errors import RetryLater

IDLE_SECONDS = 60.0  # without a byte of the body, after which a transfer fails
PIECE_BYTES = 512 * 1024  # passed to a thread, or taken from one, at a time


async def body(http: web.Request) -> AsyncGenerator[bytes]:
    """Yield the pieces of the body. Only the last one may have fewer than PIECE_BYTES; an empty body has none.

    Raises RetryLater if the body ends early, or no byte arrives for IDLE_SECONDS.
    """
    received = bytearray()
    try:
        while data := await _next(http.content):
            received += data
            if len(received) >= PIECE_BYTES:
                yield bytes(received)
                received.clear()
        if received:
            yield bytes(received)
    except (TimeoutError, ConnectionError, web.RequestPayloadError) as error:
        raise RetryLater(f"the file was not received in full: {str(error) or type(error).__name__}") from error


async def _next(content: StreamReader) -> bytes:
    """Return the bytes that have arrived, waiting for some if necessary; b"" at the end."""
    data = content.read_nowait()
    if data or content.at_eof():
        return data
    async with asyncio.timeout(IDLE_SECONDS):
        return await content.readany()


class Gathered(NamedTuple):
    """Pieces joined into one. ``is_last``: there are no more, and the iterator needs no closing."""

    data: bytes
    is_last: bool


def gathered(pieces: Iterator[bytes]) -> Gathered:
    """Return the next PIECE_BYTES or more, or all that is left."""
    data = bytearray()
    for piece in pieces:
        data += piece
        if len(data) >= PIECE_BYTES:
            return Gathered(bytes(data), is_last=False)
    return Gathered(bytes(data), is_last=True)
