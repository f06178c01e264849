"""Tunnels from a local address, through the REST API and a driver's port, to a server on the driver's loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.tunnels import driver_side
from emberkeep.adapters.tunnels.driver_side import ServerPlace, tunnel_routes
from emberkeep.base.errors import Absent, Conflict, OverQuota, RetryLater
from emberkeep.base.identity import Identity
from emberkeep.base.ids import JobId
from emberkeep.base.tunnels import CHUNK
from emberkeep.client.doors import connect_address
from emberkeep.client.doors.connect_address import ConnectAddress, first_token
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.errors import NotAuthorised
from emberkeep.client.rest_client import RestClient
from emberkeep.jobs.model import JobStatus
from emberkeep.rest.jobs import connect
from tests.unit.rest.fake_gateway import FakeGateway, job_view
from tests.unit.rest.server import TOKEN, Site, running_site
from tests.unit.security.callers.test_owners_and_namespaces import TokenPerName, owned

JOB = JobId("c1" + "0" * 30)
KEY = "the-server's-token"


@asynccontextmanager
async def echoing() -> AsyncIterator[int]:
    """A server on loopback that sends back what it gets; yields its port."""

    serving = set[asyncio.Task[None]]()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                writer.write(data)
                await writer.drain()
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(echo(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    await asyncio.wait_for(asyncio.gather(*serving), 60)  # each connection was closed at its other end


@asynccontextmanager
async def driver(place: Callable[[], ServerPlace | None]) -> AsyncIterator[str]:
    """A driver's HTTP port; yields its address."""
    app = web.Application()
    secure(app, AccessPolicy(TOKEN))
    app.add_routes(tunnel_routes(place))
    port = bind_port("127.0.0.1", 0)
    server = await serve_http(app, port)
    try:
        yield port.address
    finally:
        await server.close()


@asynccontextmanager
async def site_with(directory: Path, address: str) -> AsyncIterator[tuple[Site, RestClient]]:
    gateway = FakeGateway()
    gateway.add(job_view(JOB, "connect", job_master=address))
    async with running_site(directory, gateway) as site, RestClient(Endpoint(site.base, TOKEN), patience=0.0) as client:
        yield site, client


async def test_bytes_go_both_ways_and_the_address_stays_while_drivers_change(tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000
    async with (
        echoing() as port,
        driver(lambda: ServerPlace(port, KEY)) as second,
        driver(lambda: ServerPlace(port, KEY)) as first,
        site_with(tmp_path, first) as (site, client),
        ConnectAddress(partial(client.connect.tunnel, JOB), print).serving(0) as served,
        asyncio.timeout(60),
    ):
        assert await first_token(partial(client.connect.tunnel, JOB), 0.0) == KEY
        for address in (first, second):
            site.gateway.add(job_view(JOB, "connect", job_master=address))
            reader, writer = await asyncio.open_connection("127.0.0.1", served)
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
            writer.close()
            await writer.wait_closed()


async def test_a_client_without_a_driver_is_disconnected_and_told_why(tmp_path: Path) -> None:
    notices: list[str] = []
    async with site_with(tmp_path, "") as (_, client), asyncio.timeout(60):
        open_tunnel = partial(client.connect.tunnel, JOB)
        with pytest.raises(RetryLater):
            await first_token(open_tunnel, 0.0)
        async with ConnectAddress(open_tunnel, notices.append).serving(0) as served:
            reader, writer = await asyncio.open_connection("127.0.0.1", served)
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
    assert [notice.partition(":")[0] for notice in notices] == ["a client cannot be connected now"]


async def test_a_server_that_starts_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_address, "_PAUSE", 0.01)
    async with echoing() as port:
        places = iter([None, None, ServerPlace(port, KEY)])
        async with driver(lambda: next(places)) as address, site_with(tmp_path, address) as (_, client):
            assert await first_token(partial(client.connect.tunnel, JOB), 60.0) == KEY


def runs_none() -> ServerPlace | None:
    raise Conflict("the job runs no Spark Connect server")


async def test_other_jobs_ended_jobs_and_unknown_jobs_are_told_apart(tmp_path: Path) -> None:
    async with driver(runs_none) as address, site_with(tmp_path, address) as (site, client):
        with pytest.raises(Conflict, match="runs no Spark Connect server"):
            await client.connect.tunnel(JOB)
        site.gateway.add(job_view(JOB, "connect", JobStatus.CANCELED))
        with pytest.raises(Conflict, match="runs no Spark Connect server"):
            await client.connect.tunnel(JOB)
        with pytest.raises(Absent):
            await client.connect.tunnel(JobId("d" * 32))
        plain = await site.get(f"/v1/jobs/{JOB}/connect")
        assert (plain.status, plain.problem().detail) == (400, "this resource is a WebSocket")


async def test_the_server_of_another_submitter_is_refused_with_the_reason(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.add(owned(JOB, "connect", "alice", ""))
    async with (
        running_site(tmp_path, gateway, tokens=TokenPerName()) as site,
        RestClient(Endpoint(site.base, "token-of-carol"), patience=0.0) as client,
    ):
        with pytest.raises(NotAuthorised, match=f"job {JOB} was submitted by 'alice'; 'carol' has the role submitter"):
            await client.connect.tunnel(JOB)


class Revocable(TokenPerName):
    revoked = False

    def identify(self, credential: str) -> Identity | str:
        return "revoked" if self.revoked else super().identify(credential)


async def test_a_tunnel_ends_with_the_token_that_opened_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_LOOK_SECONDS", 0.01)
    gateway, tokens = FakeGateway(), Revocable()
    async with (
        asyncio.timeout(60),
        echoing() as port,
        driver(lambda: ServerPlace(port, KEY)) as address,
        running_site(tmp_path, gateway, tokens=tokens) as site,
        RestClient(Endpoint(site.base, "token-of-alice"), patience=0.0) as client,
    ):
        job = owned(JOB, "connect", "alice", "flights")
        gateway.add(msgspec.structs.replace(job, job_master=address))
        _, tunnel = await client.connect.tunnel(JOB)
        await tunnel.write(b"x")
        assert await tunnel.read() == b"x"
        tokens.revoked = True
        assert await tunnel.read() == b""
        await tunnel.close()


async def test_a_driver_takes_a_bounded_number_of_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_side, "MOST_TUNNELS", 1)
    async with (
        asyncio.timeout(60),
        echoing() as port,
        driver(lambda: ServerPlace(port, KEY)) as address,
        site_with(tmp_path, address) as (_, client),
    ):
        _, first = await client.connect.tunnel(JOB)
        with pytest.raises(OverQuota):
            await client.connect.tunnel(JOB)
        await first.close()
        assert await first_token(partial(client.connect.tunnel, JOB), 60.0) == KEY


async def test_a_client_that_stays_does_not_hold_up_the_end_of_its_driver(tmp_path: Path) -> None:
    async with asyncio.timeout(60), echoing() as port, site_with(tmp_path, "") as (site, client):
        async with driver(lambda: ServerPlace(port, KEY)) as address:
            site.gateway.add(job_view(JOB, "connect", job_master=address))
            _, tunnel = await client.connect.tunnel(JOB)
            await tunnel.write(b"x")
            assert await tunnel.read() == b"x"
        assert await tunnel.read() == b""
        await tunnel.close()
