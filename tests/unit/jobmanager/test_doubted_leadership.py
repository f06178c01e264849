"""When a leader may decide, when it doubts its leadership, and how the doubt ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import structlog

from emberkeep.base.errors import Conflict, EmberkeepError, RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.chronicle.occurrence import What
from emberkeep.jobmanager.authority import FRESH, PROBE_PAUSE, REMINDER_PAUSE, Authority
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobs.hearing import Hearing
from tests.support.chronicle.memory import MemoryChronicle
from tests.support.simulator.virtual_loop import VirtualClock, VirtualLoop
from tests.unit.jobmanager.cluster import in_virtual_time

PATIENCE, FORGIVING = 3.0, 10.0
PEER = TaskManagerId("tm-1")


class Leader:
    """A leader, and its store, which takes ``delay`` seconds to confirm it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self.steady = SteadyClock(VirtualClock(loop))
        self.hearing = Hearing(self.steady.now(), patience=1000.0, longest_doubt=1000.0)
        self.hearing.heard(PEER, self.steady.now())
        self.confirmations = 0
        self.delay = 0.0
        self.error: EmberkeepError | None = None
        self.chronicle = MemoryChronicle({}, lambda: int(loop.time() * 1000))
        self.authority = Authority(
            VirtualClock(loop),
            self.steady,
            self.hearing,
            self._confirm,
            self.chronicle,
            patience=PATIENCE,
            forgiving=FORGIVING,
        )

    async def _confirm(self) -> None:
        self.confirmations += 1
        await asyncio.sleep(self.delay)
        if self.error is not None:
            raise self.error

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[asyncio.Task[None]]:
        """Let the authority ask the store after each suspicion."""
        task = asyncio.create_task(self.authority.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def leading(scenario: Callable[[Leader], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(Leader())

    in_virtual_time(run)


def test_a_confirmation_is_valid_for_a_second_from_the_moment_it_was_asked_for() -> None:
    async def scenario(leader: Leader) -> None:
        leader.delay = 0.4
        assert await leader.authority.confirmed()
        await asyncio.sleep(FRESH - 0.5)
        assert await leader.authority.confirmed()
        assert leader.confirmations == 1
        await asyncio.sleep(0.2)
        assert await leader.authority.confirmed()
        assert leader.confirmations == 2

    leading(scenario)


@pytest.mark.parametrize(("delay", "error"), [(0.0, RetryLater("the store is away")), (PATIENCE + 1, None)])
def test_a_leader_that_its_store_does_not_confirm_is_in_doubt(delay: float, error: EmberkeepError | None) -> None:
    async def scenario(leader: Leader) -> None:
        leader.delay, leader.error = delay, error
        assert not await leader.authority.confirmed()
        assert leader.authority.in_doubt
        reason = "the store is away" if error else "the job store does not answer"
        assert reason in leader.authority.problem
        with pytest.raises(RetryLater, match="decides nothing"):
            leader.authority.check()
        asked = leader.confirmations
        assert not await leader.authority.confirmed()
        assert leader.confirmations == asked, "calls do not ask; that is the task of run"

    leading(scenario)


def test_a_session_that_is_interrupted_and_comes_back_leaves_events() -> None:
    async def scenario(leader: Leader) -> None:
        leader.authority.pause()
        await asyncio.sleep(4)
        leader.authority.pause()
        leader.authority.resume()
        leader.authority.resume()
        assert [(each.what, each.details) for each in leader.chronicle.stream()] == [
            (What.STORE_IN_DOUBT, {"reason": "the session with the job store is interrupted"}),
            (What.STORE_BACK, {"seconds": "4.0"}),
        ]

    leading(scenario)


def test_a_leader_in_doubt_asks_again_until_it_is_confirmed_and_then_stops() -> None:
    async def scenario(leader: Leader) -> None:
        leader.error = RetryLater("the store is away")
        async with leader.asking():
            assert not await leader.authority.confirmed()
            waiting = asyncio.create_task(leader.authority.wait())
            await asyncio.sleep(10 * PROBE_PAUSE)
            assert 9 <= leader.confirmations <= 12
            assert not waiting.done()
            leader.error = None
            await asyncio.sleep(PROBE_PAUSE)
            assert waiting.done()
            assert not leader.authority.in_doubt
            leader.authority.check()
            asked = leader.confirmations
            await asyncio.sleep(60.0)
            assert leader.confirmations == asked

    leading(scenario)


def test_a_suspicion_makes_the_leader_ask_at_once_although_the_last_confirmation_is_fresh() -> None:
    async def scenario(leader: Leader) -> None:
        async with leader.asking():
            assert await leader.authority.confirmed()
            leader.authority.suspect()
            await asyncio.sleep(0.01)
            assert leader.confirmations == 2
            assert not leader.authority.in_doubt

    leading(scenario)


@pytest.mark.parametrize("doubted_before", [False, True])
def test_a_leader_in_doubt_says_so_again_a_pause_after_the_doubt_began(doubted_before: bool) -> None:
    async def scenario(leader: Leader) -> None:
        reminding = asyncio.create_task(leader.authority.remind())
        if doubted_before:
            leader.authority.pause()
            await asyncio.sleep(1.0)
            leader.authority.resume()
        await asyncio.sleep(1.5 * REMINDER_PAUSE)
        leader.authority.pause()
        with structlog.testing.capture_logs() as logs:
            await asyncio.sleep(REMINDER_PAUSE - 1.0)
            assert logs == []
            await asyncio.sleep(2.0)
        assert [entry["event"] for entry in logs] == ["still nothing is decided"]
        reminding.cancel()
        await asyncio.gather(reminding, return_exceptions=True)

    leading(scenario)


def test_a_leader_that_another_one_has_replaced_learns_so_wherever_it_asks() -> None:
    async def scenario(leader: Leader) -> None:
        leader.error = Conflict("epoch 1 is over")
        with pytest.raises(Conflict):
            await leader.authority.confirmed()
        with pytest.raises(Conflict):
            await leader.authority.wait()
        async with leader.asking() as run:
            leader.authority.suspect()
            with pytest.raises(Conflict):
                await run

    leading(scenario)


def test_a_leader_without_a_session_does_not_ask_its_store() -> None:
    async def scenario(leader: Leader) -> None:
        async with leader.asking():
            leader.authority.pause()
            leader.authority.suspect()
            await asyncio.sleep(5.0)
            assert not await leader.authority.confirmed(again=True)
            assert leader.confirmations == 0
            with pytest.raises(RetryLater, match="ZooKeeper cannot be reached"):
                leader.authority.check_session()
            leader.authority.resume()
            leader.authority.check_session()
            assert not leader.authority.in_doubt
            assert await leader.authority.confirmed()

    leading(scenario)


def test_a_confirmation_that_arrives_after_the_session_was_interrupted_does_not_count() -> None:
    async def scenario(leader: Leader) -> None:
        leader.delay = 1.0
        asking = asyncio.create_task(leader.authority.confirmed())
        await asyncio.sleep(0.5)
        leader.authority.pause()
        assert await asking is False
        assert leader.authority.in_doubt

    leading(scenario)


@pytest.mark.parametrize(("lasted", "forgiven"), [(FORGIVING - 0.5, False), (FORGIVING, True)])
def test_deadlines_stand_still_in_doubt_and_a_long_one_restarts_the_silence_of_task_managers(
    lasted: float, forgiven: bool
) -> None:
    async def scenario(leader: Leader) -> None:
        heard_since = leader.hearing.since(leader.steady.now())
        await asyncio.sleep(1.0)
        leader.authority.pause()
        began = leader.steady.now()
        await asyncio.sleep(lasted / 2)
        leader.authority.pause()  # the doubt lasts since its begin
        await asyncio.sleep(lasted / 2)
        assert leader.steady.now() == began
        leader.authority.resume()
        assert leader.steady.now() == began
        await asyncio.sleep(1.0)
        assert leader.steady.now() == began + 1.0
        assert began != heard_since
        assert leader.hearing.since(leader.steady.now()) == (began if forgiven else heard_since)

    leading(scenario)
