"""Streams of server-sent events: how a reply begins, and how it shows that it is alive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from aiohttp import web

from emberkeep.rest.serving.api import Api

KEEP_ALIVE: Final = 15.0  # seconds without an event, after which ALIVE makes proxies keep the stream open
ALIVE: Final = b": alive\n\n"


@asynccontextmanager
async def event_stream(api: Api, request: web.Request) -> AsyncIterator[web.StreamResponse]:
    """Begin a stream, and hold a place for it. If the client disconnects, the block ends without an error.

    Raises RetryLater (too many requests are already waiting).
    """
    with api.waiting.place():
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",
                "X-Content-Type-Options": "nosniff",
            }
        )
        await response.prepare(request)
        with suppress(ConnectionError):  # the client disconnected, which is how streams usually end
            yield response
