"""Release 0.1.0 refuses fields that it does not know: it is sent none, whatever this release has to say."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
from aiohttp import ClientSession, web

from emberkeep.adapters.http.rpc import CONTENT_TYPE, LENIENT_HEADER, HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.server import ServedPort, bind_port, serve_http
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol import messages
from emberkeep.protocol.encoding.first_release import ADDED, for_first_release
from emberkeep.protocol.encoding.wire import encode_error, encode_message
from emberkeep.protocol.messages.job_masters import ReportOutcome
from emberkeep.protocol.messages.root import PROTOCOL_VERSION, Ack, Message
from emberkeep.protocol.messages.task_manager_reports import TaskManagerReport
from emberkeep.protocol.messages.task_managers import StopDriver, TaskManagerHeartbeat, TaskManagerHeartbeatReply

pytestmark = [pytest.mark.req("SAFE-14"), pytest.mark.anyio]

# What the classes of all messages of 0.1.0 had, by name.
KNOWN: dict[str, list[str]] = json.loads(Path(__file__).with_name("message_fields_0_1_0.json").read_text())
STOP = StopDriver(epoch=3, job_id=JobId("a" * 32), attempt=1, grace=1.0, lineage="ours")


def _classes(kind: Any, seen: set[type[msgspec.Struct]]) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
        seen.add(kind)
        yield kind
        for hint in get_type_hints(kind).values():
            yield from _classes(hint, seen)
    for argument in get_args(kind):
        yield from _classes(argument, seen)


def _of_all_messages() -> list[type[msgspec.Struct]]:
    seen: set[type[msgspec.Struct]] = set()
    modules = [
        importlib.import_module(f"{messages.__name__}.{each.name}") for each in pkgutil.iter_modules(messages.__path__)
    ]
    named = [each for module in modules for each in vars(module).values()]
    kinds = [kind for kind in named if isinstance(kind, type) and issubclass(kind, Message)]
    return [found for kind in kinds for found in _classes(kind, seen)]


def test_every_field_that_came_later_is_listed() -> None:
    later = {
        kind: tuple(name for name in kind.__struct_fields__ if name not in KNOWN[kind.__name__])
        for kind in _of_all_messages()
        if kind.__name__ in KNOWN
    }
    assert {kind: names for kind, names in later.items() if names} == ADDED


def test_nested_values_are_reduced_too() -> None:
    outcome = AttemptOutcome(exit_code=1, lasting=True)
    message = ReportOutcome(job_id=JobId("a" * 32), attempt=1, outcome=outcome, lineage="ours")
    assert for_first_release(message) == ReportOutcome(
        job_id=JobId("a" * 32), attempt=1, outcome=AttemptOutcome(exit_code=1)
    )
    plain = StopDriver(epoch=3, job_id=JobId("a" * 32), attempt=1, grace=1.0)
    assert for_first_release(plain) is plain


class FirstRelease:
    """Answers as 0.1.0 does: a field too many is a bad request, and no header tells anything."""

    def __init__(self) -> None:
        self.served: list[dict[str, Any]] = []
        self.refused = 0

    async def handle(self, request: web.Request) -> web.Response:
        fields = msgspec.msgpack.decode(await request.read())
        unknown = set(fields) - set(KNOWN[request.match_info["kind"]])
        if unknown:
            self.refused += 1
            error = InvalidInput(f"the request is not valid: Object contains unknown field {unknown}")
            return web.Response(status=400, body=encode_error(error), content_type=CONTENT_TYPE)
        self.served.append(fields)
        return web.Response(body=encode_message(Ack()), content_type=CONTENT_TYPE)


class Present:
    """A process of this release; it answers a heartbeat."""

    def __init__(self) -> None:
        self.served: list[Message] = []

    async def serve(self, request: Message) -> Message:
        self.served.append(request)
        return TaskManagerHeartbeatReply(epoch=3, known=True, lineage="ours")


@pytest.fixture
async def client() -> AsyncIterator[HttpRpcClient]:
    client = HttpRpcClient("t" * 40)
    yield client
    await client.close()


@pytest.fixture
async def server() -> AsyncIterator[list[ServedPort]]:
    servers: list[ServedPort] = []
    yield servers
    for each in servers:
        await each.close()


async def _start(servers: list[ServedPort], routes: list[web.RouteDef], port: int = 0) -> str:
    app = web.Application()
    app.add_routes(routes)
    servers.append(await serve_http(app, bind_port("127.0.0.1", port)))
    return servers[-1].address


async def test_who_refuses_new_fields_is_sent_none_and_who_takes_its_place_all(
    client: HttpRpcClient, server: list[ServedPort]
) -> None:
    before = FirstRelease()
    address = await _start(server, [web.post("/rpc/v1/{kind}", before.handle)])
    for _ in range(2):
        await client.call(address, STOP, Ack, timeout=10.0)
    assert [fields["epoch"] for fields in before.served] == [3, 3]
    assert before.refused == 1, "then it is known"

    # It is upgraded, and has the same port.
    await server.pop().close()
    present = Present()
    await _start(server, rpc_routes(present), int(address.rpartition(":")[2]))
    heartbeat = TaskManagerHeartbeat(
        id=TaskManagerId("tm"),
        instance=InstanceId("c" * 32),
        report=TaskManagerReport(sequence=1, allocations=(), drivers=()),
        lineage="ours",
    )
    for _ in range(2):
        reply = await client.call(address, heartbeat, TaskManagerHeartbeatReply, timeout=10.0)
        assert reply.lineage == "ours"
    assert present.served[-1] == heartbeat


async def test_an_answer_to_the_first_release_has_what_it_knows(server: list[ServedPort]) -> None:
    address = await _start(server, rpc_routes(Present()))
    async with ClientSession() as session:
        for headers, has_more in (({}, False), ({LENIENT_HEADER: "ignored"}, True)):
            async with session.post(
                f"http://{address}/rpc/v1/StopDriver",
                data=encode_message(STOP),
                headers={"Emberkeep-Protocol": str(PROTOCOL_VERSION), **headers},
            ) as response:
                assert LENIENT_HEADER in response.headers
                fields = msgspec.msgpack.decode(await response.read())
                assert ("lineage" in fields) is has_more
                assert set(fields) - {"lineage"} <= set(KNOWN["TaskManagerHeartbeatReply"])
