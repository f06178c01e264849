"""A contender over an election and turns that do as the test says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, RetryLater, UnknownOutcome
from emberkeep.jobmanager.contender import Contender
from emberkeep.leadership.model import (
    Connected,
    Event,
    Granted,
    LeaderAddress,
    Lost,
    Standing,
    Suspended,
)

pytestmark = [pytest.mark.anyio, pytest.mark.req("HA-9")]

DEADLINE = 240.0


class ScriptedElection:
    def __init__(self) -> None:
        self.tell: Callable[[Event], None] = lambda _: None
        self.latches: list[int] = []
        self.given_up: list[int] = []
        self.newest: asyncio.Future[LeaderAddress] = asyncio.get_running_loop().create_future()

    async def run(self, tell: Callable[[Event], None]) -> None:
        self.tell = tell
        tell(Connected())
        await asyncio.Event().wait()

    def take(self, latch: int) -> None:
        self.latches.append(latch)

    def give_up(self, latch: int) -> None:
        self.given_up.append(latch)

    async def newer(self, epoch: int) -> LeaderAddress:
        return await asyncio.shield(self.newest)


class ScriptedTurn:
    """``claims`` and ``confirmations``: errors, each raised once."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.claims: list[EmberkeepError] = []
        self.confirmations: list[EmberkeepError] = []
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.serving = False
        self.paused = False
        self.closed = False
        self.retired = False

    async def claim(self) -> int:
        await asyncio.sleep(0)
        if self.claims:
            raise self.claims.pop(0)
        return self.epoch

    async def serve(self, epoch: int) -> None:
        assert epoch == self.epoch
        self.serving = True
        try:
            await self.end
        finally:
            self.serving = False

    async def confirm(self) -> None:
        await asyncio.sleep(0)
        if self.confirmations:
            raise self.confirmations.pop(0)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    async def retire(self) -> None:
        self.retired = True

    async def close(self) -> None:
        self.closed = True


class Stage:
    def __init__(self) -> None:
        self.election = ScriptedElection()
        self.turns: list[ScriptedTurn] = []
        self.claims: list[EmberkeepError] = []
        self.contender = Contender(self.election, self._turn, random.Random(1))

    def _turn(self) -> ScriptedTurn:
        turn = ScriptedTurn(len(self.turns) + 1)
        turn.claims, self.claims = self.claims, []
        self.turns.append(turn)
        return turn

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0)

    async def to_leading(self) -> ScriptedTurn:
        await self.until(lambda: bool(self.election.latches))
        self.election.tell(Granted(self.election.latches[-1]))
        await self.until(lambda: bool(self.turns) and self.turns[-1].serving)
        return self.turns[-1]


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    running = Stage()
    task = asyncio.create_task(running.contender.run())
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_it_leads_when_it_is_its_turn() -> None:
    async with stage() as on:
        turn = await on.to_leading()
        assert on.contender.turn is turn
        assert (on.contender.standing, on.contender.epoch) == (Standing.LEADING, 1)


async def test_a_claim_is_repeated_until_its_outcome_is_known() -> None:
    async with stage() as on:
        on.claims = [RetryLater("away"), UnknownOutcome("no answer")]
        await on.to_leading()
        assert len(on.turns) == 1


async def test_a_refused_claim_stands_by_again() -> None:
    async with stage() as on:
        on.claims = [Conflict("another was first")]
        await on.until(lambda: bool(on.election.latches))
        on.election.tell(Granted(1))
        await on.until(lambda: on.election.latches == [1, 2])
        assert on.election.given_up == [1]
        assert (await on.to_leading()) is on.turns[1]


async def test_suspended_pauses_and_a_confirmed_epoch_resumes() -> None:
    async with stage() as on:
        turn = await on.to_leading()
        on.election.tell(Suspended())
        await on.until(lambda: turn.paused)
        assert turn.serving
        turn.confirmations = [RetryLater("not yet"), UnknownOutcome("no answer")]
        on.election.tell(Connected())
        await on.until(lambda: not turn.paused)
        assert turn.serving
        assert on.contender.standing is Standing.LEADING


async def test_an_epoch_that_is_over_ends_the_turn() -> None:
    async with stage() as on:
        turn = await on.to_leading()
        on.election.tell(Suspended())
        turn.confirmations = [Conflict("epoch 1 is over")]
        on.election.tell(Connected())
        await on.until(lambda: turn.closed)
        assert not turn.serving
        assert turn.paused, "whatever it still holds decides nothing"
        await on.until(lambda: on.election.latches == [1, 2])
        following = await on.to_leading()
        assert on.contender.turn is following is not turn


async def test_lost_ends_the_turn_and_a_new_session_stands_by() -> None:
    async with stage() as on:
        turn = await on.to_leading()
        on.election.tell(Lost())
        await on.until(lambda: turn.closed)
        assert on.contender.turn is None
        assert on.election.latches == [1]
        on.election.tell(Connected())
        await on.until(lambda: on.election.latches == [1, 2])


@pytest.mark.req("HA-6")
@pytest.mark.parametrize("how", ["a write is refused", "a newer epoch is seen"])
async def test_a_deposed_leader_stands_by_again(how: str) -> None:
    async with stage() as on:
        turn = await on.to_leading()
        if how == "a write is refused":
            turn.end.set_exception(Conflict("epoch 1 is over"))
        else:
            on.election.newest.set_result(LeaderAddress(9, "other:1"))
        await on.until(lambda: turn.closed and on.election.latches == [1, 2])
        assert on.election.given_up == [1]
        assert on.contender.standing is Standing.WAITING


async def test_a_claim_that_outlives_its_session_is_given_up() -> None:
    async with stage() as on:
        on.claims = [RetryLater("away")] * 1000
        await on.until(lambda: bool(on.election.latches))
        on.election.tell(Granted(1))
        await on.until(lambda: bool(on.turns))
        on.election.tell(Lost())
        on.election.tell(Connected())
        await on.until(lambda: on.turns[0].closed)
        assert (await on.to_leading()) is on.turns[1]


async def test_leaving_ends_the_turn_first() -> None:
    async with stage() as on:
        turn = await on.to_leading()
        async with asyncio.timeout(DEADLINE):
            await on.contender.leave()
        assert turn.closed
        assert on.election.given_up == [1]
        assert on.contender.standing is Standing.CLOSED


async def test_a_standby_leaves_at_once() -> None:
    async with stage() as on:
        await on.until(lambda: bool(on.election.latches))
        async with asyncio.timeout(DEADLINE):
            await on.contender.leave()
        assert on.election.given_up == [1]


@pytest.mark.parametrize("error", [Fatal("the disk is full"), ValueError("a bug")])
async def test_what_nobody_can_mend_ends_the_process(error: Exception) -> None:
    on = Stage()
    task = asyncio.create_task(on.contender.run())
    turn = await on.to_leading()
    turn.end.set_exception(error)
    with pytest.raises(type(error)):
        async with asyncio.timeout(DEADLINE):
            await task


async def test_only_a_leader_that_is_sure_to_lead_tidies_up_before_it_leaves() -> None:
    async with stage() as on:
        await on.contender.retire()
        turn = await on.to_leading()
        on.election.tell(Suspended())
        await on.until(lambda: turn.paused)
        await on.contender.retire()
        assert not turn.retired
        on.election.tell(Connected())
        await on.until(lambda: on.contender.standing is Standing.LEADING)
        await on.contender.retire()
        assert turn.retired
