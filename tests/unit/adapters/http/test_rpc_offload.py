"""Off-loading between two processes over HTTP: one BLOB for all receivers, acknowledged by each, whatever gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from emberkeep.adapters.http.offload import Offload
from emberkeep.adapters.http.rpc import CONTENT_TYPE, VERSION_HEADER, HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import ServedPort, bind_port, serve_http
from emberkeep.base.errors import Conflict, Fatal, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.ids import AllocationId, InstanceId, JobId
from emberkeep.base.system import real_system
from emberkeep.blobs.model import BlobKey
from emberkeep.protocol.messages.executors import JobMasterBeat, ReleaseSlot, SlotsReply
from emberkeep.protocol.messages.root import PROTOCOL_VERSION, Ack, Message
from emberkeep.protocol.transport import RpcService
from tests.support.contracts.rpc import GENEROUS, Service, raising, replying
from tests.support.message_blobs import MemoryMessageBlobs

pytestmark = [pytest.mark.anyio, pytest.mark.req("BLOB-19")]

TOKEN = "t" * 40
MINIMUM = 1000
JOB = JobId("a" * 32)
LARGE = ReleaseSlot(job_id=JOB, attempt=1, allocation_id=AllocationId("x" * 5000))
LARGE_REPLY = SlotsReply(instance=InstanceId("i"), allocations=(AllocationId("y" * 5000),), executors=())
BEAT = JobMasterBeat(job_id=JOB, attempt=1, allocations=())
Serve = Callable[..., Awaitable[str]]


def offload(blobs: MemoryMessageBlobs, *, grace: float = 600.0) -> Offload:
    return Offload(blobs, real_system(), minimum=MINIMUM, grace=grace)


@pytest.fixture
def blobs() -> MemoryMessageBlobs:
    return MemoryMessageBlobs()


@pytest.fixture
async def client(blobs: MemoryMessageBlobs) -> AsyncIterator[HttpRpcClient]:
    client = HttpRpcClient(TOKEN, offload(blobs))
    yield client
    await client.close()


@pytest.fixture
async def serve(blobs: MemoryMessageBlobs) -> AsyncIterator[Serve]:
    servers: list[ServedPort] = []

    async def start(service: RpcService, mine: Offload | None = None) -> str:
        app = web.Application()
        secure(app, AccessPolicy(token=TOKEN))
        app.add_routes(rpc_routes(service, mine or offload(blobs)))
        servers.append(await serve_http(app, bind_port("127.0.0.1", 0)))
        return servers[-1].address

    yield start
    for server in servers:
        await server.close()


async def test_one_message_to_three_receivers_is_stored_once_and_acknowledged_by_each(
    blobs: MemoryMessageBlobs, client: HttpRpcClient, serve: Serve
) -> None:
    services = [replying(Ack()) for _ in range(3)]
    for service in services:
        await client.call(await serve(service), LARGE, Ack, timeout=GENEROUS)
    assert [service.requests for service in services] == [[LARGE]] * 3
    assert [place[0] for place in blobs.contents] == [JOB]
    assert len(blobs.fetches) == len(blobs.releases) == len({holder for _, holder in blobs.fetches}) == 3
    assert blobs.references == 0


async def test_small_messages_are_not_off_loaded(
    blobs: MemoryMessageBlobs, client: HttpRpcClient, serve: Serve
) -> None:
    await client.call(await serve(replying(Ack())), BEAT, Ack, timeout=GENEROUS)
    assert blobs.contents == {}


async def test_the_acknowledgement_comes_before_the_answer(
    blobs: MemoryMessageBlobs, client: HttpRpcClient, serve: Serve
) -> None:
    async def answer(_request: Message) -> Message:
        assert blobs.references == 0
        return Ack()

    await client.call(await serve(Service(answer)), LARGE, Ack, timeout=GENEROUS)


async def test_a_large_reply_belongs_to_the_requests_job(
    blobs: MemoryMessageBlobs, client: HttpRpcClient, serve: Serve
) -> None:
    reply = await client.call(await serve(replying(LARGE_REPLY)), BEAT, SlotsReply, timeout=GENEROUS)
    assert reply == LARGE_REPLY
    assert [place[0] for place in blobs.contents] == [JOB]
    assert blobs.references == 0


@pytest.mark.req("HA-7")
async def test_a_message_of_a_superseded_attempt_is_stored_for_nobody(serve: Serve) -> None:
    class Refusing(MemoryMessageBlobs):
        async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
            if attempt == LARGE.attempt:
                raise Conflict("the attempt is over")
            return await super().store(owner, data, holder, attempt)

    blobs = Refusing()
    client = HttpRpcClient(TOKEN, offload(blobs))
    service = replying(Ack())
    with pytest.raises(Conflict, match="over"):
        await client.call(await serve(service), LARGE, Ack, timeout=GENEROUS)
    assert (service.requests, blobs.contents) == ([], {})
    await client.close()


async def test_a_message_that_certainly_did_not_arrive_gives_its_reference_back(
    blobs: MemoryMessageBlobs, client: HttpRpcClient
) -> None:
    port = bind_port("127.0.0.1", 0)
    with pytest.raises(RetryLater):
        await client.call(port.address, LARGE, Ack, timeout=GENEROUS)
    port.close()
    assert blobs.references == 0
    assert len(blobs.releases) == 1


async def test_a_receiver_that_dies_before_it_acknowledges_leaves_the_reference_for_a_while(
    serve: Serve,
) -> None:
    released = asyncio.Event()

    class Told(MemoryMessageBlobs):
        async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
            await super().release(owner, key, holder, attempt)
            released.set()

    blobs = Told()
    sending = offload(blobs, grace=0.05)
    client = HttpRpcClient(TOKEN, sending)

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    server = await asyncio.start_server(die, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(UnknownOutcome):
            await client.call(address, LARGE, Ack, timeout=GENEROUS)
    assert blobs.references == 1

    running = asyncio.create_task(sending.run())
    await asyncio.wait_for(released.wait(), 60)
    assert blobs.references == 0
    running.cancel()
    await client.close()


async def test_a_lost_acknowledgement_hinders_nobody(
    blobs: MemoryMessageBlobs, client: HttpRpcClient, serve: Serve
) -> None:
    class Mute(MemoryMessageBlobs):
        contents = blobs.contents

        async def release(self, owner: JobId, key: BlobKey, holder: str, attempt: int) -> None:
            raise RetryLater("the JobManager does not answer")

    mute = Mute()
    mute.contents = blobs.contents
    service = replying(Ack())
    await client.call(await serve(service, offload(mute)), LARGE, Ack, timeout=GENEROUS)
    assert service.requests == [LARGE]
    assert blobs.references == 1


async def test_a_message_whose_blob_is_gone_did_not_arrive(
    blobs: MemoryMessageBlobs, client: HttpRpcClient, serve: Serve
) -> None:
    empty = MemoryMessageBlobs()
    service = replying(Ack())
    with pytest.raises(RetryLater, match="no longer exists"):
        await client.call(await serve(service, offload(empty)), LARGE, Ack, timeout=GENEROUS)
    assert service.requests == []


async def test_a_reply_whose_blob_is_gone_is_an_unknown_outcome(blobs: MemoryMessageBlobs, serve: Serve) -> None:
    client = HttpRpcClient(TOKEN, offload(MemoryMessageBlobs()))
    service = replying(LARGE_REPLY)
    with pytest.raises(UnknownOutcome, match="no longer exists"):
        await client.call(await serve(service), BEAT, SlotsReply, timeout=GENEROUS)
    assert service.requests == [BEAT]
    await client.close()


@pytest.mark.parametrize("error", [RetryLater("no server"), Conflict("the job has ended"), Fatal("disk full")])
async def test_what_cannot_be_stored_is_not_sent(serve: Serve, error: Exception) -> None:
    class Refusing(MemoryMessageBlobs):
        async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
            raise error

    client = HttpRpcClient(TOKEN, offload(Refusing()))
    service = replying(Ack())
    with pytest.raises(type(error)):
        await client.call(await serve(service), LARGE, Ack, timeout=GENEROUS)
    assert service.requests == []
    await client.close()


async def test_a_reply_that_cannot_be_stored_is_an_unknown_outcome(client: HttpRpcClient, serve: Serve) -> None:
    class Refusing(MemoryMessageBlobs):
        async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
            raise RetryLater("no server")

    with pytest.raises(UnknownOutcome, match="no server"):
        await client.call(await serve(replying(LARGE_REPLY), offload(Refusing())), BEAT, SlotsReply, timeout=GENEROUS)


async def test_storing_that_takes_too_long_means_nothing_was_sent(serve: Serve) -> None:
    class Slow(MemoryMessageBlobs):
        async def store(self, owner: JobId, data: bytes, holder: str, attempt: int) -> BlobKey:
            await asyncio.Event().wait()
            raise AssertionError

    client = HttpRpcClient(TOKEN, offload(Slow()))
    service = replying(Ack())
    with pytest.raises(RetryLater, match="not stored"):
        await client.call(await serve(service), LARGE, Ack, timeout=0.1)
    assert service.requests == []
    await client.close()


async def test_the_receivers_errors_pass(client: HttpRpcClient, serve: Serve) -> None:
    with pytest.raises(Conflict, match="newer attempt"):
        await client.call(await serve(raising(Conflict("newer attempt"))), LARGE, Ack, timeout=GENEROUS)


@pytest.mark.parametrize("body", [b"\xc7\x01\x01\xc1", b"\xd4\x05\x80"])
async def test_a_forged_reference_is_refused(serve: Serve, body: bytes) -> None:
    service = replying(Ack())
    address = await serve(service)
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        VERSION_HEADER: str(PROTOCOL_VERSION),
        "Content-Type": CONTENT_TYPE,
    }
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/rpc/v1/ReleaseSlot", data=body, headers=headers) as response,
    ):
        assert response.status == 400
    assert service.requests == []


async def test_a_process_that_off_loads_nothing_says_what_it_cannot_send(serve: Serve) -> None:
    client = HttpRpcClient(TOKEN)
    huge = ReleaseSlot(job_id=JOB, attempt=1, allocation_id=AllocationId("x" * (2 * 1024**2)))
    with pytest.raises(InvalidInput, match="without off-loading"):
        await client.call(await serve(replying(Ack())), huge, Ack, timeout=GENEROUS)
    await client.close()


async def test_a_number_that_no_message_can_hold_is_refused_before_it_is_sent(blobs: MemoryMessageBlobs) -> None:
    """A job graph is stored as JSON, which holds any number. Sending it must not end the sender."""
    for mine in (None, offload(blobs)):
        client = HttpRpcClient(TOKEN, mine)
        with pytest.raises(InvalidInput, match="ReleaseSlot has a number of more than 64 bits"):
            await client.call(
                "127.0.0.1:1", ReleaseSlot(job_id=JOB, attempt=2**70, allocation_id=AllocationId("x")), Ack, timeout=5
            )
        await client.close()
