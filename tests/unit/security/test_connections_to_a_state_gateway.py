"""At a state gateway, too, connections without a credential are few, and those with one stay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession

from emberkeep.adapters.http.server import BoundPort, bind_port, serve_http
from emberkeep.adapters.webhdfs.protocol import WebHdfs
from emberkeep.base.connections import ConnectionLimits
from emberkeep.local_state.credential import caller_of, credential
from tests.unit.taskmanager.state_gateway.state_gateways import EXECUTOR, Node

SECONDS = 120.0
SECRET = b"the node's"
LIMITS = ConnectionLimits(open=12, unproven=8, unproven_of_address=5)

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-6")]


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[BoundPort]:
    port = bind_port("127.0.0.1", 0, limits=LIMITS)
    web = WebHdfs(Node(tmp_path).gateway, lambda text: caller_of(SECRET, text), f"http://{port.address}")
    server = await serve_http(web.application(), port)
    yield port
    await server.close()
    web.close()


async def status(session: ClientSession, name: str) -> int:
    async with session.get("/webhdfs/v1/", params={"op": "GETHOMEDIRECTORY", "user.name": name}) as answer:
        return answer.status


async def test_an_executor_is_served_while_strangers_hold_connections(port: BoundPort) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3 * LIMITS.unproven_of_address):
            _, writer = await asyncio.open_connection(port.host, port.port)
            stack.callback(writer.close)
            writer.write(b"GET /webhdfs/v1/?op=GETHOMEDIRECTORY HTTP/1.1\r\n")
        session = await stack.enter_async_context(ClientSession(f"http://{port.address}"))
        async with asyncio.timeout(SECONDS):
            assert await status(session, credential(SECRET, EXECUTOR)) == 200
            assert await status(session, credential(SECRET, EXECUTOR)) == 200
        assert port.connections.proven == 1, "it keeps its connection"
        assert port.connections.unproven <= LIMITS.unproven_of_address


async def test_a_wrong_credential_is_no_login(port: BoundPort) -> None:
    async with ClientSession(f"http://{port.address}") as session:
        assert await status(session, "nobody") == 403
        assert port.connections.proven == 0
