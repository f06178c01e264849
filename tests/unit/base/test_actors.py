"""Whoever asks an actor gets an answer, also when the actor is about to stop or has stopped."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from emberkeep.base.actors import Actor, asked, told
from emberkeep.base.errors import Conflict, RetryLater

pytestmark = pytest.mark.anyio


class Doubler(Actor):
    """Doubles; refuses 13; breaks at 0."""

    def __init__(self, inbox_limit: int = 10) -> None:
        super().__init__("doubler", inbox_limit=inbox_limit)
        self.noted: list[int] = []

    @asked
    def double(self, number: int) -> int:
        if number == 13:
            raise Conflict("not this one")
        return 2 * number * (number // number)

    @told
    def note(self, number: int) -> None:
        self.noted.append(number)


async def test_a_refusal_is_an_answer_and_the_actor_goes_on() -> None:
    actor = Doubler()
    running = asyncio.create_task(actor.run())
    with pytest.raises(Conflict, match="not this one"):
        await actor.double(13)
    assert await actor.double(1) == 2
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_a_message_is_taken_after_what_the_inbox_had_and_before_what_follows() -> None:
    actor = Doubler()
    actor.note(1)
    actor.note(number=2)
    assert actor.noted == [], "nothing happens in the caller's turn"
    running = asyncio.create_task(actor.run())
    assert await actor.double(number=4) == 8
    assert actor.noted == [1, 2]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_who_asks_an_actor_that_has_stopped_does_not_wait_for_ever() -> None:
    actor = Doubler()
    running = asyncio.create_task(actor.run())
    early, broken, late = (asyncio.create_task(actor.double(number)) for number in (1, 0, 1))
    with pytest.raises(ZeroDivisionError):
        await running
    assert await early == 2
    async with asyncio.timeout(120):
        for asked in (broken, late):
            with pytest.raises(RetryLater, match="doubler has stopped"):
                await asked
        with pytest.raises(RetryLater, match="doubler has stopped"):
            await actor.double(1)


async def test_what_an_effect_has_found_out_fits_into_an_inbox_that_is_full_of_questions() -> None:
    actor = Doubler(inbox_limit=2)
    questions = [asyncio.create_task(actor.double(1)) for _ in range(3)]
    await asyncio.sleep(0)
    actor.note(1)
    actor.note(2)
    with pytest.raises(RetryLater, match="doubler is overloaded"):
        actor.note(3)
    running = asyncio.create_task(actor.run())
    answers = await asyncio.gather(*questions, return_exceptions=True)
    assert answers[:2] == [2, 2]
    assert isinstance(answers[2], RetryLater), "the third question can be asked again"
    assert await actor.double(2) == 4
    assert actor.noted == [1, 2]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_an_effect_of_the_actor_itself_has_room_for_its_question_in_an_inbox_that_is_full_of_others() -> None:
    actor = Doubler(inbox_limit=2)
    answers: list[int] = []

    async def tick() -> None:
        answers.append(await actor.double(5))

    questions = [asyncio.create_task(actor.double(1)) for _ in range(2)]
    await asyncio.sleep(0)
    ticking = actor.start_effect("tick", tick(), deadline=None)
    await asyncio.sleep(0)
    running = asyncio.create_task(actor.run())
    await asyncio.gather(*questions, ticking)
    assert answers == [10]
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
