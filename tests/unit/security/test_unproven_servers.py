"""A process that listens where a server of the cluster should be gets no token, whatever it says and whoever calls."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource, HttpBlobUploads
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.base.errors import EmberkeepError, Fatal, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.tls.links import TlsLinks
from emberkeep.blobs.model import permanent
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.messages.leaders import AskLeader, LeaderTold
from tests.support.certificates import bundle_tls, cluster_tls

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-1"), pytest.mark.req("SEC-9")]

TOKEN = "secret-token-" + "t" * 40
JOB = JobId("a" * 32)
REFUSAL = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"

Call = Callable[[str, TlsLinks, Path], Awaitable[object]]


class Impostor:
    """Another process at a server's port. ``heard``: everything that callers have sent, decrypted if it could."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.heard = b""
        self.connections = 0
        self._tls = tls

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                self.heard += data
                if b"\r\n\r\n" in self.heard:
                    writer.write(REFUSAL)
        writer.close()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        """Its address. A connection counts before its handshake."""

        async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            try:
                if self._tls is not None:
                    await writer.start_tls(self._tls)
                await self.talk(reader, writer)
            except (OSError, EOFError):
                writer.close()

        server = await asyncio.start_server(count, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        try:
            yield f"{host}:{port}"
        finally:
            server.close()


async def call_by_rpc(address: str, tls: TlsLinks, _: Path) -> None:
    client = HttpRpcClient(TOKEN, tls=tls.client)
    try:
        await client.call(address, AskLeader(), LeaderTold, timeout=30)
    finally:
        await client.close()


async def download(address: str, tls: TlsLinks, directory: Path) -> None:
    threads = BlobThreads(TOKEN, tls=tls.client)
    try:
        source = HttpBlobSource(threads, lambda: address, max_size=1024)
        await source.download(JOB, permanent("0" * 64), directory / "blob")
    finally:
        threads.close()


async def upload(address: str, tls: TlsLinks, _: Path) -> None:
    threads = BlobThreads(TOKEN, tls=tls.client)
    try:
        await HttpBlobUploads(threads, lambda: address).put_bytes(JOB, b"bytes", ["holder"])
    finally:
        threads.close()


async def ask_by_rest(address: str, tls: TlsLinks, _: Path) -> None:
    async with RestClient(Endpoint(f"https://{address}", TOKEN, ca=tls.files.ca), patience=0) as client:
        await client.overview()


CALLS = pytest.mark.parametrize("call", [call_by_rpc, download, upload, ask_by_rest])


@pytest.fixture
def cluster(tmp_path: Path) -> TlsLinks:
    return cluster_tls(tmp_path / "tls")


async def refused(impostor: Impostor, call: Call, tls: TlsLinks, directory: Path) -> EmberkeepError:
    async with impostor.listening() as address:
        with pytest.raises(RetryLater) as caught:
            await call(address, tls, directory)
    assert impostor.connections
    assert TOKEN.encode() not in impostor.heard
    assert b"HTTP" not in impostor.heard
    return caught.value


@CALLS
async def test_a_server_without_encryption_gets_no_token(cluster: TlsLinks, tmp_path: Path, call: Call) -> None:
    class Plain(Impostor):
        async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.heard += await reader.read(65536)
            writer.write(REFUSAL)
            writer.close()

    error = await refused(Plain(), call, cluster, tmp_path)
    assert "does not encrypt" in error.message


@CALLS
async def test_a_server_of_another_ca_gets_no_token(cluster: TlsLinks, tmp_path: Path, call: Call) -> None:
    stranger = cluster_tls(tmp_path / "another")
    error = await refused(Impostor(stranger.server), call, cluster, tmp_path)
    assert "no valid certificate of the cluster" in error.message
    assert "security.encryption" in str(error.hint)


@CALLS
async def test_a_node_does_not_pass_for_another_node(cluster: TlsLinks, tmp_path: Path, call: Call) -> None:
    """A certificate proves the names in it only: one that was stolen from a node is of no use elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    bundle_tls(tmp_path / "tls", elsewhere, "10.0.0.7")
    thief = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    thief.load_cert_chain(elsewhere / "node.pem")
    impostor = Impostor(thief)
    server = await asyncio.start_server(impostor.talk, "127.0.0.2", 0, ssl=thief)
    host, port = server.sockets[0].getsockname()
    try:
        with pytest.raises(RetryLater, match="IP address mismatch"):
            await call(f"{host}:{port}", cluster, tmp_path)
    finally:
        server.close()
    assert impostor.heard == b""


@CALLS
async def test_a_server_that_never_answers_gets_no_token(
    cluster: TlsLinks, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hangs(Impostor):
        async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.heard += await reader.read(65536)
            writer.transport.abort()

    await refused(Hangs(), call, cluster, tmp_path)


@CALLS
async def test_the_clusters_own_server_gets_the_request(cluster: TlsLinks, tmp_path: Path, call: Call) -> None:
    server = Impostor(cluster.server)
    async with server.listening() as address:
        with pytest.raises(EmberkeepError):
            await call(address, cluster, tmp_path)
    assert f"Authorization: Bearer {TOKEN}".encode() in server.heard


async def test_older_versions_of_tls_are_refused(cluster: TlsLinks, tmp_path: Path) -> None:
    old = ssl.create_default_context(cafile=cluster.files.ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    server = await asyncio.start_server(Impostor().talk, "127.0.0.1", 0, ssl=cluster.server)
    host, port = server.sockets[0].getsockname()
    try:
        with pytest.raises((ssl.SSLError, OSError)):
            await asyncio.open_connection(host, port, ssl=old)
    finally:
        server.close()


async def test_a_client_that_begins_no_handshake_is_dropped(cluster: TlsLinks) -> None:
    server = await serve_http(web.Application(), bind_port("127.0.0.1", 0), cluster.server, login_seconds=0.05)
    try:
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b""
        writer.close()
    finally:
        await server.close()


async def test_a_redirect_to_a_server_without_encryption_is_not_followed(cluster: TlsLinks) -> None:
    plain = Impostor()

    class Redirects(Impostor):
        async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{target}/v1/overview\r\n"
            writer.write(head.encode() + b"Content-Length: 0\r\n\r\n")

    async with contextlib.AsyncExitStack() as stack:
        target = await stack.enter_async_context(plain.listening())
        address = await stack.enter_async_context(Redirects(cluster.server).listening())
        endpoint = Endpoint(f"https://{address}", TOKEN, ca=cluster.files.ca)
        client = await stack.enter_async_context(RestClient(endpoint, patience=0))
        with pytest.raises(Fatal, match="does not encrypt"):
            await client.overview()
    assert plain.connections == 0


def test_a_url_without_encryption_gets_no_token_of_an_encrypted_cluster(tmp_path: Path) -> None:
    from emberkeep.base.configuration.sources import load_configuration
    from emberkeep.client.clusters.discovery import find_cluster

    (tmp_path / "token").write_text(TOKEN)
    environ = {"EMBERKEEP_STATE_DIR": str(tmp_path)}
    configuration = load_configuration(environ=environ)
    with pytest.raises(InvalidInput, match="its token is not sent there") as caught:
        find_cluster(configuration, environ, "http://127.0.0.1:8081")
    assert "use https://127.0.0.1:8081" in str(caught.value.hint)
    endpoint = find_cluster(configuration, environ, "127.0.0.1:8081")
    assert endpoint is not None
    assert (endpoint.url, endpoint.token) == ("https://127.0.0.1:8081", TOKEN)
