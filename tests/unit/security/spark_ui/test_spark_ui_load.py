"""A viewer of Spark UIs that asks for much and reads nothing: what it takes of the JobManager, and for how long."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import ClientPayloadError, ClientSession, DummyCookieJar, TCPConnector, web
from yarl import URL

from emberkeep.adapters.http.server import BoundPort, bind_port, serve_http
from emberkeep.adapters.http.spark_ui_port import guard_spark_ui
from emberkeep.base.errors import RetryLater
from emberkeep.base.tls.links import TlsLinks
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.quotas.quotas import BURST_SECONDS, CallerLimits, Quotas
from emberkeep.rest.serving.spark_ui_links import SparkUiLinks, SparkUiView
from emberkeep.rest.spark_proxy.application import build_spark_proxy
from emberkeep.rest.spark_proxy.places import MOST_WAITING, PLACES, TICKET_PLACES, PagePlaces
from tests.support.certificates import cluster_tls
from tests.unit.rest.fake_gateway import job_id
from tests.unit.rest.server import eventually
from tests.unit.security.spark_ui.test_spark_ui_port import Asks

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-10")]

LARGE = bytes(2 * 1024**2)
PIECE = bytes(1024**2)
SMALL = b"small"
SMALL_BUFFER = 16 * 1024
PATIENCE = 60.0


@dataclass
class Proxy:
    """The port of the Spark UIs, clients that do not read, and one that does."""

    bound: BoundPort
    links: SparkUiLinks
    client: ClientSession
    tls: ssl.SSLContext | None
    asked: list[str] = field(default_factory=list)
    stalled: list[asyncio.StreamWriter] = field(default_factory=list)
    pieces: int = 0  # of a large page, after its first one
    error: Exception | None = None  # of the pieces after those
    abandoned: list[str] = field(default_factory=list)

    async def read(self, _view: SparkUiView, path: str, _base: str) -> SparkUiRead:
        self.asked.append(path)
        return self._page(LARGE if path == "/large" else SMALL, 0)

    async def following(self, _view: SparkUiView, more: str) -> SparkUiRead:
        self.asked.append(more)
        if self.error is not None and int(more) == self.pieces:
            raise self.error
        return self._page(PIECE, int(more))

    async def abandon(self, _view: SparkUiView, more: str) -> None:
        self.abandoned.append(more)

    def _page(self, body: bytes, number: int) -> SparkUiRead:
        more = str(number + 1) if body is not SMALL and number < self.pieces else ""
        return SparkUiRead(status=200, content_type="text/html", location="", body=body, more=more)

    async def opened(self, name: str) -> tuple[URL, str]:
        """Return a new link of a caller, and the cookie of the browser that has opened it."""
        link = URL(self.links.new(Asks(name), SparkUiView(job_id(1), 1)))  # type: ignore[arg-type]
        link = link.with_host("127.0.0.1").with_scheme("http" if self.tls is None else "https")
        async with self.client.get(link) as answer:
            assert answer.status == 200
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        self.asked.clear()
        return link, cookie

    async def stall(self, link: URL, cookie: str) -> asyncio.StreamReader:
        """Ask for a large page, and read no more of it than the small buffers of this client take."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.bound.port))
        reader, writer = await asyncio.open_connection(
            sock=connection, limit=1024, ssl=self.tls, server_hostname=None if self.tls is None else "127.0.0.1"
        )
        self.stalled.append(writer)
        writer.write(f"GET {link.path}large HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode())
        return reader

    async def show(self, link: URL, cookie: str) -> tuple[int, str]:
        async with self.client.get(link / "jobs/", headers={"Cookie": cookie}) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def running(
    places: PagePlaces, limits: CallerLimits | None = None, tls: TlsLinks | None = None
) -> AsyncIterator[Proxy]:
    port, quotas = bind_port("127.0.0.1", 0), Quotas(limits or CallerLimits())
    port.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * SMALL_BUFFER)

    def guard(
        app: web.Application, may_pass: Callable[[web.Request], bool], refusal: Callable[[], web.Response]
    ) -> None:
        guard_spark_ui(app, frozenset(), quotas, may_pass, refusal)

    shown_by, trusted_by = (None, None) if tls is None else (tls.server, tls.client)
    connector = TCPConnector(ssl=trusted_by or True)
    async with ClientSession(connector=connector, cookie_jar=DummyCookieJar()) as client:
        proxy = Proxy(port, SparkUiLinks(port.port), client, trusted_by)
        app = build_spark_proxy(proxy.links, proxy.read, proxy.following, proxy.abandon, guard=guard, places=places)
        server = await serve_http(app, port, shown_by)
        try:
            async with asyncio.timeout(PATIENCE):
                yield proxy
        finally:
            for writer in proxy.stalled:
                writer.transport.abort()
            await server.close()


async def test_a_large_page_of_which_only_the_head_is_asked_keeps_no_place_of_the_driver() -> None:
    async with running(PagePlaces()) as proxy:
        link, cookie = await proxy.opened("alice")
        proxy.pieces = 3
        async with proxy.client.head(link / "large", headers={"Cookie": cookie}) as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        assert proxy.asked == ["/large", "1", "2", "3"], "the driver holds a page until its last piece was read"
        assert await proxy.show(link, cookie) == (200, "small")


@pytest.mark.parametrize("encrypted", [False, True])
async def test_pages_that_nobody_reads_take_a_bounded_number_of_places(tmp_path: Path, encrypted: bool) -> None:
    async with running(PagePlaces(), tls=cluster_tls(tmp_path) if encrypted else None) as proxy:
        link, cookie = await proxy.opened("mallory")
        other, own = await proxy.opened("alice")
        readers = [await proxy.stall(link, cookie) for _ in range(TICKET_PLACES + MOST_WAITING + 1)]
        heads = [asyncio.create_task(reader.readline()) for reader in readers]
        await eventually(lambda: sum(head.done() for head in heads) > TICKET_PLACES)
        lines = sorted(head.result() for head in heads if head.done())
        assert lines == [b"HTTP/1.1 200 OK\r\n"] * TICKET_PLACES + [b"HTTP/1.1 429 Too Many Requests\r\n"]
        refused = next(
            reader for reader, head in zip(readers, heads, strict=True) if head.done() and b"429" in head.result()
        )
        answer = await refused.readuntil(b"at once\n")
        assert b"Retry-After: 1" in answer
        assert b"too many pages of this link are asked for at once" in answer
        assert proxy.asked == ["/large"] * TICKET_PLACES, "those that wait are not read yet"

        assert await proxy.show(other, own) == (200, "small"), "a link leaves places for the others"
        for writer in proxy.stalled:
            writer.transport.abort()
        await eventually(lambda: proxy.bound.connections.proven <= 1)  # only the client that reads is left
        assert await proxy.show(link, cookie) == (200, "small")
        read = ["/large"] * TICKET_PLACES + ["/jobs/"] * 2
        assert proxy.asked == read, "nothing is read for clients that have gone"
        await asyncio.gather(*heads, return_exceptions=True)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_page_that_is_not_read_in_time_is_aborted_and_its_place_is_free(
    tmp_path: Path, encrypted: bool
) -> None:
    async with running(PagePlaces(seconds=1.0), tls=cluster_tls(tmp_path) if encrypted else None) as proxy:
        links = [await proxy.opened(f"mallory-{number}") for number in range(PLACES)]
        readers = [await proxy.stall(link, cookie) for link, cookie in links]
        await eventually(lambda: len(proxy.asked) == PLACES)
        assert await proxy.show(*await proxy.opened("alice")) == (200, "small")
        await eventually(lambda: proxy.bound.connections.proven <= 1)  # only the client that reads is left
        for reader in readers:
            received = 0
            with suppress(ConnectionError):
                while piece := await reader.read(64 * 1024):
                    received += len(piece)
            assert received < len(LARGE)


async def test_a_page_arrives_whole() -> None:
    async with running(PagePlaces()) as proxy:
        link, cookie = await proxy.opened("alice")
        for method, size in (("GET", len(LARGE)), ("HEAD", 0), ("GET", len(LARGE))):
            async with proxy.client.request(method, link / "large", headers={"Cookie": cookie}) as answer:
                assert (answer.status, answer.headers["Content-Length"]) == (200, str(len(LARGE)))
                assert answer.headers["Content-Type"] == "text/html"
                assert len(await answer.read()) == size


async def test_a_page_in_pieces_arrives_whole_and_each_piece_is_read_when_the_one_before_is_taken() -> None:
    async with running(PagePlaces()) as proxy:
        link, cookie = await proxy.opened("alice")
        proxy.pieces = 40
        async with proxy.client.get(link / "large", headers={"Cookie": cookie}) as answer:
            await answer.content.readexactly(len(LARGE))
            assert len(proxy.asked) < 30, "what the client has not taken is still in the JVM"
            assert len(await answer.read()) == 40 * len(PIECE)
        assert proxy.asked == ["/large", *map(str, range(1, 41))]


@pytest.mark.parametrize("leaves", ["closes its connection", "does not read on"])
async def test_the_page_of_a_client_that_leaves_in_the_middle_keeps_no_place_of_the_driver(leaves: str) -> None:
    async with running(PagePlaces(seconds=1.0)) as proxy:
        link, cookie = await proxy.opened("alice")
        proxy.pieces = 40
        if leaves == "does not read on":
            await proxy.stall(link, cookie)
        else:
            answer = await proxy.client.get(link / "large", headers={"Cookie": cookie})
            await answer.content.readexactly(len(LARGE))
            answer.close()
        await eventually(lambda: bool(proxy.abandoned))
        number = len(proxy.asked)
        assert proxy.abandoned == [str(number)], "what comes after the pieces that were read"
        assert await proxy.show(link, cookie) == (200, "small")
        assert len(proxy.abandoned) == 1, "not of a page that was read to its end"


async def test_a_page_whose_next_piece_cannot_be_read_does_not_look_whole() -> None:
    async with running(PagePlaces()) as proxy:
        link, cookie = await proxy.opened("alice")
        proxy.pieces, proxy.error = 3, RetryLater("the driver has ended")
        async with proxy.client.get(link / "large", headers={"Cookie": cookie}) as answer:
            with pytest.raises(ClientPayloadError):
                await answer.read()
        assert await proxy.show(link, cookie) == (200, "small"), "its place is free"


async def test_a_client_has_the_time_for_each_piece_and_not_for_the_page() -> None:
    """The client reads more slowly than the whole page would have to be read, and faster than each of its pieces."""
    async with running(PagePlaces(seconds=4.0)) as proxy:
        link, cookie = await proxy.opened("alice")
        proxy.pieces = 10
        async with proxy.client.get(link / "large", headers={"Cookie": cookie}) as answer:
            received = 0
            while piece := await answer.content.read(512 * 1024):
                received += len(piece)
                await asyncio.sleep(0.2)  # 0.4 s for each piece, and more than 4 s for the page
        assert received == len(LARGE) + 10 * len(PIECE)


@pytest.mark.req("SEC-16")
async def test_the_requests_of_a_link_count_for_the_caller_who_has_asked_for_it() -> None:
    async with running(PagePlaces(), CallerLimits(requests_per_second=1)) as proxy:
        link, cookie = await proxy.opened("mallory")
        answers = [await proxy.show(link, cookie) for _ in range(int(2 * BURST_SECONDS))]
        status, text = answers[-1]
        assert (status, text.partition(" (")[0]) == (429, "'mallory' has sent more than 1 requests a second")
        other, own = await proxy.opened("alice")
        assert (await proxy.show(other, own))[0] == 200
