"""Contract of RPC transports: tests for every implementation of ``protocol.transport``.

A test module gives a subclass of ``RpcContract`` (its name begins with "Test") a fixture ``link``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from emberkeep.base.errors import (
    Absent,
    Conflict,
    EmberkeepError,
    Fatal,
    IllegalTransition,
    InvalidInput,
    RetryLater,
    UnknownOutcome,
)
from emberkeep.base.ids import AllocationId, InstanceId, JobId
from emberkeep.protocol.messages.executors import JobMasterBeat, ReleaseSlot, SlotsReply
from emberkeep.protocol.messages.root import Ack, Message
from emberkeep.protocol.transport import RpcClient, RpcService

JOB = JobId("a" * 32)
GENEROUS = 30.0  # seconds; no test waits for it
BEAT = JobMasterBeat(job_id=JOB, attempt=3, allocations=(AllocationId("b" * 32),))
RELEASE = ReleaseSlot(job_id=JOB, attempt=3, allocation_id=AllocationId("b" * 32))


class RpcLink(Protocol):
    """A transport under test."""

    client: RpcClient

    async def listen(self, service: RpcService) -> str:
        """Make ``service`` reachable and return its address."""

    async def kill(self, address: str) -> None:
        """Let the process at ``address`` die."""

    def unused_address(self) -> str:
        """Return an address at which no process listens."""


class Service:
    """Service that replies through a function and records its requests."""

    def __init__(self, answer: Callable[[Message], Awaitable[Message]]) -> None:
        self._answer = answer
        self.requests: list[Message] = []

    async def serve(self, request: Message) -> Message:
        self.requests.append(request)
        return await self._answer(request)


def replying(reply: Message) -> Service:
    async def answer(_request: Message) -> Message:
        return reply

    return Service(answer)


def raising(error: BaseException) -> Service:
    async def answer(_request: Message) -> Message:
        raise error

    return Service(answer)


class Stuck:
    """Service that accepts requests and never replies."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()

    async def serve(self, _request: Message) -> Message:
        self.entered.set()
        await asyncio.Event().wait()
        return Ack()


class RpcContract:
    """Tests of a transport."""

    async def test_a_request_and_its_reply_arrive_as_sent(self, link: RpcLink) -> None:
        reply = SlotsReply(instance=InstanceId("c" * 32), allocations=(AllocationId("ä"),), executors=())
        service = replying(reply)
        address = await link.listen(service)
        assert await link.client.call(address, BEAT, SlotsReply, timeout=GENEROUS) == reply
        assert service.requests == [BEAT]

    async def test_many_calls_at_once_each_get_their_own_reply(self, link: RpcLink) -> None:
        async def answer(request: Message) -> Message:
            assert isinstance(request, JobMasterBeat)
            await asyncio.sleep(0)
            return SlotsReply(instance=InstanceId(str(request.attempt)), allocations=(), executors=())

        address = await link.listen(Service(answer))
        beats = [JobMasterBeat(job_id=JOB, attempt=number, allocations=()) for number in range(100)]
        replies = await asyncio.gather(
            *(link.client.call(address, beat, SlotsReply, timeout=GENEROUS) for beat in beats)
        )
        assert [reply.instance for reply in replies] == [str(number) for number in range(100)]

    @pytest.mark.parametrize("kind", [RetryLater, Conflict, Absent, Fatal, UnknownOutcome])
    async def test_the_receivers_error_is_raised_with_message_and_hint(
        self, link: RpcLink, kind: type[EmberkeepError]
    ) -> None:
        address = await link.listen(raising(kind("what was wrong", hint="what to do")))
        with pytest.raises(kind) as caught:
            await link.client.call(address, RELEASE, Ack, timeout=GENEROUS)
        assert type(caught.value) is kind
        assert (caught.value.message, caught.value.hint) == ("what was wrong", "what to do")

    async def test_invalid_input_keeps_its_field(self, link: RpcLink) -> None:
        address = await link.listen(raising(InvalidInput("wrong", field="slots[0].profile")))
        with pytest.raises(InvalidInput) as caught:
            await link.client.call(address, RELEASE, Ack, timeout=GENEROUS)
        assert (caught.value.field, caught.value.hint) == ("slots[0].profile", None)

    @pytest.mark.parametrize(
        "error", [RuntimeError("secret path /etc/x"), IllegalTransition("job", "FAILED", "Started", ("secret",))]
    )
    async def test_a_bug_of_the_receiver_is_an_unknown_outcome_and_tells_no_details(
        self, link: RpcLink, error: Exception
    ) -> None:
        address = await link.listen(raising(error))
        with pytest.raises(UnknownOutcome) as caught:
            await link.client.call(address, RELEASE, Ack, timeout=GENEROUS)
        assert "secret" not in str(caught.value)

    async def test_nobody_listening_means_retry_later(self, link: RpcLink) -> None:
        with pytest.raises(RetryLater, match="ReleaseSlot"):
            await link.client.call(link.unused_address(), RELEASE, Ack, timeout=GENEROUS)

    async def test_a_dead_listener_means_retry_later(self, link: RpcLink) -> None:
        address = await link.listen(replying(Ack()))
        await link.client.call(address, RELEASE, Ack, timeout=GENEROUS)
        await link.kill(address)
        # The first call may still use the old connection, which breaks.
        with pytest.raises((RetryLater, UnknownOutcome)):
            await link.client.call(address, RELEASE, Ack, timeout=GENEROUS)
        with pytest.raises(RetryLater):
            await link.client.call(address, RELEASE, Ack, timeout=GENEROUS)

    async def test_silence_is_an_unknown_outcome(self, link: RpcLink) -> None:
        stuck = Stuck()
        address = await link.listen(stuck)
        with pytest.raises(UnknownOutcome, match=r"within 0\.2 s"):
            await link.client.call(address, RELEASE, Ack, timeout=0.2)
        assert stuck.entered.is_set()

    async def test_a_receiver_that_dies_before_it_answers_is_an_unknown_outcome(self, link: RpcLink) -> None:
        stuck = Stuck()
        address = await link.listen(stuck)
        call = asyncio.create_task(link.client.call(address, RELEASE, Ack, timeout=GENEROUS))
        await asyncio.wait_for(stuck.entered.wait(), GENEROUS)
        await link.kill(address)
        with pytest.raises(UnknownOutcome, match="broke"):
            await call

    async def test_a_reply_of_another_kind_is_fatal(self, link: RpcLink) -> None:
        address = await link.listen(replying(Ack()))
        with pytest.raises(Fatal, match="valid SlotsReply"):
            await link.client.call(address, RELEASE, SlotsReply, timeout=GENEROUS)

    async def test_a_message_that_is_no_request_is_refused(self, link: RpcLink) -> None:
        service = replying(Ack())
        address = await link.listen(service)
        with pytest.raises(InvalidInput, match="'Ack' is not a request"):
            await link.client.call(address, Ack(), Ack, timeout=GENEROUS)
        assert service.requests == []

    async def test_a_message_that_is_too_large_is_never_sent(
        self, link: RpcLink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limit = 8 * 1024**2
        monkeypatch.setattr("emberkeep.protocol.encoding.offload.RPC_MESSAGE_BYTES", limit)
        service = replying(Ack())
        address = await link.listen(service)
        huge = ReleaseSlot(job_id=JOB, attempt=1, allocation_id=AllocationId("x" * limit))
        with pytest.raises(InvalidInput, match="too large"):
            await link.client.call(address, huge, Ack, timeout=GENEROUS)
        assert service.requests == []

    async def test_a_large_message_arrives(self, link: RpcLink) -> None:
        service = replying(Ack())
        address = await link.listen(service)
        large = ReleaseSlot(job_id=JOB, attempt=1, allocation_id=AllocationId("x" * (8 * 1024**2)))
        await link.client.call(address, large, Ack, timeout=GENEROUS)
        assert service.requests == [large]

    @pytest.mark.parametrize(
        "address", ["", "no-port", ":80", "host:", "host:x", "host:70000", "a@b:80", "a..b:80", "host:80/x"]
    )
    async def test_a_wrong_address_is_the_callers_mistake(self, link: RpcLink, address: str) -> None:
        with pytest.raises(InvalidInput, match="host:port"):
            await link.client.call(address, RELEASE, Ack, timeout=GENEROUS)
