"""The driver's side of tunnels: from the port of its JobMaster to the Spark Connect server on the driver's loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from emberkeep.base.errors import Conflict, OverQuota, RetryLater
from emberkeep.base.tunnels import CHUNK, HEARTBEAT, SocketPipe, StreamPipe, join

TUNNEL_PATH: Final = "/connect/v1"
MOST_TUNNELS: Final = 128
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True)
class ServerPlace:
    """Where the driver's Connect server listens on loopback, and the token that it asks for."""

    port: int
    token: str


def tunnel_routes(place: Callable[[], ServerPlace | None]) -> list[web.RouteDef]:
    """Return the route of tunnels. ``place``: None while no server runs; raises Conflict if none ever will.

    The first message to the caller is the server's token, as text.
    """
    open_now = 0

    async def tunnel(request: web.Request) -> web.StreamResponse:
        nonlocal open_now
        server = place()
        if server is None:
            raise RetryLater("the Spark Connect server is starting", hint="try again in a few seconds")
        if open_now >= MOST_TUNNELS:
            raise OverQuota(f"the Spark Connect server has {open_now} connections", seconds=5.0)
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT, compress=False, max_msg_size=2 * CHUNK)
        if not socket.can_prepare(request).ok:
            raise Conflict("this address is for WebSockets")
        open_now += 1
        try:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            except (OSError, TimeoutError):
                raise RetryLater("the Spark Connect server does not accept connections now") from None
            pipe = StreamPipe(reader, writer)
            try:
                await socket.prepare(request)
                await socket.send_str(server.token)
            except OSError:
                await pipe.close()
                return socket
            await join(SocketPipe(socket), pipe)
            return socket
        finally:
            open_now -= 1

    return [web.get(TUNNEL_PATH, tunnel)]
