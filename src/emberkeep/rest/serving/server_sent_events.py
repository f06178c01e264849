"""Streams of server-sent events: how a reply begins, and how it shows that it is alive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import structlog
from aiohttp import web

from emberkeep.base.errors import EmberkeepError
from emberkeep.rest.serving.api import Api

log = structlog.get_logger(__name__)

KEEP_ALIVE: Final = 15.0  # seconds without an event, after which ALIVE makes proxies keep the stream open
ALIVE: Final = b": alive\n\n"


@asynccontextmanager
async def event_stream(api: Api, request: web.Request) -> AsyncIterator[web.StreamResponse]:
    """Begin a stream, and hold a place for it. The block ends without an error if the client disconnects or it fails.

    The status of the reply is sent by then, so a failure cannot become one: the stream ends in order, and the client
    connects again and continues with the newest event that it has. Raises RetryLater (too many requests are already
    waiting).
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
        try:
            yield response
        except ConnectionError:
            pass  # the client disconnected, which is how streams usually end
        except EmberkeepError as error:
            log.info("a stream of events ends early", path=request.path, reason=str(error))
        except Exception:  # a bug ends this stream, as it fails a single request
            log.exception("a stream of events has failed", path=request.path)
