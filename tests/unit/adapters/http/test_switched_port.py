"""A port whose application changes: nobody stays with the previous one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from emberkeep.adapters.http.server import BoundPort, bind_port
from emberkeep.adapters.http.switch import SwitchedPort
from emberkeep.base.tls.contexts import client_context, server_context
from tests.support.certificates import cluster_tls, files_in

pytestmark = [pytest.mark.anyio, pytest.mark.req("HA-1")]

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def application(name: str) -> web.Application:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=name)

    app = web.Application()
    app.router.add_get("/", answer)
    return app


@pytest.fixture
def port() -> BoundPort:
    return bind_port("127.0.0.1", 0)


@pytest.fixture
async def switched(port: BoundPort, tmp_path: Path) -> AsyncIterator[SwitchedPort]:
    cluster_tls(tmp_path, "127.0.0.1")
    switched = SwitchedPort(port, server_context(files_in(tmp_path)))
    await switched.open(application("before"))
    yield switched
    await switched.close()


async def test_a_connection_whose_handshake_lasts_longer_than_its_application_is_closed(
    port: BoundPort, switched: SwitchedPort, tmp_path: Path
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.bound)
    for _ in range(1000):
        await asyncio.sleep(0)  # it is accepted, and waits for the client's first message
    assert port.connections.unproven == 1
    await switched.switch(application("after"))
    with contextlib.suppress(ConnectionError):
        await writer.start_tls(client_context(files_in(tmp_path).ca))
        writer.write(REQUEST)
        assert b"before" not in await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
