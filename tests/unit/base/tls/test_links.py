"""Contexts of TLS: renewed certificates are served without a restart, unusable files are named."""

from __future__ import annotations

import asyncio
import os
import ssl
from pathlib import Path

import pytest

from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Fatal
from emberkeep.base.tls import contexts
from emberkeep.base.tls.authority import CertificateAuthority
from emberkeep.base.tls.contexts import client_context
from emberkeep.base.tls.links import TlsLinks
from tests.support.certificates import cluster_tls, files_in

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-9")]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()


def served_certificate(writer: asyncio.StreamWriter) -> bytes:
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_renewed_certificate_is_served_to_new_connections(tmp_path: Path, name: str) -> None:
    """Clients that connect to an address send no server name in their handshake."""
    tls = cluster_tls(tmp_path / "tls")
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls.server)
    port = server.sockets[0].getsockname()[1]

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port, ssl=tls.client, server_hostname=name)

    reader, writer = await connect()
    before = served_certificate(writer)
    CertificateAuthority(tmp_path / "tls").ensure(["10.0.0.9"])
    _, later = await connect()
    assert served_certificate(later) != before
    writer.write(b"still here")  # connections with the earlier certificate continue
    assert await reader.readexactly(10) == b"still here"
    for each in (writer, later):
        each.close()
    server.close()


async def test_a_certificate_that_cannot_be_read_leaves_the_previous_one_in_place(tmp_path: Path) -> None:
    tls = cluster_tls(tmp_path / "tls")
    node = tmp_path / "tls" / "node.pem"
    good = node.read_bytes()
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls.server)
    port = server.sockets[0].getsockname()[1]
    for broken in (b"half of a fi", None):
        node.unlink()
        if broken is not None:
            node.write_bytes(broken)
            node.chmod(0o600)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls.client)
        assert ssl.DER_cert_to_PEM_cert(served_certificate(writer)).encode() in good
        writer.close()
    server.close()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    good = cluster_tls(tmp_path / "tls").files
    other = cluster_tls(tmp_path / "other").files
    key = tmp_path / "key.pem"
    key.write_bytes(Path(good.key).read_bytes())
    key.chmod(0o644)
    absent, junk = str(tmp_path / "absent"), tmp_path / "junk"
    junk.write_text("junk")
    junk.chmod(0o600)
    for files, named in (
        (TlsFiles(absent, good.key, good.ca), absent),
        (TlsFiles(good.certificate, absent, good.ca), absent),
        (TlsFiles(good.certificate, good.key, absent), absent),
        (TlsFiles(str(junk), str(junk), good.ca), str(junk)),
        (TlsFiles(good.certificate, good.key, str(junk)), str(junk)),
        (TlsFiles(good.certificate, other.key, good.ca), good.certificate),
        (TlsFiles(good.certificate, str(key), good.ca), "can be read or written by others"),
    ):
        with pytest.raises(Fatal) as caught:
            TlsLinks(files)
        assert named in caught.value.message
        assert caught.value.hint


@pytest.mark.parametrize(
    ("owner", "mode", "is_used"),
    [
        (1000, 0o600, True),
        (1000, 0o640, False),
        (1000, 0o660, False),
        (0, 0o640, True),  # as Debian's group ssl-cert, and secrets of Kubernetes
        (0, 0o660, False),
        (0, 0o644, False),
    ],
)
def test_a_key_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, mode: int, is_used: bool
) -> None:
    files = cluster_tls(tmp_path / "tls").files
    Path(files.key).chmod(mode)
    stat = Path.stat

    def owned(path: Path, **options: bool) -> os.stat_result:
        status = list(stat(path, **options))
        status[4] = owner
        return os.stat_result(status)

    monkeypatch.setattr(Path, "stat", owned)
    if is_used:
        contexts.server_context(files)
    else:
        with pytest.raises(Fatal, match="can be read or written by others"):
            contexts.server_context(files)


def test_an_encrypted_key_is_refused_and_asks_nothing(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    files = cluster_tls(tmp_path / "tls").files
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), password=None)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    locked.chmod(0o600)
    with pytest.raises(Fatal, match="is encrypted"):
        TlsLinks(TlsFiles(files.certificate, str(locked), files.ca))


def test_a_client_trusts_only_the_clusters_ca(tmp_path: Path) -> None:
    cluster_tls(tmp_path / "tls")
    context = client_context(files_in(tmp_path / "tls").ca)
    assert len(context.get_ca_certs()) == 1
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_certificate_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Daemons that start together on one node each ask for a certificate with their own address."""
    authority, files = CertificateAuthority(tmp_path), files_in(tmp_path)
    authority.ensure(["node-0"])
    load, replaced = contexts.load_certificate, 0

    def replacing(context: ssl.SSLContext, read: TlsFiles) -> None:
        nonlocal replaced
        load(context, read)
        if replaced < 3:
            replaced += 1
            authority.ensure([f"node-{replaced}"])
            raise Fatal("key values mismatch")

    monkeypatch.setattr(contexts, "load_certificate", replacing)
    TlsLinks(files, mutual=True)
    assert replaced == 3
    monkeypatch.setattr(contexts, "load_certificate", lambda *_: (_ for _ in ()).throw(Fatal("damaged")))
    with pytest.raises(Fatal, match="damaged"):
        TlsLinks(files, mutual=True)
