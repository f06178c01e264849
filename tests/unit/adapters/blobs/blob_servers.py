"""Servers for tests of BLOB transfers: a real aiohttp application over a directory, and one that sends raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from emberkeep.adapters.http.security import AccessPolicy, problem, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.base.errors import Absent
from emberkeep.protocol.rest_blobs import ATTEMPT_HEADER, BLOB_PEER_HEADER

TOKEN = "t" * 40


class BlobServerApp:
    """What a BLOB server does over HTTP. ``redirect``: where downloads are sent that are not asked for directly."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}  # by path below /v1/jobs/
        self.holders: dict[str, set[str]] = {}
        self.requests: list[str] = []  # of downloads: paths with query
        self.peers: list[str | None] = []
        self.redirect: str | None = None
        self.busy = 0  # so many downloads are refused for now
        self.sent_bytes = 0
        self.attempts: list[str | None] = []  # that uploads and releases acted for
        self.offers: asyncio.Queue[tuple[str, str | None]] = asyncio.Queue()  # path and peer

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/jobs/{jobid}/blobs/{key}", self.get),
            web.post("/v1/jobs/{jobid}/blobs/{key}/ready", self.ready),
            web.put("/v1/jobs/{jobid}/blobs/{key}", self.put),
            web.delete("/v1/jobs/{jobid}/blobs/{key}/holders/{holder}", self.release),
        ]

    async def get(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path_qs)
        self.peers.append(request.headers.get(BLOB_PEER_HEADER))
        if self.busy:
            self.busy -= 1
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many readers")
        if self.redirect is not None and request.query.get("direct") != "true":
            return web.Response(status=307, headers={"Location": self.redirect.replace("{path}", request.path)})
        body = self.blobs.get(request.path.removeprefix("/v1/jobs/"))
        if body is None:
            raise Absent("there is no such BLOB", hint="upload it first")
        self.sent_bytes += len(body)
        return web.Response(body=body, content_type="application/octet-stream")

    async def ready(self, request: web.Request) -> web.StreamResponse:
        self.offers.put_nowait((request.path, request.headers.get(BLOB_PEER_HEADER)))
        return web.Response(status=204)

    async def put(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/v1/jobs/")
        self.attempts.append(request.headers.get(ATTEMPT_HEADER))
        self.blobs[path] = await request.read()
        self.holders.setdefault(path, set()).update(request.query.getall("holder", []))
        return web.Response(status=201)

    async def release(self, request: web.Request) -> web.StreamResponse:
        path, _, holder = request.path.removeprefix("/v1/jobs/").partition("/holders/")
        self.attempts.append(request.headers.get(ATTEMPT_HEADER))
        held = self.holders.get(path, set())
        if holder not in held:
            raise Absent("there is no such reference")
        held.remove(holder)
        return web.Response(status=204)


@contextlib.asynccontextmanager
async def served(routes: list[web.RouteDef]) -> AsyncIterator[str]:
    """The address of an application with our security layer and these routes."""
    app = web.Application(client_max_size=1024**3)
    secure(app, AccessPolicy(TOKEN))
    app.add_routes(routes)
    server = await serve_http(app, bind_port("127.0.0.1", 0))
    try:
        yield server.address
    finally:
        await server.close()


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw_server(talk: Talk) -> AsyncIterator[str]:
    """The address of a server that does what ``talk`` does, with each connection."""

    talking: set[asyncio.Task[None]] = set()

    async def talk_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talking.add(asyncio.create_task(talk_on(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"
    finally:
        server.close()
        for task in talking:
            task.cancel()
        await asyncio.gather(*talking, return_exceptions=True)


def saying(*parts: bytes, then: Callable[[], Awaitable[object]] | None = None) -> Talk:
    """Answers every request on a connection with these bytes, waits for ``then``, and closes the connection."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        if then is not None:
            await then()

    return talk
