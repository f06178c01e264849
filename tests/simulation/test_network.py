"""What callers and servers see of the simulated network, with a toy service in place of the actors."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.protocol.messages.executors import OfferSlotsReply, ReleaseSlot
from emberkeep.protocol.messages.root import Ack, Message
from tests.support.simulator.history import History
from tests.support.simulator.network import Conditions, Party, SimNetwork, SimRpcClient
from tests.support.simulator.virtual_loop import VirtualLoop, seeded_random

SERVER = "10.0.0.1:1000"


class Toy:
    """Acknowledges releases, and remembers in which order they arrived."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.served: list[int] = []
        self.seconds = seconds
        self.error: EmberkeepError | None = None

    async def serve(self, request: Message) -> Message:
        assert isinstance(request, ReleaseSlot)
        self.served.append(request.attempt)
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return Ack()


class World:
    """One server, one client, each on a machine of its own."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.history = History(self.loop)
        self.network = SimNetwork(self.loop, seeded_random(seed, "network"), self.history)
        self.network.add_host("10.0.0.1", "server-node")
        self.toy = Toy()
        self.server = Party("server", "server-node", self.loop.scope("server"))
        self.client = Party("client", "client-node", self.loop.scope("client"))
        self.network.listen_rpc(SERVER, self.server, self.toy)
        self.rpc: SimRpcClient = self.network.client(self.client)

    async def call(self, number: int = 1, seconds: float = 5.0) -> Ack:
        return await self.rpc.call(SERVER, release(number), Ack, timeout=seconds)

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(self.client.scope.spawn(main, "main"))

    def close(self) -> None:
        self.network.closed = True
        assert self.loop.end_all() == []
        assert self.history.violations == []
        self.loop.close()


def release(number: int) -> ReleaseSlot:
    return ReleaseSlot(job_id=JobId("j" * 32), attempt=number, allocation_id=AllocationId("a"))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_a_call_is_answered_after_a_delay(world: World) -> None:
    assert world.run(world.call()) == Ack()
    assert 0 < world.loop.time() < 0.2


def test_errors_travel_with_their_texts(world: World) -> None:
    world.toy.error = InvalidInput("no such thing", field="thing", hint="take another")

    async def main() -> None:
        with pytest.raises(InvalidInput) as caught:
            await world.call()
        assert (caught.value.message, caught.value.field, caught.value.hint) == (
            "no such thing",
            "thing",
            "take another",
        )

    world.run(main())
    assert world.history.counts["ReleaseSlot refused: InvalidInput"] == 1


def test_a_reply_of_another_kind_is_noticed(world: World) -> None:
    async def main() -> None:
        with pytest.raises(EmberkeepError, match="valid OfferSlotsReply"):
            await world.rpc.call(SERVER, release(1), OfferSlotsReply, timeout=1)

    world.run(main())


def test_where_nobody_listens_the_caller_may_retry_at_once(world: World) -> None:
    world.server.scope.kill()
    world.network.process_died(world.server)

    async def main() -> None:
        with pytest.raises(RetryLater, match="nobody listens"):
            await world.call()

    world.run(main())
    assert world.loop.time() < 0.2


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda network: network.cut("client", "server"), id="request cut by process"),
        pytest.param(lambda network: network.cut("client-node", "server-node"), id="request cut by node"),
        pytest.param(lambda network: network.cut("server", "client-node"), id="reply cut"),
        pytest.param(lambda network: network.node_down("server-node"), id="server's machine is off"),
    ],
)
def test_a_partition_shows_as_silence_until_it_heals(world: World, fault: Callable[[SimNetwork], None]) -> None:
    fault(world.network)

    async def main() -> None:
        with pytest.raises(UnknownOutcome, match="no answer"):
            await world.call(seconds=3)
        assert world.loop.time() == 3.0
        world.network.heal()
        world.network.node_up("server-node")
        await world.call()

    world.run(main())


def test_one_way_cuts_let_the_other_way_pass(world: World) -> None:
    world.network.cut("server", "client")

    async def main() -> None:
        with pytest.raises(UnknownOutcome):
            await world.call(7)

    world.run(main())
    assert world.toy.served == [7]


def test_cuts_add_up(world: World) -> None:
    world.network.cut("client", "server")
    world.network.cut("client", "server")
    world.network.mend("client", "server")

    async def main() -> None:
        with pytest.raises(UnknownOutcome):
            await world.call()
        world.network.mend("client", "server")
        await world.call()

    world.run(main())


def test_a_lost_reply_is_an_unknown_outcome_of_something_done(world: World) -> None:
    world.network.conditions = Conditions(loss=0.5)
    outcomes = []

    async def main() -> None:
        for number in range(60):
            try:
                await world.call(number, seconds=1)
                outcomes.append("done")
            except UnknownOutcome:
                outcomes.append("unknown")

    world.run(main())
    assert world.history.counts["request lost"] > 10
    assert world.history.counts["reply lost"] > 5
    assert len(world.toy.served) > outcomes.count("done")


def test_repeated_requests_are_served_twice_and_answered_once(world: World) -> None:
    world.network.conditions = Conditions(repeat=1.0, repeat_max=2.0)

    async def main() -> None:
        await world.call(1)
        await asyncio.sleep(3)

    world.run(main())
    assert world.toy.served == [1, 1]


def test_messages_overtake_each_other(world: World) -> None:
    world.network.conditions = Conditions(slow=0.5, slow_max=2.0)

    async def main() -> None:
        await asyncio.gather(*(world.call(number) for number in range(20)))

    world.run(main())
    assert sorted(world.toy.served) == list(range(20))
    assert world.toy.served != list(range(20))


def test_a_server_killed_in_the_middle_breaks_the_connection(world: World) -> None:
    world.toy.seconds = 2.0

    async def killer() -> None:
        await asyncio.sleep(1)
        world.server.scope.kill()
        world.network.process_died(world.server)

    async def main() -> None:
        killing = asyncio.create_task(killer())
        with pytest.raises(UnknownOutcome, match="connection broke"):
            await world.call()
        await killing

    world.run(main())
    assert 1.0 < world.loop.time() < 1.5


def test_a_frozen_server_serves_late_and_its_caller_does_not_know(world: World) -> None:
    world.server.scope.freeze()

    async def main() -> None:
        with pytest.raises(UnknownOutcome, match="no answer"):
            await world.call(1, seconds=2)
        assert world.toy.served == []
        world.server.scope.thaw()
        await asyncio.sleep(1)

    world.run(main())
    assert world.toy.served == [1]


def test_a_handler_that_raises_something_else_is_a_violation(world: World) -> None:
    async def broken(_: str, __: bytes) -> bytes:
        raise KeyError("oops")

    world.network.listen(SERVER, world.server, broken)

    async def main() -> None:
        with pytest.raises(UnknownOutcome):
            await world.call(seconds=1)

    world.run(main())
    assert world.history.violations
    assert "KeyError" in world.history.violations[0]
    world.history.violations.clear()


def test_refusals_by_conflict_are_told_apart(world: World) -> None:
    world.toy.error = Conflict("superseded")

    async def main() -> None:
        with pytest.raises(Conflict):
            await world.call()

    world.run(main())


def test_the_same_seed_gives_the_same_history() -> None:
    def digest(seed: int) -> str:
        world = World(seed)
        world.network.conditions = Conditions(loss=0.2, repeat=0.3, slow=0.3)

        async def main() -> None:
            await asyncio.gather(*(world.call(number) for number in range(40)), return_exceptions=True)

        world.run(main())
        result = world.history.digest()
        world.close()
        return result

    assert digest(5) == digest(5)
    assert digest(5) != digest(6)
