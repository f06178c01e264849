"""A client without a login opens as many connections as it can; the port keeps serving those who have one."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from aiohttp import ClientError, ClientSession, web

from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.served_connection import MOST_HEAD
from emberkeep.adapters.http.server import BoundPort, bind_port, serve_http
from emberkeep.adapters.http.switch import SwitchedPort
from emberkeep.base.connections import ConnectionLimits, Rejection
from tests.unit.security.served_process import DESCRIPTORS, TOKEN

SECONDS = 120.0  # far more than anything here takes
LIMITS = ConnectionLimits(open=12, unproven=8, unproven_of_address=5)
BEARER = {"Authorization": f"Bearer {TOKEN}"}
HALF_A_HEAD = b"GET /work HTTP/1.1\r\nHost: loc"

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-6")]

Stranger = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def process() -> Iterator[tuple[str, int]]:
    """The address of a process with few descriptors."""
    command = [sys.executable, "-m", "tests.unit.security.served_process"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as started:
        assert started.stdout is not None
        host, _, port = started.stdout.readline().strip().rpartition(":")
        yield host, int(port)
        started.send_signal(signal.SIGKILL)


def works(address: tuple[str, int]) -> bool:
    """True if a client with a login is served, while the process opens files."""
    connection = http.client.HTTPConnection(*address, timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", "/work", headers=BEARER)
        return connection.getresponse().read() == b"done"


@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD], ids=["silent", "half a head"])
def test_a_process_works_while_strangers_hold_more_connections_than_it_has_descriptors(
    process: tuple[str, int], sent: bytes
) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2 * DESCRIPTORS):
            stranger = stack.enter_context(socket.create_connection(process, SECONDS))
            with contextlib.suppress(ConnectionError):
                stranger.sendall(sent)
        assert all(works(process) for _ in range(3))
    assert works(process)


class Site:
    """A secured port with few places, and its clients."""

    def __init__(self, port: BoundPort, session: ClientSession, stack: contextlib.AsyncExitStack) -> None:
        self.port = port
        self.session = session
        self._stack = stack

    @property
    def rejected(self) -> dict[str, int]:
        return {reason: count for reason, count in self.port.connections.rejections().items() if count}

    async def stranger(self, sent: bytes = b"", source: str = "127.0.0.1") -> Stranger:
        reader, writer = await asyncio.open_connection(self.port.host, self.port.port, local_addr=(source, 0))
        self._stack.callback(writer.close)
        writer.write(sent)
        return reader, writer

    async def works(self) -> bool:
        async with self.session.get("/work", headers=BEARER) as answer:
            return await answer.read() == b"done"

    async def log_in(self) -> None:
        """Get a connection with a login, also where the deadline is short and the machine slow."""
        async with asyncio.timeout(SECONDS):
            while not self.port.connections.proven:
                with contextlib.suppress(ClientError):
                    await self.works()

    async def has_places(self, *, proven: int, unproven: int) -> bool:
        """Wait until the port has these connections."""
        connections = self.port.connections
        async with asyncio.timeout(SECONDS):
            while True:
                if (connections.proven, connections.unproven) == (proven, unproven):
                    return True
                await asyncio.sleep(0)


async def is_closed(stranger: Stranger) -> bool:
    """Wait for the server to close the connection."""
    async with asyncio.timeout(SECONDS):
        with contextlib.suppress(ConnectionError):
            await stranger[0].read()
    return True


async def work(_: web.Request) -> web.Response:
    return web.Response(text="done")


def application() -> web.Application:
    app = web.Application()
    secure(app, AccessPolicy(TOKEN, public=frozenset({"/probe"})))
    app.add_routes([web.get("/work", work), web.get("/probe", work), web.post("/work", work)])
    return app


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[float], Awaitable[Site]]]:
    async with contextlib.AsyncExitStack() as stack:

        async def serve(login_seconds: float) -> Site:
            port = bind_port("127.0.0.1", 0, limits=LIMITS)
            server = await serve_http(application(), port, login_seconds=login_seconds)
            stack.push_async_callback(server.close)
            session = await stack.enter_async_context(ClientSession(f"http://{port.address}"))
            return Site(port, session, stack)

        yield serve


@pytest.fixture
async def site(serve: Callable[[float], Awaitable[Site]]) -> Site:
    """A site whose deadlines never pass."""
    return await serve(SECONDS)


async def test_the_oldest_connection_without_a_login_makes_room_for_the_newest(site: Site) -> None:
    strangers = [await site.stranger(HALF_A_HEAD) for _ in range(LIMITS.unproven_of_address)]
    assert await site.has_places(proven=0, unproven=LIMITS.unproven_of_address)

    await site.stranger()
    assert await is_closed(strangers[0])
    assert await site.works()
    assert site.rejected == {Rejection.DISPLACED: 2}


async def test_an_address_with_many_connections_makes_room_for_one_with_few(site: Site) -> None:
    many = [await site.stranger() for _ in range(LIMITS.unproven_of_address)]
    few = [await site.stranger(source="127.0.0.2") for _ in range(LIMITS.unproven - len(many))]
    assert await site.has_places(proven=0, unproven=LIMITS.unproven)

    await site.stranger(source="127.0.0.3")
    assert await is_closed(many[0])
    assert not any(reader.at_eof() for reader, _ in few)


async def test_strangers_displace_no_connection_with_a_login(site: Site) -> None:
    request = f"GET /work HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    clients = [await site.stranger(request) for _ in range(LIMITS.open)]
    assert await site.has_places(proven=LIMITS.open, unproven=0)

    assert await is_closed(await site.stranger())
    assert site.rejected == {Rejection.FULL: 1}
    clients[0][1].write(request)
    async with asyncio.timeout(SECONDS):
        assert [await clients[0][0].readuntil(b"done") for _ in range(2)]


@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD], ids=["silent", "half a head"])
async def test_a_connection_without_a_login_ends_at_its_deadline(
    serve: Callable[[float], Awaitable[Site]], sent: bytes
) -> None:
    site = await serve(0.05)

    assert await is_closed(await site.stranger(sent))
    assert site.rejected == {Rejection.NO_LOGIN: 1}


async def test_one_that_drips_its_headers_is_cut_off(serve: Callable[[float], Awaitable[Site]]) -> None:
    site = await serve(0.1)
    _, writer = await site.stranger(HALF_A_HEAD)
    async with asyncio.timeout(SECONDS):
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.001)

    assert site.rejected == {Rejection.NO_LOGIN: 1}


async def test_a_connection_with_a_login_outlives_the_deadline(serve: Callable[[float], Awaitable[Site]]) -> None:
    site = await serve(0.05)
    await site.log_in()
    assert await is_closed(await site.stranger())

    assert site.port.connections.proven == 1
    assert await site.works()
    assert site.port.connections.proven == 1


async def test_headers_without_an_end_are_refused_before_they_take_memory(site: Site) -> None:
    reader, writer = await site.stranger(b"GET /work HTTP/1.1\r\n")
    header = b"x-%d: " + b"x" * 4096 + b"\r\n"
    with contextlib.suppress(ConnectionError):
        for number in range(MOST_HEAD // 4096 + 1):
            writer.write(header % number)
            await writer.drain()
    async with asyncio.timeout(SECONDS):
        with contextlib.suppress(ConnectionError):
            assert (await reader.read()).startswith(b"HTTP/1.1 431 ")

    assert await site.has_places(proven=0, unproven=0)
    assert site.rejected == {Rejection.LARGE_HEAD: 1}


async def test_large_headers_and_a_large_body_of_a_client_with_a_login_are_served(site: Site) -> None:
    headers = {f"x-{number}": "x" * 4096 for number in range(6)} | BEARER
    async with site.session.post("/work", headers=headers, data=b"x" * 2**20) as answer:
        assert await answer.read() == b"done"


@pytest.mark.parametrize(("path", "status"), [("/probe", 200), ("/work", 401)])
async def test_a_connection_serves_one_request_without_a_login(site: Site, path: str, status: int) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    reader, _ = await site.stranger(2 * request)
    async with asyncio.timeout(SECONDS):
        answers = await reader.read()

    assert answers.count(b"HTTP/1.1 ") == 1
    assert answers.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"\r\nConnection: close\r\n" in answers
    assert await site.has_places(proven=0, unproven=0)


async def test_a_wrong_token_is_no_login(site: Site) -> None:
    async with site.session.get("/work", headers={"Authorization": "Bearer wrong"}) as answer:
        assert answer.status == 401
    assert site.port.connections.proven == 0


async def test_malformed_requests_of_strangers_do_not_fill_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    assert await is_closed(await site.stranger(b"GET / HTTP/1.1\r\n bad\x00: header\r\n\r\n"))
    assert not caplog.records


async def test_a_port_whose_application_changes_keeps_its_limits() -> None:
    async with contextlib.AsyncExitStack() as stack:
        port = bind_port("127.0.0.1", 0, limits=LIMITS)
        switched = SwitchedPort(port)
        await switched.open(application())
        stack.push_async_callback(switched.close)
        session = await stack.enter_async_context(ClientSession(f"http://{port.address}"))
        site = Site(port, session, stack)
        strangers = [await site.stranger() for _ in range(3 * LIMITS.unproven_of_address)]
        assert await site.works()
        await switched.switch(application())

        assert all([await is_closed(stranger) for stranger in strangers])
        assert await site.has_places(proven=0, unproven=0)
        assert await site.works()


async def test_a_lack_of_descriptors_delays_connections(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The port frees a connection of a stranger, neither spins nor ends, and accepts the next client."""
    stranger = await site.stranger()
    assert await site.has_places(proven=0, unproven=1)
    accept, failures = socket.socket.accept, 3

    def few_descriptors(listening: socket.socket) -> tuple[socket.socket, object]:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(24, "Too many open files")
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", few_descriptors)
    assert await site.works()
    assert await is_closed(stranger)
    assert failures == 0
