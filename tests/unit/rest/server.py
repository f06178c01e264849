"""The JobManager's whole HTTP application on loopback, over fakes, with the real access checks before it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientResponse, ClientSession, web

from emberkeep.adapters.audit.files import AuditFiles
from emberkeep.adapters.audit.log import AuditLog
from emberkeep.adapters.http.auditing import auditing
from emberkeep.adapters.http.driver_access import DriverAccess
from emberkeep.adapters.http.limiting import limiting, slowing_guesses
from emberkeep.adapters.http.login_page import pages_about_problems
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, IssuedTokens, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.http.sessions import WebAccess, WebSessions
from emberkeep.adapters.http.web_login import WebLoginLinks, login_routes
from emberkeep.adapters.tunnels.leader_side import DriverTunnels
from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.identity import Identity, Role
from emberkeep.base.ids import JobId
from emberkeep.base.system import System
from emberkeep.daemons.jobmanager.savepoint_store import SavepointStore
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.identities.model import NamedToken
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.job_secrets import JobSecrets
from emberkeep.jobs.progress.history import HistoryPage, ProgressLog, Selection
from emberkeep.kept_logs.model import KeptLogKey, KeptLogList
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.rest import Problem
from emberkeep.protocol.rest_logs import LogInfo
from emberkeep.quotas.quotas import Quotas
from emberkeep.rest.application import build_application
from emberkeep.rest.metrics.exposition import Metrics
from emberkeep.rest.ports import LogChunk, LogEntry, LogFound, LogQuery, LogSearch
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.log_reader import LogReader
from emberkeep.rest.serving.spark_ui_links import SparkUiLinks
from emberkeep.rest.serving.spark_ui_reading import shown_attempt
from emberkeep.rest.table import DRIVER_ROUTES, least_roles
from emberkeep.web.pages import WebSources, web_routes
from emberkeep.web.session_routes import session_routes
from tests.support.chronicle.memory import MemoryChronicle
from tests.support.seeded_ids import SeededIds
from tests.unit.rest.blobs.memory_blobs import MemoryBlobs
from tests.unit.rest.cluster.fake_storage import FakeStorage
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway

TOKEN = "a-token-for-tests"
SPARK_UI_PORT = 4  # nothing is served there


class FixedClock(SystemClock):
    """Wall time stands still, so that bodies can be compared; the other clock runs."""

    def now_ms(self) -> int:
        return NOW_MS


class ListedLogs:
    """A catalogue whose entries tests set."""

    def __init__(self) -> None:
        self.logs: dict[str, LogEntry] = {}

    def entries(self, job_id: JobId | None) -> list[LogEntry]:
        return [entry for entry in self.logs.values() if job_id is None or entry.job_id == job_id]

    def find(self, log_id: str) -> LogEntry:
        try:
            return self.logs[log_id]
        except KeyError:
            raise Absent(f"there is no log {log_id}") from None


class ReaderPerAddress:
    """Remote logs without a network: one reader per registered address; other addresses are a test's failure."""

    def __init__(self) -> None:
        self.readers: dict[str, LogReader] = {}
        self.asked: list[str] = []

    def _reader(self, address: str) -> LogReader:
        self.asked.append(address)
        try:
            return self.readers[address]
        except KeyError:
            raise RetryLater(f"the task manager at {address} does not answer: refused") from None

    async def entries(self, address: str, job_id: JobId | None) -> list[LogInfo]:
        return await self._reader(address).entries(job_id)

    async def read(self, address: str, log_id: str, query: LogQuery) -> LogChunk:
        return await self._reader(address).read(log_id, query)

    async def search(self, address: str, log_id: str, wanted: LogSearch) -> LogFound:
        if not wanted.search.is_bounded:  # a task manager refuses it
            raise InvalidInput("a search needs bounds within those of one step")
        return await self._reader(address).search(log_id, wanted)


class KeptNothing:
    """No log is kept."""

    async def entries(self, job_id: JobId) -> KeptLogList:
        return KeptLogList(logs=[])

    async def read(self, key: KeptLogKey, query: LogQuery) -> LogChunk:
        raise Absent(f"nothing of log {key.log_id} is kept")

    async def search(self, key: KeptLogKey, wanted: LogSearch) -> LogFound:
        raise Absent(f"nothing of log {key.log_id} is kept")


class HostileSparkUis:
    """Answers each request with a script, as a job's JVM may do."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, JobId, int, str]] = []

    async def read(
        self, job_master: str, job_id: JobId, attempt: int, path: str, base: str = "", *, in_pieces: bool = False
    ) -> SparkUiRead:
        self.asked.append((job_master, job_id, attempt, path))
        return SparkUiRead(status=200, content_type="text/html", location="", body=b"<script>alert(1)</script>")

    async def following(self, job_master: str, job_id: JobId, attempt: int, more: str) -> SparkUiRead:
        raise Absent(f"page {more} was never begun")

    async def abandon(self, job_master: str, job_id: JobId, attempt: int, more: str) -> None:
        raise AssertionError(f"page {more} was never begun")


class MemoryProgress:
    """Progress histories that tests set, by job."""

    def __init__(self) -> None:
        self.logs: dict[JobId, ProgressLog] = {}
        self.refusal: EmberkeepError | None = None
        self.asked: list[tuple[str, int]] = []

    async def read(self, job_master: str, job_id: JobId, attempt: int, selection: Selection) -> HistoryPage:
        self.asked.append((job_master, attempt))
        if self.refusal is not None:
            raise self.refusal
        return self.logs.get(job_id, ProgressLog()).page(selection)


class NoTokens:
    """There are no named tokens, and none can be made."""

    def identify(self, credential: str) -> Identity | str:
        return ""

    def all(self) -> tuple[NamedToken, ...]:
        return ()

    async def create(self, name: str, role: Role, namespace: str, valid_for_ms: int) -> tuple[NamedToken, str]:
        raise Conflict("no tokens can be made here")

    async def revoke(self, name: str) -> tuple[NamedToken, ...]:
        raise Absent(f"there is no token {name}")


class ServesNoRpc:
    """Fails the test that reaches it."""

    async def serve(self, request: Message) -> Message:
        raise AssertionError(request)


@dataclass
class Answer:
    """A whole response."""

    status: int
    headers: Any
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    def problem(self) -> Problem:
        assert self.headers["Content-Type"].startswith("application/problem+json"), self.body
        return msgspec.json.decode(self.body, type=Problem)


@dataclass
class Site:
    """A running server and its parts."""

    gateway: FakeGateway
    blobs: MemoryBlobs
    storage: FakeStorage
    api: Api
    web_sources: WebSources
    own_logs: ListedLogs
    remote_logs: ReaderPerAddress
    session: ClientSession
    base: str
    shutdowns: list[None]

    def open(self, method: str, path: str, **options: Any) -> Any:
        """A request as aiohttp's context manager, with the token unless ``headers`` has its own Authorization."""
        options["headers"] = {"Authorization": f"Bearer {TOKEN}", **options.get("headers", {})}
        return self.session.request(method, self.base + path, allow_redirects=False, **options)

    async def request(self, method: str, path: str, **options: Any) -> Answer:
        async with self.open(method, path, **options) as response:
            return await read(response)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.request("GET", path, **options)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it holds; TimeoutError after a minute."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for knows nothing of tests
            await asyncio.sleep(0.005)


def spark_ui_link(links: SparkUiLinks) -> Callable[[web.Request, JobView, int], str]:
    """Return what the pages get for links to Spark UIs."""
    return lambda request, job, attempt: links.new(request, shown_attempt(job, attempt))


async def read(response: ClientResponse) -> Answer:
    return Answer(response.status, response.headers, await response.read())


@asynccontextmanager
async def running_site(directory: Path, gateway: FakeGateway, **changes: Any) -> AsyncIterator[Site]:
    """Serve ``gateway`` on a free port of loopback."""
    system = System(changes.pop("clock", None) or FixedClock(), random.Random(1), SeededIds(random.Random(2)))
    tunnels = DriverTunnels(TOKEN, tls=None, drivers=None)
    own_logs, remote_logs, shutdowns = ListedLogs(), ReaderPerAddress(), list[None]()
    blobs, storage = MemoryBlobs(directory), FakeStorage()
    gateway.blobs = blobs
    sessions = changes.pop("sessions", None) or WebSessions()
    tokens: IssuedTokens | None = changes.pop("tokens", None)
    quotas: Quotas | None = changes.pop("quotas", None)
    port = bind_port("127.0.0.1", 0)
    audit = AuditLog(AuditFiles(directory / "audit", 1024**2, 3), system.clock.now_ms)
    audit.open()
    parts: dict[str, Any] = {
        "login_links": WebLoginLinks(sessions),
        "tokens": tokens or NoTokens(),
        "job_secrets": JobSecrets(TOKEN, os.urandom),
        "gateway": gateway,
        "configuration": Configuration(),
        "system": system,
        "own_logs": LogReader(own_logs, system.clock.monotonic, poll_interval=0.01),
        "remote_logs": remote_logs,
        "kept_logs": KeptNothing(),
        "spark_uis": HostileSparkUis(),
        "spark_ui_links": SparkUiLinks(SPARK_UI_PORT),
        "connect_tunnels": tunnels,
        "progress": MemoryProgress(),
        "savepoints": SavepointStore("4.3.0"),
        "storage": storage,
        "audit": audit,
        "chronicle": MemoryChronicle({}, system.clock.now_ms),
        "shut_down": lambda: shutdowns.append(None),
        "metrics": Metrics(port.connections),
        "blobs": blobs,
        "poll_interval": 0.01,
    }
    api = Api(**{**parts, **changes})
    sources = WebSources(
        gateway=gateway,
        clock=system.clock,
        problem=api.problem,
        storage_problem=lambda: storage.info.problem,
        audit=audit,
        chronicle=api.chronicle,
        blobs=api.blobs,
        spark_ui_link=spark_ui_link(api.spark_ui_links),
        verifications=api.verified_savepoints,
        election=lambda: gateway.election,
    )
    pages = web_routes(sources)
    access = WebAccess(sessions, session_routes(pages))
    policy = AccessPolicy(
        TOKEN,
        public=frozenset({"/static/{name}"}),
        web=access,
        roles=least_roles(pages),
        tokens=tokens,
        drivers=DriverAccess(AttemptCredentials(TOKEN), DRIVER_ROUTES),
    )

    def guard(app: web.Application) -> None:
        app.middlewares.append(pages_about_problems())
        app.middlewares.append(auditing(audit.record))
        if quotas is not None:
            app.middlewares.append(slowing_guesses(quotas))
        secure(app, policy)
        if quotas is not None:
            app.middlewares.append(limiting(quotas))

    app = build_application(
        api,
        secure=guard,
        roles=policy.roles,
        routes=[*login_routes(TOKEN, sessions, tokens), *rpc_routes(ServesNoRpc()), *pages],
    )
    server = await serve_http(app, port)
    try:
        async with ClientSession() as session:
            yield Site(
                gateway,
                blobs,
                storage,
                api,
                sources,
                own_logs,
                remote_logs,
                session,
                f"http://{server.address}",
                shutdowns,
            )
    finally:
        await server.close()
        await tunnels.close()
        await audit.close()
