"""A ZooKeeper that the cluster encrypts: its clients send no password to a server that has not proven itself."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from emberkeep.adapters.zookeeper.access.settings import EncryptionFiles, SessionSettings, ZooKeeperLogin
from emberkeep.adapters.zookeeper.session import SessionState, ZooKeeperSession
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.tls.authority import CertificateAuthority
from emberkeep.base.tls.contexts import client_context
from tests.integration.sites import holds
from tests.integration.zookeepers import Ensemble, connected, eventually, settings
from tests.support.certificates import files_in

pytestmark = [pytest.mark.anyio, pytest.mark.integration, pytest.mark.req("SEC-1"), pytest.mark.req("SEC-9")]

PASSWORD = "hunter2"


def certificates(directory: Path) -> TlsFiles:
    CertificateAuthority(directory).ensure(())
    return files_in(directory)


def encrypted(hosts: str, ca: str) -> SessionSettings:
    login = ZooKeeperLogin(f"digest:emberkeep:{PASSWORD}")
    return dataclasses.replace(settings(hosts), login=login, creator_only=True, tls=EncryptionFiles(ca, None, None))


@contextlib.asynccontextmanager
async def session(its_settings: SessionSettings) -> AsyncIterator[ZooKeeperSession]:
    client = ZooKeeperSession(its_settings)
    client.start()
    try:
        yield client
    finally:
        await client.close()


async def test_an_ensemble_encrypts_its_links_to_clients_and_between_its_servers(tmp_path: Path) -> None:
    tls = certificates(tmp_path / "tls")
    ensemble = Ensemble(tmp_path / "zookeeper", 3, tls)
    try:
        await ensemble.start()
        async with session(encrypted(ensemble.hosts, tls.ca)) as client:
            await connected(client)
            await client.create("/node", b"content")
            assert (await client.get("/node")).data == b"content"
            many = await asyncio.gather(*(client.get("/node") for _ in range(500)))
            assert {node.data for node in many} == {b"content"}
        server = ensemble.servers[0]
        for port in (server.client_port, server.quorum_port, server.election_port):
            assert await answer(port) == b"", "a client that does not encrypt"
        old = client_context(tls.ca)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=r"."):
            await asyncio.open_connection("127.0.0.1", server.client_port, ssl=old)
    finally:
        ensemble.stop()


async def test_a_renewed_certificate_is_used_for_the_next_connection(tmp_path: Path) -> None:
    tls = certificates(tmp_path / "tls")
    ensemble = Ensemble(tmp_path / "zookeeper", 1, tls)
    try:
        await ensemble.start()
        async with session(encrypted(ensemble.hosts, tls.ca)) as client:
            await connected(client)
            first, begun = await served(ensemble, tls), client.id
            CertificateAuthority(tmp_path / "tls").ensure(["another-name"])
            await holds(lambda: serves_another(ensemble, tls, first), "the renewed certificate is used")
            assert client.id == begun
    finally:
        ensemble.stop()


async def serves_another(ensemble: Ensemble, tls: TlsFiles, certificate: bytes) -> bool:
    return await served(ensemble, tls) != certificate


async def served(ensemble: Ensemble, tls: TlsFiles) -> bytes:
    """Return the certificate that a new connection gets."""
    port = ensemble.servers[0].client_port
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(tls.ca))
    connection = writer.get_extra_info("ssl_object")
    writer.close()
    return bytes(connection.getpeercert(binary_form=True))


async def answer(port: int) -> bytes:
    """Return what a server replies to a question in clear; nothing if it does not listen."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return b""
    found = b""
    try:
        async with asyncio.timeout(30.0):
            writer.write(b"srvr" * 20)
            writer.write_eof()
            found = await reader.read()
    except OSError:
        pass  # it closes the connection, maybe before all is written
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return found if b"Zookeeper" in found else b""


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "with another CA"])
async def test_a_process_at_the_port_of_zookeeper_gets_no_password(tmp_path: Path, encrypts: bool) -> None:
    received = bytearray()
    calls = 0
    thief = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    thief.load_cert_chain(certificates(tmp_path / "thief").certificate)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        with contextlib.suppress(OSError):
            if encrypts:
                await writer.start_tls(thief)
            received.extend(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with session(encrypted(f"127.0.0.1:{port}", certificates(tmp_path / "tls").ca)) as client:
        await eventually(lambda: calls >= 2, "the client has tried twice")
        assert client.state is not SessionState.CONNECTED
    server.close()
    assert b"emberkeep" not in received
    assert PASSWORD.encode() not in received
