"""Reads bodies of requests, with bounds on their size and on the time that a client takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from aiohttp import ClientPayloadError, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from emberkeep.base.errors import InvalidInput

SILENCE = 30.0  # seconds without a byte
SLOWEST_PACE = 16 * 1024  # bytes per second, on average, once SILENCE is over


async def read_bounded(request: web.Request, limit: int) -> bytes:
    """Return the whole body. Raises what ``stream_body`` raises."""
    if (request.content_length or 0) > limit:
        raise too_large(limit, request.content_length or 0)
    data = bytearray()
    async for chunk in stream_body(request, limit):
        data += chunk
    return bytes(data)


async def stream_body(request: web.Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the bytes that a client sends, in pieces as large as have arrived.

    Raises HTTPRequestEntityTooLarge as soon as there are more than ``limit`` bytes, HTTPRequestTimeout (no byte for
    SILENCE, or after that less than SLOWEST_PACE on average), HTTPUnsupportedMediaType (the body is compressed),
    InvalidInput (the body ends early or is malformed).
    """
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
        raise web.HTTPUnsupportedMediaType(text="send the content itself, without a Content-Encoding")
    received, started = 0, time.monotonic()
    while True:
        try:
            if request.content.is_eof():  # all of the body has arrived, so do not wait
                chunk = request.content.read_nowait()
            else:
                async with asyncio.timeout(SILENCE):
                    chunk = await request.content.readany()
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"nothing arrived for {SILENCE:g} s after {received} bytes") from None
        except (OSError, web.RequestPayloadError, ClientPayloadError, HttpProcessingError):
            raise _ended_early(request, received) from None
        if not chunk:
            break
        received += len(chunk)
        if received > limit:
            raise too_large(limit, received)
        elapsed = time.monotonic() - started
        if elapsed > SILENCE and received < elapsed * SLOWEST_PACE:
            raise web.HTTPRequestTimeout(text=f"{received} bytes in {elapsed:.0f} s are too slow")
        yield chunk
    if request.content_length is not None and received < request.content_length:
        raise _ended_early(request, received)


def _ended_early(request: web.Request, received: int) -> InvalidInput:
    expected = "" if request.content_length is None else f" of {request.content_length}"
    return InvalidInput(f"the body ended after {received}{expected} bytes", field="body", hint="upload it again")


def too_large(limit: int, actual: int) -> web.HTTPRequestEntityTooLarge:
    """Return the error for a body of at least ``actual`` bytes where ``limit`` are allowed."""
    return web.HTTPRequestEntityTooLarge(
        max_size=limit, actual_size=actual, text=f"the body is larger than the {limit} bytes that are allowed"
    )
