"""What clients of a history know about the outcome of a request."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from unittest import mock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from campaign.processes.calls import BREAKABLE, Calls, NotDone, Unknown
from campaign.processes.clients import Client, ClientsWorld
from campaign.processes.plan import PlannedFault
from campaign.processes.recording import Recorder
from campaign.processes.strikes import Striker
from emberkeep.blobs.model import parse_blob_key
from emberkeep.rest.blobs.response import Sent, send_blob


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
async def test_a_request_whose_server_dies_is_sent_once_and_of_unknown_outcome(method: str) -> None:
    requests: list[bytes] = []

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readline())
        server.close()  # what connects next is refused
        writer.close()

    server = await asyncio.start_server(die, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with Calls("a token") as calls:
        with pytest.raises(Unknown):
            await calls.call(method, f"http://{host}:{port}", "/blocklist/nodes/a", {} if method == "PUT" else None)
    assert len(requests) == 1


async def test_a_request_that_nobody_accepts_has_had_no_effect() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    server.close()
    await server.wait_closed()
    async with Calls("a token") as calls:
        with pytest.raises(NotDone):
            await calls.call("PUT", f"http://{host}:{port}", "/blocklist/nodes/a", {})


@pytest.mark.parametrize("is_slow", [True, False])
async def test_a_client_that_gets_its_reply_in_time_has_abandoned_nothing(is_slow: bool) -> None:
    ending = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if is_slow:
            await ending.wait()
        body = b'{"blockedNodes": {}, "blockedTaskManagers": {}}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    recorder = Recorder()
    async with Calls("a token") as calls:
        world = ClientsWorld(calls, [f"http://{host}:{port}"], [], recorder, lambda: None)
        client = Client("client-0", world, random.Random(1))
        striker = Striker(mock.Mock(), world, [client])
        await striker._strike(PlannedFault(0.0, "abandon request", 0, 0.0))
        if not is_slow:
            client._chance = mock.Mock(choice=lambda urls: urls[0], uniform=lambda *_: 30.0)
        await client.list_blocklist()
    ending.set()
    server.close()
    assert [strike.target for strike in striker.applied] == (["client-0"] if is_slow else [])
    assert recorder.counts == {"list: refused" if is_slow else "list: done": 1}


@pytest.mark.parametrize("size", [BREAKABLE, 1_000])
async def test_a_download_is_broken_off_while_its_server_sends(tmp_path: Path, size: int) -> None:
    (tmp_path / "blob").write_bytes(bytes(size))
    sent = Sent()
    over = asyncio.Event()

    async def download(request: web.Request) -> web.StreamResponse:
        try:
            return await send_blob(request, parse_blob_key(f"p-{'a' * 64}"), tmp_path / "blob", sent)
        finally:
            over.set()

    app = web.Application()
    app.router.add_get("/v1/blob", download)
    async with TestServer(app) as server, Calls("a token") as calls:
        was_broken = await calls.break_download(f"http://{server.host}:{server.port}", "/blob")
        await over.wait()
    assert was_broken == (size == BREAKABLE)
    assert sent.complete == (not was_broken)
