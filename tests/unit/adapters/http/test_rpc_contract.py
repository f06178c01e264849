"""Both transports of RPC hold the same contract."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from emberkeep.adapters.http.offload import Offload
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import ServedPort, bind_port, serve_http
from emberkeep.base.system import real_system
from emberkeep.base.tls.links import TlsLinks
from emberkeep.protocol.transport import RpcService
from tests.support.certificates import cluster_tls
from tests.support.contracts.rpc import RpcContract
from tests.support.memory_rpc import MemoryNetwork
from tests.support.message_blobs import MemoryMessageBlobs

TOKEN = "t" * 40


class HttpLink:
    def __init__(self, tls: TlsLinks | None = None) -> None:
        self._offload = Offload(MemoryMessageBlobs(), real_system(), minimum=1024**2)
        self._tls = None if tls is None else tls.server
        self.client = HttpRpcClient(TOKEN, self._offload, tls=None if tls is None else tls.client)
        self._servers: dict[str, ServedPort] = {}

    async def listen(self, service: RpcService) -> str:
        app = web.Application()
        secure(app, AccessPolicy(token=TOKEN))
        app.add_routes(rpc_routes(service, self._offload))
        server = await serve_http(app, bind_port("127.0.0.1", 0), self._tls)
        self._servers[server.address] = server
        return server.address

    async def kill(self, address: str) -> None:
        await self._servers.pop(address).close()

    def unused_address(self) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{free.getsockname()[1]}"

    async def close(self) -> None:
        await self.client.close()
        for server in self._servers.values():
            await server.close()


class MemoryLink:
    def __init__(self) -> None:
        self.client = MemoryNetwork()
        self._ports = iter(range(1, 1000))

    async def listen(self, service: RpcService) -> str:
        address = self.unused_address()
        self.client.attach(address, service)
        return address

    async def kill(self, address: str) -> None:
        self.client.detach(address)

    def unused_address(self) -> str:
        return f"memory:{next(self._ports)}"


@pytest.mark.anyio
class TestHttp(RpcContract):
    @pytest.fixture
    async def link(self) -> AsyncIterator[HttpLink]:
        link = HttpLink()
        yield link
        await link.close()


@pytest.mark.anyio
class TestHttps(RpcContract):
    @pytest.fixture
    async def link(self, tmp_path: Path) -> AsyncIterator[HttpLink]:
        link = HttpLink(cluster_tls(tmp_path / "tls"))
        yield link
        await link.close()


@pytest.mark.anyio
class TestMemory(RpcContract):
    @pytest.fixture
    async def link(self) -> MemoryLink:
        return MemoryLink()
