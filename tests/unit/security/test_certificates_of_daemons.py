"""Certificates of daemons: made or configured, shown with their end, used for large downloads."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.http.token_file import load_token
from emberkeep.base.configuration.layout import StateLayout, state_layout
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.options.job_managers import REST_PORT
from emberkeep.base.configuration.options.security import ENCRYPTION, INSECURE_NETWORK, TLS_CA, TLS_CERTIFICATE, TLS_KEY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.base.system import real_system
from emberkeep.base.tls.authority import read_certificate
from emberkeep.base.tls.contexts import client_context
from emberkeep.blobs.model import permanent
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.daemons.encryption import check_unencrypted, open_tls
from emberkeep.daemons.jobmanager.alone import JobManagerProcess, job_manager_process
from emberkeep.daemons.process_main import Services
from emberkeep.rest.blobs.response import send_blob
from tests.support.certificates import cluster_tls

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-9")]

JOB = JobId("a" * 32)
LARGE = 3 * 1024**2 + 17


def settings(state: Path, **texts: str) -> tuple[Configuration, StateLayout]:
    own = {STATE_DIRECTORY.key: str(state), REST_PORT.key: "0"}
    configuration = Configuration().with_texts({**own, **texts}, "test")
    return configuration, state_layout(configuration, {})


@pytest.fixture
async def job_manager(tmp_path: Path) -> AsyncIterator[JobManagerProcess]:
    configuration, layout = settings(tmp_path)
    services = Services()
    try:
        async with job_manager_process(real_system(), configuration, layout, services, asyncio.Event()) as process:
            yield process
    finally:
        await services.cancel()


async def test_the_end_of_the_certificate_is_shown(job_manager: JobManagerProcess, tmp_path: Path) -> None:
    _, layout = settings(tmp_path)
    ends = read_certificate(layout.tls / "node.pem").expires
    endpoint = Endpoint(job_manager.url, load_token(layout.token_file), ca=layout.tls_files.ca)
    async with RestClient(endpoint) as client:
        own = (await client.overview()).emberkeep
    assert (own.encryption, own.certificate_expires) == ("tls", ends.timestamp() * 1000)

    def scrape() -> str:
        request = Request(f"{endpoint.url}/metrics", headers={"Authorization": f"Bearer {endpoint.token}"})
        with urlopen(request, context=client_context(endpoint.ca)) as answer:
            return str(answer.read().decode())

    families = text_string_to_metric_families(await asyncio.to_thread(scrape))
    [shown] = [each for each in families if each.name == "emberkeep_certificate_expiry_timestamp_seconds"]
    assert shown.samples[0].value == ends.timestamp()


def test_without_encryption_nothing_is_made(tmp_path: Path) -> None:
    configuration, layout = settings(tmp_path, **{ENCRYPTION.key: "none"})
    assert open_tls(configuration, layout, "127.0.0.1", founds=True) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "::1", "[::1]"])
def test_on_loopback_the_first_process_makes_the_ca(tmp_path: Path, host: str) -> None:
    configuration, layout = settings(tmp_path)
    first = open_tls(configuration, layout, host, founds=False)
    assert first is not None
    ca = (layout.tls / "ca.pem").read_bytes()
    assert open_tls(configuration, layout, "127.0.0.3", founds=False) is not None
    assert (layout.tls / "ca.pem").read_bytes() == ca


@pytest.mark.parametrize("host", ["10.0.0.7", "node-7.example", "0.0.0.0", ""])
def test_beyond_loopback_no_second_ca_is_made(tmp_path: Path, host: str) -> None:
    """Nodes with a CA each would not trust each other, and nothing would name the cause."""
    configuration, layout = settings(tmp_path)
    with pytest.raises(Fatal, match="has no certificate of the cluster") as caught:
        open_tls(configuration, layout, host, founds=False)
    assert "emberkeep security init" in str(caught.value.hint)
    assert open_tls(configuration, layout, host, founds=True) is not None


@pytest.mark.parametrize("address", ["10.0.0.7", "node-7.example", "0.0.0.0", ""])
def test_beyond_loopback_no_encryption_is_refused_unless_permitted(tmp_path: Path, address: str) -> None:
    configuration, _ = settings(tmp_path, **{ENCRYPTION.key: "none"})
    check_unencrypted(configuration, "127.0.0.1", "[::1]", "localhost", "127.0.0.2")
    with pytest.raises(InvalidInput, match=r"security\.encryption is none") as caught:
        check_unencrypted(configuration, "127.0.0.1", address)
    assert INSECURE_NETWORK.key in str(caught.value.hint)
    check_unencrypted(settings(tmp_path)[0], address)
    permitted, _ = settings(tmp_path, **{ENCRYPTION.key: "none", INSECURE_NETWORK.key: "true"})
    check_unencrypted(permitted, address)


def test_a_certificate_for_all_addresses_names_the_others(tmp_path: Path) -> None:
    tls = open_tls(*settings(tmp_path), "jobmanager.example", "0.0.0.0", "", founds=True)
    assert tls is not None
    assert tls.hosts == ("jobmanager.example",)


def test_configured_certificates_are_used_as_they_are(tmp_path: Path) -> None:
    files = cluster_tls(tmp_path / "theirs", "node-1").files
    texts = {TLS_CERTIFICATE.key: files.certificate, TLS_KEY.key: files.key, TLS_CA.key: files.ca}
    tls = open_tls(*settings(tmp_path / "state", **texts), "node-1", founds=False)
    assert tls is not None
    assert tls.links.files == files
    assert not (tmp_path / "state" / "tls").exists()
    for missing in texts:
        some = {key: text for key, text in texts.items() if key != missing}
        with pytest.raises(InvalidInput, match=f"{missing} is empty"):
            open_tls(*settings(tmp_path / "state", **some), "node-1", founds=False)


async def test_a_large_download_arrives_whole(tmp_path: Path) -> None:
    content, path = os.urandom(LARGE), tmp_path / "served"
    path.write_bytes(content)
    key = permanent(hashlib.sha256(content).hexdigest())
    async with _downloads(tmp_path, path) as source:
        await source.download(JOB, key, tmp_path / "received")
    assert (tmp_path / "received").read_bytes() == content


async def test_a_file_that_was_cut_short_is_no_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "served"
    path.write_bytes(os.urandom(LARGE))
    pread, shown = os.pread, LARGE // 2

    def short(file: int, count: int, offset: int) -> bytes:
        return pread(file, min(count, max(0, shown - offset)), offset)

    monkeypatch.setattr(os, "pread", short)
    async with _downloads(tmp_path, path) as source:
        with pytest.raises(RetryLater):
            await source.download(JOB, permanent("0" * 64), tmp_path / "received")


@contextlib.asynccontextmanager
async def _downloads(directory: Path, served: Path) -> AsyncIterator[HttpBlobSource]:
    """Downloads of this file through encrypted connections."""
    tls = cluster_tls(directory / "tls")

    async def get(request: web.Request) -> web.StreamResponse:
        return await send_blob(request, permanent("0" * 64), served)

    app = web.Application()
    app.add_routes([web.get("/{path:.*}", get)])
    server = await serve_http(app, bind_port("127.0.0.1", 0), tls.server)
    threads = BlobThreads("t" * 40, tls=tls.client)
    try:
        yield HttpBlobSource(threads, lambda: server.address, max_size=1024**3)
    finally:
        threads.close()
        await server.close()
