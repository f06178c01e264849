"""The cluster's token does not make its holder a daemon: daemons prove themselves by the certificate of their node."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from structlog.testing import capture_logs

from emberkeep.adapters.blobs.client import BlobThreads, HttpBlobSource
from emberkeep.adapters.http.node_access import RPC_ROUTE
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.http.token_file import load_token
from emberkeep.base.configuration.layout import StateLayout, TlsFiles, state_layout
from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ADDRESS, REST_PORT
from emberkeep.base.configuration.options.security import ENCRYPTION, TLS_CA, TLS_CERTIFICATE, TLS_KEY
from emberkeep.base.configuration.options.task_managers import MEMORY, TASK_MANAGER_PORT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, EmberkeepError, Fatal, RetryLater, UnknownOutcome
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.system import real_system
from emberkeep.base.tls.authority import CertificateAuthority
from emberkeep.base.tls.contexts import client_context
from emberkeep.base.tls.links import TlsLinks
from emberkeep.blobs.model import permanent
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.daemons.encryption import open_tls
from emberkeep.daemons.jobmanager.alone import job_manager_process
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.taskmanager import process as task_managers
from emberkeep.daemons.taskmanager.working_place import held_working_place
from emberkeep.protocol.messages.logs import ListLogs, LogsListed
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import (
    RegisterTaskManager,
    StartDriver,
    StopDriver,
    StopTaskManager,
    TaskManagerRegistered,
)
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, TaskManagerInfo
from emberkeep.spark.java import JavaRuntime
from tests.support.certificates import CLIENTS, SERVERS, bundle_tls, cluster_tls, files_in, issue
from tests.unit.formats.golden_samples import GRAPH

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-9"), pytest.mark.req("SEC-13")]

JOB = JobId("a" * 32)
BLOB = permanent("0" * 64)
LIMIT = 60.0

REGISTRATION = RegisterTaskManager(
    info=TaskManagerInfo(
        id=TaskManagerId("tm-of-a-thief"),
        instance=InstanceId("1" * 32),
        address="127.0.0.1:1",
        host="127.0.0.1",
        node_id="node",
        pid=1,
        slots=8,
        driver_places=8,
        total=ResourceProfile(cores=8, memory_mb=8192),
        runtime=RuntimeVersions(python="3", spark="4"),
        java_major=17,
        started_ms=0,
    ),
    report=TaskManagerReport(sequence=1, allocations=(), drivers=()),
)
DRIVER = StartDriver(
    epoch=2**40, graph=GRAPH, attempt=1, memory_mb=1, job_manager="127.0.0.1:1", checkpoint_root="/nowhere"
)


@dataclass(frozen=True)
class Daemons:
    """A JobManager and its task manager, by their addresses."""

    job_manager: str
    task_manager: str
    layout: StateLayout

    @property
    def token(self) -> str:
        return load_token(self.layout.token_file)

    async def call(self, address: str, request: Message, reply: type[Message], tls: ssl.SSLContext | None) -> Message:
        client = HttpRpcClient(self.token, tls=tls)
        try:
            return await client.call(address, request, reply, timeout=LIMIT)
        finally:
            await client.close()

    async def blob(self, tls: ssl.SSLContext | None, target: Path) -> None:
        """Fetch a BLOB from the task manager, as another task manager does it."""
        threads = BlobThreads(self.token, tls=tls)
        try:
            source = HttpBlobSource(threads, lambda: self.task_manager, max_size=1024)
            await source.download(JOB, BLOB, target)
        finally:
            threads.close()

    def client(self) -> RestClient:
        ca = self.layout.tls_files.ca
        is_encrypted = Path(ca).exists()
        scheme = "https" if is_encrypted else "http"
        endpoint = Endpoint(f"{scheme}://{self.job_manager}", self.token, ca=ca if is_encrypted else "")
        return RestClient(endpoint, patience=0)


def settings(state: Path, **texts: str) -> tuple[Configuration, StateLayout]:
    own = {STATE_DIRECTORY.key: str(state), REST_PORT.key: "0", TASK_MANAGER_PORT.key: "0", MEMORY.key: "1g"}
    configuration = Configuration().with_texts({**own, **texts}, "test")
    return configuration, state_layout(configuration, {})


@contextlib.asynccontextmanager
async def daemons(state: Path, **texts: str) -> AsyncIterator[Daemons]:
    """Run a JobManager and a task manager, which has registered."""
    configuration, layout = settings(state, **texts)
    services, system = Services(), real_system()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(services.cancel)
        job_manager = await stack.enter_async_context(
            job_manager_process(system, configuration, layout, services, asyncio.Event())
        )
        own = configuration.with_texts({JOB_MANAGER_ADDRESS.key: job_manager.address}, "test")
        place = stack.enter_context(held_working_place(own, layout, "c", system.clock))
        task_manager = await stack.enter_async_context(
            task_managers.task_manager_process(system, own, layout, place, services)
        )
        running = Daemons(job_manager.address, task_manager.address, layout)
        async with asyncio.timeout(LIMIT), running.client() as client:
            while True:
                if await client.task_managers():
                    break
                await asyncio.sleep(0.02)
        yield running


@pytest.fixture(autouse=True)
def java(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here starts a JVM."""
    monkeypatch.setattr(task_managers, "find_java", lambda _: JavaRuntime(None, Path("/bin/false"), 17))


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Daemons]:
    async with daemons(tmp_path / "state") as found:
        yield found


async def refusals(found: Daemons, expected: int) -> list[str]:
    """Return the actions of refused requests in the JobManager's audit log, once there are ``expected`` of them."""
    async with asyncio.timeout(LIMIT), found.client() as client:
        while True:
            listed = [entry.action async for entry in client.audit.newest({"outcome": "refused"})]
            if len(listed) >= expected:
                return listed
            await asyncio.sleep(0.02)


# --- the exploits -----------------------------------------------------------------------------------------------------


async def test_the_token_alone_registers_no_task_manager(running: Daemons) -> None:
    thief = client_context(running.layout.tls_files.ca)
    with pytest.raises(Fatal, match="shows no certificate of a node") as caught:
        await running.call(running.job_manager, REGISTRATION, TaskManagerRegistered, thief)
    assert "security.tls.certificate" in str(caught.value.hint)
    assert await refusals(running, 1) == ["POST /rpc/v1/RegisterTaskManager"]
    async with running.client() as client:
        assert [each.id for each in await client.task_managers()] != ["tm-of-a-thief"]


@pytest.mark.parametrize(
    "request_",
    [
        DRIVER,
        StopDriver(epoch=2**40, job_id=JOB, attempt=1, grace=0.0),
        StopTaskManager(epoch=2**40, instance=InstanceId("1" * 32), drain=0.0),
        ListLogs(job_id=None),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_the_token_alone_commands_no_task_manager(running: Daemons, request_: Message) -> None:
    with capture_logs() as logged, pytest.raises(Fatal, match="shows no certificate of a node"):
        await running.call(running.task_manager, request_, Ack, client_context(running.layout.tls_files.ca))
    [refused] = [entry for entry in logged if entry["event"] == "refused a request"]
    assert refused["action"] == f"POST /rpc/v1/{type(request_).__name__}"


async def test_the_token_alone_fetches_no_blob_of_a_peer(running: Daemons, tmp_path: Path) -> None:
    with pytest.raises(EmberkeepError, match="shows no certificate of a node"):
        await running.blob(client_context(running.layout.tls_files.ca), tmp_path / "stolen")
    assert not (tmp_path / "stolen").exists()


async def test_a_certificate_of_another_ca_opens_nothing(running: Daemons, tmp_path: Path) -> None:
    """The connection ends before a request on it is read."""
    own = cluster_tls(tmp_path / "own CA").files
    forged = client_context(running.layout.tls_files.ca)
    forged.load_cert_chain(own.certificate, own.key)
    with capture_logs() as logged:
        with pytest.raises((UnknownOutcome, RetryLater)):
            await running.call(running.job_manager, REGISTRATION, TaskManagerRegistered, forged)
        with pytest.raises((UnknownOutcome, RetryLater)):
            await running.call(running.task_manager, DRIVER, Ack, forged)
        with pytest.raises(RetryLater):
            await running.blob(forged, tmp_path / "stolen")
    reasons = [entry["reason"] for entry in logged if entry["event"] == "refused a connection for its certificate"]
    assert len(reasons) == 2, "one line of each daemon"
    async with running.client() as client:
        assert len(await client.task_managers()) == 1


async def test_a_certificate_for_servers_opens_nothing(running: Daemons, tmp_path: Path) -> None:
    """Whoever may only serve under a name may not act as a daemon."""
    files = issue(running.layout.tls, tmp_path / "server.pem", [SERVERS])
    context = client_context(files.ca)
    context.load_cert_chain(files.certificate)
    with pytest.raises((UnknownOutcome, RetryLater)):
        await running.call(running.task_manager, DRIVER, Ack, context)


async def test_an_expired_certificate_opens_nothing(running: Daemons, tmp_path: Path) -> None:
    hour = datetime.timedelta(hours=1)
    files = issue(running.layout.tls, tmp_path / "old.pem", [SERVERS, CLIENTS], valid=hour)
    with capture_logs() as logged, pytest.raises((UnknownOutcome, RetryLater)):
        await running.call(running.task_manager, DRIVER, Ack, TlsLinks(files, mutual=True).client)
    refused = [entry for entry in logged if entry["event"] == "refused a connection for its certificate"]
    assert [entry["reason"] for entry in refused] == ["certificate has expired"]


# --- who is let in ----------------------------------------------------------------------------------------------------


async def test_a_nodes_certificate_and_the_token_are_a_daemon(running: Daemons, tmp_path: Path) -> None:
    bundle = bundle_tls(running.layout.tls, tmp_path / "bundle", "10.0.0.7")
    assert isinstance(
        await running.call(running.job_manager, REGISTRATION, TaskManagerRegistered, bundle.client),
        TaskManagerRegistered,
    )
    assert isinstance(
        await running.call(running.task_manager, ListLogs(job_id=None), LogsListed, bundle.client), LogsListed
    )
    with pytest.raises(Absent):
        await running.blob(bundle.client, tmp_path / "fetched")


async def test_a_nodes_certificate_without_the_token_opens_nothing(running: Daemons) -> None:
    tls = TlsLinks(running.layout.tls_files, mutual=True)
    url = f"https://{running.task_manager}/rpc/v1/ListLogs"
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls.client)) as session,
        session.post(url, headers={"Authorization": "Bearer guessed"}) as answer,
    ):
        assert answer.status == HTTPStatus.UNAUTHORIZED


async def test_people_need_no_certificate(running: Daemons) -> None:
    async with running.client() as client:
        assert (await client.overview()).taskmanagers == 1


async def test_without_encryption_the_token_is_enough(tmp_path: Path) -> None:
    async with daemons(tmp_path / "state", **{ENCRYPTION.key: "none"}) as found:
        await found.call(found.job_manager, REGISTRATION, TaskManagerRegistered, None)
        with pytest.raises(Absent):
            await found.blob(None, tmp_path / "fetched")


# --- renewal ----------------------------------------------------------------------------------------------------------


async def test_a_renewed_certificate_is_shown_to_servers(tmp_path: Path) -> None:
    tls = cluster_tls(tmp_path / "tls")
    shown: list[object] = []

    async def note(request: web.Request) -> web.Response:
        assert request.transport is not None
        shown.append(request.transport.get_extra_info("peercert")["serialNumber"])
        return web.Response()

    app = web.Application()
    app.router.add_get("/", note)
    server = await serve_http(app, bind_port("127.0.0.1", 0), tls.server)
    try:
        for _ in range(2):
            async with (
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls.client)) as session,
                session.get(f"https://{server.address}/") as answer,
            ):
                assert answer.status == HTTPStatus.OK
            CertificateAuthority(tmp_path / "tls").ensure(["10.0.0.9"])
    finally:
        await server.close()
    assert len(set(shown)) == 2


class NoLogs:
    """Serves a list of logs without entries."""

    async def serve(self, _: Message) -> Message:
        return LogsListed(logs=())


async def test_a_renewed_certificate_that_servers_would_refuse_is_not_used(tmp_path: Path) -> None:
    tls = cluster_tls(tmp_path / "tls")
    node = tmp_path / "tls" / "node.pem"
    before = node.read_bytes()
    app = web.Application()
    secure(app, AccessPolicy("t", daemons=frozenset({RPC_ROUTE})))
    app.add_routes(rpc_routes(NoLogs()))
    server = await serve_http(app, bind_port("127.0.0.1", 0), tls.server)

    async def call() -> list[str]:
        """Call on a new connection. Return what is logged about certificates."""
        client = HttpRpcClient("t", tls=tls.client)
        try:
            with capture_logs() as logged:
                await client.call(server.address, ListLogs(job_id=None), LogsListed, timeout=LIMIT)
        finally:
            await client.close()
        return [entry["event"] for entry in logged if "certificate" in entry["event"]]

    try:
        issue(tmp_path / "tls", node, [SERVERS])
        assert await call() == ["cannot use the renewed certificate, using the previous one"]
        assert await call() == [], "it is not read again at each handshake"
        node.write_bytes(before)
        assert await call() == ["using a renewed certificate"]
    finally:
        await server.close()


# --- certificates of others -------------------------------------------------------------------------------------------


def started_with(files: TlsFiles, state: Path) -> None:
    texts = {TLS_CERTIFICATE.key: files.certificate, TLS_KEY.key: files.key, TLS_CA.key: files.ca}
    assert open_tls(*settings(state, **texts), "127.0.0.1", founds=False) is not None


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    cluster_tls(tmp_path / "ca")
    return tmp_path / "ca"


def test_a_certificate_for_servers_only_is_refused_at_the_start(ca: Path, tmp_path: Path) -> None:
    files = issue(ca, tmp_path / "node.pem", [SERVERS])
    with pytest.raises(Fatal, match=r"extended key usage lacks clientAuth") as caught:
        started_with(files, tmp_path / "state")
    assert files.certificate in caught.value.message
    assert "server and client authentication" in str(caught.value.hint)


def test_a_certificate_that_may_not_sign_is_refused_at_the_start(ca: Path, tmp_path: Path) -> None:
    names = ("content_commitment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign")
    others = dict.fromkeys((*names, "encipher_only", "decipher_only", "digital_signature"), False)
    usage = x509.KeyUsage(key_encipherment=True, **others)
    files = issue(ca, tmp_path / "node.pem", [SERVERS, CLIENTS], extension=usage)
    with pytest.raises(Fatal, match="key usage lacks digitalSignature"):
        started_with(files, tmp_path / "state")


def test_a_certificate_of_a_ca_that_is_not_configured_is_refused_at_the_start(ca: Path, tmp_path: Path) -> None:
    other = cluster_tls(tmp_path / "other").files
    with pytest.raises(Fatal, match="was not issued by a CA in"):
        started_with(TlsFiles(other.certificate, other.key, files_in(ca).ca), tmp_path / "state")


@pytest.mark.parametrize("usages", [(), (SERVERS, CLIENTS)], ids=["any usage", "both usages"])
def test_a_certificate_for_both_ends_is_accepted(
    ca: Path, tmp_path: Path, usages: tuple[x509.ObjectIdentifier, ...]
) -> None:
    started_with(issue(ca, tmp_path / "node.pem", usages), tmp_path / "state")


def test_an_expired_certificate_can_be_renewed_while_the_daemon_runs(ca: Path, tmp_path: Path) -> None:
    """The clock of a machine that has just started can be wrong, too."""
    files = issue(ca, tmp_path / "node.pem", [SERVERS, CLIENTS], valid=datetime.timedelta(hours=1))
    with capture_logs() as logged:
        started_with(files, tmp_path / "state")
    assert [entry["reason"] for entry in logged] == ["certificate has expired"]
