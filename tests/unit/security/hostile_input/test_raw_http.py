"""Bytes that are no proper HTTP, at each kind of port: they are refused, and the port serves the next client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession, web

from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.webhdfs.protocol import WebHdfs
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.protocol.encoding.hadoop_token import KIND, encode
from tests.support.certificates import cluster_tls
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import TOKEN, running_site
from tests.unit.security.hostile_input import raw_http
from tests.unit.security.hostile_input.raw_http import Form, bombs, named_requests, statuses
from tests.unit.taskmanager.state_gateway.state_gateways import EXECUTOR, JOB, Node

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-19")]

SECRET = b"the node's"
LOGIN = f"Authorization: Bearer {TOKEN}\r\n".encode()
BLOB = f"/v1/jobs/{job_id(1)}/blobs/p-{'0' * 64}".encode()
PATHS = {
    "overview": b"GET /v1/overview",
    "page": b"GET /",
    "static": b"GET /static/emberkeep.css",
    "metrics": b"GET /metrics",
    "submission": b"POST /v1/jobs",
    "upload": b"PUT " + BLOB,
    "rpc": b"POST /rpc/v1/ListLogs",
    "form": b"POST /login",
    "log": f"GET /v1/jobs/{job_id(1)}/logs/x".encode(),
}
MEMORY = 64 * 2**20  # bytes: a third of what one bomb holds


@asynccontextmanager
async def job_manager(directory: Path) -> AsyncIterator[tuple[str, int]]:
    gateway = FakeGateway()
    gateway.add(job_view(job_id(1), "flights"))
    gateway.add_task_managers(task_manager_view(2))
    async with running_site(directory, gateway) as site:
        address = urlsplit(site.base)
        assert address.hostname is not None
        assert address.port is not None
        yield address.hostname, address.port
        assert (await site.get("/v1/overview")).status == 200


@asynccontextmanager
async def state_gateway(directory: Path) -> AsyncIterator[tuple[str, int]]:
    port = bind_port("127.0.0.1", 0)
    gateway = WebHdfs(Node(directory).gateway, lambda text: caller_of(SECRET, text), f"http://{port.address}")
    server = await serve_http(gateway.application(), port)
    try:
        yield port.host, port.port
        async with ClientSession() as session, session.get(f"http://{port.address}{_at('GETHOMEDIRECTORY')}") as answer:
            assert answer.status == 200
    finally:
        await server.close()
        gateway.close()


def _at(operation: str) -> str:
    token = encode(credential(SECRET, EXECUTOR), KIND, "127.0.0.1:1")
    return f"/webhdfs/v1/{JOB}/own/d/f?op={operation}&delegation={token}"


STATE_PATHS = {
    "create": f"PUT {_at('CREATE')}&step=data".encode(),
    "open": f"GET {_at('OPEN')}&step=data".encode(),
    "list": f"GET {_at('LISTSTATUS')}".encode(),
    "rename": f"PUT {_at('RENAME')}&destination=/%ed%a0%80".encode(),
}


async def test_what_is_not_proper_http_at_the_job_managers_port(tmp_path: Path) -> None:
    async with job_manager(tmp_path) as address:
        for login in (LOGIN, b""):
            await send_all(address, Form(login, PATHS))


async def test_what_is_not_proper_http_at_a_state_gateways_port(tmp_path: Path) -> None:
    async with state_gateway(tmp_path) as address:
        await send_all(address, Form(b"", STATE_PATHS))


async def send_all(address: tuple[str, int], form: Form) -> None:
    """Send each known attack, several at once. None is answered by an error of the server."""
    places = asyncio.Semaphore(16)
    failed: dict[str, list[int]] = {}

    async def send(name: str, data: bytes) -> None:
        async with places:
            found = await statuses(*address, data)
        if any(status >= 500 for status in found):
            failed[name] = found

    await asyncio.gather(*(send(name, data) for name, data in named_requests(form)))

    assert failed == {}


@pytest.mark.req("SEC-8")
async def test_a_body_that_decompresses_to_much_takes_little_memory(tmp_path: Path) -> None:
    async with job_manager(tmp_path) as address:
        for login in (LOGIN, b""):
            for name, data in bombs(Form(login, PATHS)):
                before = _peak()
                found = await statuses(*address, data)
                assert all(status < 500 for status in found), (name, found)
                assert _peak() - before < MEMORY, name


def _peak() -> int:
    """The largest memory that this process has ever had, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


async def test_no_tls_at_a_port_with_tls(tmp_path: Path) -> None:
    tls = cluster_tls(tmp_path, "127.0.0.1")
    app = web.Application()
    secure(app, AccessPolicy(TOKEN))
    port = bind_port("127.0.0.1", 0)
    server = await serve_http(app, port, tls.server)
    try:
        form = Form(LOGIN, {"overview": b"GET /v1/overview"})
        for data in (form.request(b"GET", b"/"), *raw_http.OTHER_PROTOCOLS.values()):
            assert await statuses(port.host, port.port, data) == []
        assert await statuses(port.host, port.port, form.request(b"GET", b"/"), tls.client) == [404]
    finally:
        await server.close()
