"""Work that may hang takes a thread of its own, one for each key, and nobody waits for it for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from emberkeep.adapters.blocking.doubtful_work import DoubtfulWork, Pulse
from emberkeep.base.errors import RetryLater, Unavailable

pytestmark = pytest.mark.anyio


class Hanging:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.answers = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        self.answers.wait()
        return "late"


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    work = Hanging()
    yield work
    work.answers.set()


async def test_results_and_errors_are_those_of_the_work() -> None:
    work = DoubtfulWork(2, patience=60.0)
    assert await work.run("a", "files", lambda: 1) == 1
    with pytest.raises(ValueError, match="invalid literal"):
        await work.run("a", "files", lambda: int("x"))
    assert await work.run("a", "files", lambda: 2) == 2


async def test_what_hangs_takes_one_thread_of_its_key_and_none_of_others(hanging: Hanging) -> None:
    work = DoubtfulWork(2, patience=0.05)
    with pytest.raises(TimeoutError, match="files of a"):
        await work.run("a", "files of a", hanging)
    assert await work.run("b", "files of b", lambda: 1) == 1
    with pytest.raises(RetryLater, match="files of a could not be reached"):
        await work.run("a", "files of a", lambda: 2)
    hanging.answers.set()
    async with asyncio.timeout(60):
        while True:
            try:
                assert await work.run("a", "files of a", lambda: 3) == 3
            except RetryLater:  # the thread is about to end
                continue
            break


async def test_work_that_has_begun_goes_on_without_its_caller_and_other_work_does_not_begin(hanging: Hanging) -> None:
    work = DoubtfulWork(1, patience=60.0)
    began: list[str] = []
    callers = [
        asyncio.create_task(work.run("a", "files", hanging)),
        asyncio.create_task(work.run("b", "files", lambda: began.append("b"))),
    ]
    async with asyncio.timeout(60):
        while not hanging.begun.is_set():  # noqa: ASYNC110 - a thread tells
            await asyncio.sleep(0.005)
    for caller in callers:
        caller.cancel()
    await asyncio.wait(callers)
    hanging.answers.set()
    assert await work.run("c", "files", lambda: 4) == 4
    assert began == []


async def test_a_caller_that_goes_just_after_the_beginning_leaves_the_thread_its_part(hanging: Hanging) -> None:
    work = DoubtfulWork(2, patience=0.05)
    caller = asyncio.create_task(work.run("a", "files of a", hanging))
    while not hanging.begun.is_set():  # noqa: ASYNC110 - the caller learns of the beginning only in a later turn
        await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    with pytest.raises(RetryLater, match="files of a could not be reached"):
        await work.run("a", "files of a", lambda: 2)


class Steps:
    """Work of many steps. ``pause``: seconds for each."""

    def __init__(self, steps: int, pause: float = 0.0) -> None:
        self.steps, self.pause = steps, pause
        self.goes_on = threading.Event()
        self.reached = 0
        self.ended = threading.Event()

    def __call__(self, pulse: Pulse) -> str:
        try:
            for step in range(self.steps):
                pulse.beat()
                self.reached = step + 1
                self.goes_on.wait(self.pause)
        finally:
            self.ended.set()
        return "done"


async def test_work_in_steps_may_take_longer_than_each_of_them() -> None:
    assert await DoubtfulWork(1, patience=0.3).run_steps("a", "files", Steps(12, 0.05)) == "done"


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_work_in_steps_that_nobody_waits_for_ends_at_its_next_step(is_cancelled: bool) -> None:
    work, steps = DoubtfulWork(1, patience=60.0 if is_cancelled else 0.05), Steps(1000, 60.0)
    caller = asyncio.create_task(work.run_steps("a", "files of a", steps))
    if is_cancelled:
        async with asyncio.timeout(60):
            while not steps.reached:  # noqa: ASYNC110 - a thread tells
                await asyncio.sleep(0.005)
        caller.cancel()
        await asyncio.wait({caller})
    else:
        with pytest.raises(Unavailable, match="files of a has not answered"):
            await caller
    steps.goes_on.set()
    assert steps.ended.wait(60)
    assert steps.reached == 1


async def test_work_in_steps_ends_although_its_caller_goes_just_after_the_beginning() -> None:
    work, steps = DoubtfulWork(1, patience=60.0), Steps(1000, 60.0)
    caller = asyncio.create_task(work.run_steps("a", "files of a", steps))
    while not steps.reached:  # noqa: ASYNC110 - the caller learns of the beginning only in a later turn
        await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller})
    steps.goes_on.set()
    assert steps.ended.wait(60)
    assert steps.reached == 1
