"""What is particular to RPC over HTTP: refusals, strangers at the other end, broken and oversized traffic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from emberkeep.adapters.http.rpc import CONTENT_TYPE, VERSION_HEADER, HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import ServedPort, bind_port, serve_http
from emberkeep.base.errors import EmberkeepError, Fatal, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.protocol import limits
from emberkeep.protocol.encoding.wire import decode_error
from emberkeep.protocol.messages.root import PROTOCOL_VERSION, Ack
from tests.support.contracts.rpc import GENEROUS, RELEASE, Service, raising, replying

TOKEN = "t" * 40
Serve = Callable[..., Awaitable[str]]
pytestmark = pytest.mark.anyio


@pytest.fixture
async def client() -> AsyncIterator[HttpRpcClient]:
    client = HttpRpcClient(TOKEN)
    yield client
    await client.close()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    servers: list[ServedPort] = []

    async def start(service: Service, *, token: str = TOKEN) -> str:
        app = web.Application()
        secure(app, AccessPolicy(token=token))
        app.add_routes(rpc_routes(service))
        servers.append(await serve_http(app, bind_port("127.0.0.1", 0)))
        return servers[-1].address

    yield start
    for server in servers:
        await server.close()


async def post(address: str, kind: str, body: bytes, **headers: str) -> tuple[int, str, bytes]:
    sent = {"Authorization": f"Bearer {TOKEN}", VERSION_HEADER: str(PROTOCOL_VERSION), **headers}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/rpc/v1/{kind}", data=body, headers=sent) as response,
    ):
        return response.status, response.content_type, await response.read()


async def test_a_wrong_token_is_fatal_and_says_which_setting(client: HttpRpcClient, serve: Serve) -> None:
    service = replying(Ack())
    address = await serve(service, token="u" * 40)
    with pytest.raises(Fatal, match=r"security\.token-file"):
        await client.call(address, RELEASE, Ack, timeout=GENEROUS)
    assert service.requests == []


@pytest.mark.parametrize(
    ("kind", "body", "headers", "reason"),
    [
        ("ReleaseSlot", b"\xc1", {}, "not a valid ReleaseSlot"),
        ("ReleaseSlot", b"\x81\xa6job_id\x01", {}, "job_id"),
        ("NoSuchKind", b"\x80", {}, "'NoSuchKind' is not a request"),
        ("ReleaseSlot", b"\x80", {VERSION_HEADER: "99"}, "version 99"),
    ],
)
async def test_bad_requests_are_refused_with_the_reason(
    serve: Serve, kind: str, body: bytes, headers: dict[str, str], reason: str
) -> None:
    service = replying(Ack())
    status, content_type, answer = await post(await serve(service), kind, body, **headers)
    error = decode_error(answer, sender="peer")
    assert (status, content_type) == (400, CONTENT_TYPE)
    assert isinstance(error, InvalidInput)
    assert reason in str(error)
    assert service.requests == []


async def test_too_large_requests_are_refused_before_they_are_read(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emberkeep.adapters.http.offload.RPC_INLINE_SLACK", 1000)
    monkeypatch.setattr("emberkeep.adapters.http.offload.RPC_MESSAGE_BYTES", 0)
    service = replying(Ack())
    status, _, answer = await post(await serve(service), "ReleaseSlot", b"\x80" * 2000)
    assert status == 400
    assert "larger than 1000 bytes" in str(decode_error(answer, sender="peer"))
    assert service.requests == []


async def test_a_bug_leaves_no_traceback_in_the_answer(serve: Serve) -> None:
    body = b"\x83\xa6job_id\xa1a\xa7attempt\x01\xadallocation_id\xa1b"
    status, content_type, answer = await post(await serve(raising(KeyError("inner"))), "ReleaseSlot", body)
    assert (status, content_type) == (504, CONTENT_TYPE)
    assert b"Traceback" not in answer
    assert b"inner" not in answer


async def raw_server(answer: bytes) -> tuple[asyncio.Server, str]:
    """A server that reads a request's head, writes ``answer`` and hangs up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", UnknownOutcome),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: 100\r\n\r\nabc" % CONTENT_TYPE.encode(),
            UnknownOutcome,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi", Fatal),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", Fatal),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", UnknownOutcome),
        (b"SSH-2.0-OpenSSH\r\n", UnknownOutcome),
        (b"HTTP/1.1 500 X\r\nContent-Type: %s\r\nContent-Length: 2\r\n\r\nhi" % CONTENT_TYPE.encode(), UnknownOutcome),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
            % (CONTENT_TYPE.encode(), limits.RPC_MESSAGE_BYTES + 1),
            Fatal,
        ),
    ],
)
async def test_strange_answers_become_errors_of_ours(
    client: HttpRpcClient, answer: bytes, expected: type[EmberkeepError]
) -> None:
    server, address = await raw_server(answer)
    async with server:
        with pytest.raises(expected) as caught:
            await client.call(address, RELEASE, Ack, timeout=GENEROUS)
    assert type(caught.value) is expected
    assert address in str(caught.value)


async def test_a_closed_client_sends_nothing(client: HttpRpcClient, serve: Serve) -> None:
    service = replying(Ack())
    address = await serve(service)
    await client.call(address, RELEASE, Ack, timeout=GENEROUS)
    await client.close()
    await client.close()
    with pytest.raises(RetryLater):
        await client.call(address, RELEASE, Ack, timeout=GENEROUS)
    assert len(service.requests) == 1


async def test_connections_are_used_again(client: HttpRpcClient) -> None:
    peers: set[object] = set()
    app = web.Application()
    secure(app, AccessPolicy(TOKEN))

    @web.middleware
    async def note_peer(request: web.Request, handler: Handler) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return await handler(request)

    app.middlewares.append(note_peer)
    app.add_routes(rpc_routes(replying(Ack())))
    server = await serve_http(app, bind_port("127.0.0.1", 0))
    for _ in range(20):
        await client.call(server.address, RELEASE, Ack, timeout=GENEROUS)
    await server.close()
    assert len(peers) == 1
