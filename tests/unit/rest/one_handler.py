"""One handler, served on loopback without what the JobManager puts before it: its errors are seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Served:
    """The handler's port on 127.0.0.1. ``ends``: how its calls have ended; None: without an error."""

    port: int = 0
    ends: list[Exception | None] = field(default_factory=list)


@asynccontextmanager
async def one_handler(handle: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[Served]:
    """Serve GET / until the block ends."""
    served = Served()

    async def noting(request: web.Request) -> web.StreamResponse:
        try:
            response = await handle(request)
        except Exception as error:
            served.ends.append(error)
            raise
        served.ends.append(None)
        return response

    application = web.Application()
    application.router.add_get("/", noting)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        served.port = runner.addresses[0][1]
        yield served
    finally:
        await runner.cleanup()
