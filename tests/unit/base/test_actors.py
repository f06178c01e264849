"""Whoever asks an actor gets an answer, also when the actor is about to stop or has stopped."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from emberkeep.base.actors import Actor
from emberkeep.base.errors import Conflict, RetryLater

pytestmark = pytest.mark.anyio


class Doubler(Actor[int]):
    """Doubles; refuses 13; breaks at 0."""

    def handle(self, event: int) -> int:
        if event == 13:
            raise Conflict("not this one")
        return 2 * (1 // event and event)


async def test_a_refusal_is_an_answer_and_the_actor_goes_on() -> None:
    actor = Doubler("doubler")
    running = asyncio.create_task(actor.run())
    with pytest.raises(Conflict, match="not this one"):
        await actor.ask(13)
    assert await actor.ask(1) == 2
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_who_asks_an_actor_that_has_stopped_does_not_wait_for_ever() -> None:
    actor = Doubler("doubler")
    running = asyncio.create_task(actor.run())
    early, broken, late = (asyncio.create_task(actor.ask(event)) for event in (1, 0, 1))
    with pytest.raises(ZeroDivisionError):
        await running
    assert await early == 2
    async with asyncio.timeout(120):
        for asked in (broken, late):
            with pytest.raises(RetryLater, match="doubler has stopped"):
                await asked
        with pytest.raises(RetryLater, match="doubler has stopped"):
            await actor.ask(1)
