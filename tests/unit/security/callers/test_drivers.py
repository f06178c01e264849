"""A driver's credentials are good for its own attempt: nothing else in the cluster opens to them."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, web
from aiohttp.typedefs import Handler

from emberkeep.adapters.http.driver_access import CalledDrivers
from emberkeep.adapters.http.login_page import LOGIN_PATH, LOGOUT_PATH
from emberkeep.adapters.http.rpc import CONTENT_TYPE, VERSION_HEADER, HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import ServedPort, bind_port, serve_http
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Forbidden, RetryLater
from emberkeep.base.identity import AttemptScope
from emberkeep.base.ids import AllocationId, ExecutorId, JobId, TaskManagerId
from emberkeep.base.tls.links import TlsLinks
from emberkeep.base.tls.seeded_certificate import seeded_certificate
from emberkeep.daemons.taskmanager.attempt_files import write_attempt_files
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol.driver_messages import FROM_DRIVERS, check_driver_request
from emberkeep.protocol.encoding.wire import encode_message
from emberkeep.protocol.messages.executors import (
    JobMasterBeat,
    ListLocalState,
    OfferSlots,
    OfferSlotsReply,
    ReleaseSlot,
    StartExecutor,
)
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, RegisterJobMaster, ReportOutcome
from emberkeep.protocol.messages.leaders import AskLeader, LeaderTold
from emberkeep.protocol.messages.requests import REQUESTS
from emberkeep.protocol.messages.root import PROTOCOL_VERSION, Message
from emberkeep.protocol.rest_blobs import ATTEMPT_HEADER
from emberkeep.rest.application import build_application
from emberkeep.rest.table import DRIVER_ROUTES
from emberkeep.web.pages import web_routes
from tests.support.certificates import cluster_tls
from tests.support.scripted_service import ScriptedService
from tests.unit.jobmaster.test_service import task_manager_info
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view
from tests.unit.rest.server import TOKEN, Site, running_site
from tests.unit.security.callers.test_audit_log import recorded

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-13")]

OWN = AttemptScope(job_id(1), 2)
OPEN = {LOGIN_PATH, LOGOUT_PATH, "/static/{name}"}
CREDENTIALS = AttemptCredentials(TOKEN)
DRIVER = {"Authorization": f"Bearer {CREDENTIALS.token(OWN)}"}
STATUS = JobMasterStatus(sequence=1, requirements=(), executors=())


def requests_of(job: JobId, attempt: int) -> list[Message]:
    """One request of each kind that names an attempt."""
    allocation, executor = AllocationId("b" * 32), ExecutorId("1")
    return [
        RegisterJobMaster(
            job_id=job, attempt=attempt, address="h:1", task_manager=TaskManagerId("tm"), pid=1, status=STATUS
        ),
        JobMasterHeartbeat(job_id=job, attempt=attempt, status=STATUS),
        ReportOutcome(job_id=job, attempt=attempt, outcome=AttemptOutcome(exit_code=0)),
        StartExecutor(
            job_id=job,
            attempt=attempt,
            allocation_id=allocation,
            executor_id=executor,
            driver_url="spark://driver",
            app_id="app-1",
            cores=1,
            heap_mb=100,
            java_options=(),
            extra_class_path="",
            environ={},
            auth_secret="",
            python_path=(),
        ),
        ReleaseSlot(job_id=job, attempt=attempt, allocation_id=allocation),
        JobMasterBeat(job_id=job, attempt=attempt, allocations=()),
        ListLocalState(job_id=job, attempt=attempt),
    ]


def offer(scope: AttemptScope) -> OfferSlots:
    return OfferSlots(job_id=JobId(scope.job_id), attempt=scope.attempt, task_manager=task_manager_info(0), slots=())


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(job_view(job_id(1), "flights"))
    gateway.add(job_view(job_id(2), "of another team"))
    async with running_site(tmp_path, gateway) as site:
        site.api.closing.set()
        site.api.own_logs.close()
        yield site


# --- the credentials --------------------------------------------------------------------------------------------------


def test_a_token_proves_its_attempt_and_no_other() -> None:
    token = CREDENTIALS.token(OWN)
    signature = token.rpartition(".")[2]
    forged = [
        f"ek-attempt.{OWN.job_id}.3.{signature}",
        f"ek-attempt.{job_id(2)}.2.{signature}",
        f"ek-attempt.{OWN.job_id}.02.{signature}",
        AttemptCredentials("the token of another cluster").token(OWN),
        f"{token}\n",
        token[:-1],
        "",
        TOKEN,
    ]
    assert CREDENTIALS.scope_of(token) == OWN
    assert [CREDENTIALS.scope_of(each) for each in forged] == [None] * len(forged)


def test_each_attempt_has_a_key_of_its_own_which_can_be_made_again() -> None:
    def fingerprint(credentials: AttemptCredentials, scope: AttemptScope) -> bytes:
        return seeded_certificate(credentials.certificate_seed(scope)).fingerprint

    others = [AttemptScope(OWN.job_id, 3), AttemptScope(job_id(2), 2)]
    assert fingerprint(AttemptCredentials(TOKEN), OWN) == fingerprint(CREDENTIALS, OWN)
    found = {fingerprint(CREDENTIALS, each) for each in [OWN, *others]}
    assert len(found | {fingerprint(AttemptCredentials("another cluster"), OWN)}) == 4


# --- what they open at a JobManager -----------------------------------------------------------------------------------


async def test_a_driver_reaches_only_the_blobs_of_its_own_job(site: Site) -> None:
    """Each route is tried, with the driver's own job in the path, and with another one."""
    pages = web_routes(site.web_sources)
    app = build_application(site.api, secure=lambda app: secure(app, AccessPolicy("")), roles={}, routes=pages)
    routes = {(each.method, each.resource.canonical) for each in app.router.routes() if each.resource is not None}
    values = {"key": f"t-{'0' * 64}", "jobid": OWN.job_id, "nodeid": "n", "triggerid": "0" * 32}

    async def is_open(method: str, pattern: str, job: str) -> bool:
        path = re.sub(r"\{(\w+)[^}]*\}", lambda found: {**values, "jobid": job}.get(found[1], "x"), pattern)
        answer = await site.request(method, path, headers=DRIVER)
        assert answer.status != 401
        return answer.status != 403

    tried = {route for route in routes if route[1] not in OPEN}
    assert len(tried) > 50
    assert {route for route in tried if await is_open(*route, OWN.job_id)} == DRIVER_ROUTES
    assert not [route for route in tried if await is_open(*route, job_id(2))]


async def test_a_driver_does_not_act_for_another_attempt_of_its_job(site: Site) -> None:
    path = f"/v1/jobs/{OWN.job_id}/blobs/t-{'0' * 64}/holders/h"
    own = await site.request("DELETE", path, headers={**DRIVER, ATTEMPT_HEADER: "2"})
    earlier = await site.request("DELETE", path, headers={**DRIVER, ATTEMPT_HEADER: "3"})
    assert (own.status, earlier.status) == (204, 403)
    assert "driver of attempt 2 of job" in earlier.problem().detail
    entries = await recorded(site, 2)
    assert {(entry["identity"], entry["role"]) for entry in entries} == {(f"driver of {OWN}", "driver")}


async def test_a_driver_sends_only_what_drivers_send(site: Site) -> None:
    headers = {**DRIVER, VERSION_HEADER: str(PROTOCOL_VERSION), "Content-Type": CONTENT_TYPE}
    refused = set()
    for kind in REQUESTS:
        answer = await site.request("POST", f"/rpc/v1/{kind}", data=b"", headers=headers)
        if answer.status == 403:
            refused.add(kind)
    assert set(REQUESTS) - refused == FROM_DRIVERS
    assert {"StartDriver", "RegisterTaskManager", "StopTaskManager", "AllocateSlot", "UploadLog"} <= refused


@pytest.mark.parametrize("other", [AttemptScope(job_id(2), 2), AttemptScope(job_id(1), 1), AttemptScope(job_id(1), 3)])
async def test_a_driver_speaks_for_its_own_attempt_only(site: Site, other: AttemptScope) -> None:
    headers = {**DRIVER, VERSION_HEADER: str(PROTOCOL_VERSION), "Content-Type": CONTENT_TYPE}
    messages = requests_of(JobId(other.job_id), other.attempt)
    assert {type(each).__name__ for each in messages} | {AskLeader.__name__} == FROM_DRIVERS
    for message in messages:
        with pytest.raises(Forbidden, match="the credentials are those of attempt 2"):
            check_driver_request(message, OWN)
        path = f"/rpc/v1/{type(message).__name__}"
        assert (await site.request("POST", path, data=encode_message(message), headers=headers)).status == 403
    for message in requests_of(JobId(OWN.job_id), OWN.attempt):
        check_driver_request(message, OWN)


async def test_a_driver_opens_no_page_and_no_session(site: Site) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": site.base, "Authorization": ""}
    login = await site.request("POST", LOGIN_PATH, data=f"token={CREDENTIALS.token(OWN)}", headers=form)
    assert login.status == 401
    assert (await site.get("/jobs", headers=DRIVER)).status == 403


# --- calls to drivers -------------------------------------------------------------------------------------------------


class Driver:
    """A driver's port, with the credentials of ``scope``. ``heard``: the Authorization of each request."""

    def __init__(self, directory: Path, scope: AttemptScope) -> None:
        directory.mkdir()
        self.node = cluster_tls(directory.parent / "tls")
        token, files = write_attempt_files(directory, scope, CREDENTIALS, self.node.files)
        self.token, self.files = token.read_text().strip(), files
        self.tls = TlsLinks(files)
        self.heard: list[str] = []
        self.server: ServedPort | None = None
        self.service = ScriptedService({OfferSlots: OfferSlotsReply(accepted=()), AskLeader: LeaderTold()})

    async def listen(self) -> str:
        @web.middleware
        async def hear(request: web.Request, handler: Handler) -> web.StreamResponse:
            self.heard.append(request.headers.get("Authorization", ""))
            return await handler(request)

        app = web.Application(middlewares=[hear])
        secure(app, AccessPolicy(self.token))
        app.add_routes(rpc_routes(self.service))
        self.server = await serve_http(app, bind_port("127.0.0.1", 0), self.tls.server)
        return self.server.address


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    driver = Driver(tmp_path / "attempt", OWN)
    try:
        yield driver
    finally:
        if driver.server is not None:
            await driver.server.close()


@pytest.fixture
async def caller(driver: Driver) -> AsyncIterator[HttpRpcClient]:
    client = HttpRpcClient(TOKEN, tls=driver.node.client, drivers=CalledDrivers(CREDENTIALS))
    yield client
    await client.close()


async def test_a_task_manager_calls_a_driver_with_the_drivers_own_token(driver: Driver, caller: HttpRpcClient) -> None:
    address = await driver.listen()
    question = AskLeader(job_id=OWN.job_id, attempt=OWN.attempt)
    await caller.call(address, offer(OWN), OfferSlotsReply, timeout=30)
    await caller.call(address, question, LeaderTold, timeout=30)
    assert driver.service.requests == [offer(OWN), question]
    assert driver.heard == [f"Bearer {driver.token}"] * 2


async def test_a_driver_that_poses_as_another_gets_nothing(driver: Driver, caller: HttpRpcClient) -> None:
    """It listens at the address of a driver that has ended, for example."""
    address = await driver.listen()
    for scope in (AttemptScope(OWN.job_id, 3), AttemptScope(job_id(2), 2)):
        with pytest.raises(RetryLater, match="shows another certificate"):
            await caller.call(address, offer(scope), OfferSlotsReply, timeout=30)
    assert driver.heard == []


async def test_a_driver_does_not_pass_for_a_daemon(driver: Driver, caller: HttpRpcClient) -> None:
    """Daemons trust certificates of the CA, which a driver does not have."""
    address = await driver.listen()
    with pytest.raises(RetryLater, match="no valid certificate of the cluster"):
        await caller.call(address, AskLeader(), LeaderTold, timeout=30)
    assert driver.heard == []


async def test_other_drivers_cannot_call_a_driver(driver: Driver) -> None:
    address = await driver.listen()
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    other = CREDENTIALS.token(AttemptScope(job_id(2), 1))
    async with ClientSession(headers={"Authorization": f"Bearer {other}"}) as session:
        for kind in ("OfferSlots", "ExecutorChanged", "AskLeader", "ReadSparkUi"):
            async with session.post(f"https://{address}/rpc/v1/{kind}", ssl=trusting, data=b"") as answer:
                assert answer.status == 401
    assert driver.service.requests == []


async def test_a_connection_to_a_driver_is_used_again(driver: Driver, caller: HttpRpcClient) -> None:
    address = await driver.listen()
    handshakes = 0

    def count(*_: object) -> None:
        nonlocal handshakes
        handshakes += 1

    driver.tls.server.sni_callback = count
    for _ in range(5):
        await caller.call(address, offer(OWN), OfferSlotsReply, timeout=30)
        await asyncio.sleep(0)
    assert handshakes == 1


async def test_the_files_of_an_attempt_are_private_and_hold_no_key_of_the_node(driver: Driver, tmp_path: Path) -> None:
    attempt = tmp_path / "attempt"
    node: TlsFiles = driver.node.files
    for path in attempt.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        text = path.read_text()
        assert TOKEN not in text
        assert Path(node.key).read_text().partition("PRIVATE KEY")[2] not in text
    assert {path.name for path in attempt.iterdir()} == {"token", "driver.pem", "ca.pem"}
