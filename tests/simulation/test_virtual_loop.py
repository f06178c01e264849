"""The loop's own promises: virtual time, order, frozen and killed processes, no hang."""

import asyncio
import itertools
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tests.support.simulator.virtual_loop import (
    EPOCH_MS,
    DeadlockError,
    StepLimitError,
    VirtualClock,
    VirtualLoop,
    seeded_system,
)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_sleeping_takes_virtual_seconds_only(loop: VirtualLoop) -> None:
    async def main() -> float:
        await asyncio.sleep(3600.0)
        return loop.time()

    assert loop.run_until_complete(main()) == 3600.0
    assert loop.steps < 20


def test_timers_fire_in_the_order_of_their_time(loop: VirtualLoop) -> None:
    seen: list[Any] = []

    async def after(seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((seconds, loop.time()))

    async def main() -> None:
        await asyncio.gather(*(after(seconds) for seconds in (3.0, 1.0, 2.0)))

    loop.run_until_complete(main())
    assert seen == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]


def test_timeouts_are_virtual_too(loop: VirtualLoop) -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.sleep(11)
        return loop.time()

    assert loop.run_until_complete(main()) == 10


def test_waiting_for_nothing_is_noticed(loop: VirtualLoop) -> None:
    async def main() -> None:
        await loop.create_future()

    with pytest.raises(DeadlockError, match="main"):
        loop.run_until_complete(loop.create_task(main(), name="main"))
    assert loop.end_all() == []


def test_spinning_without_time_is_noticed(loop: VirtualLoop) -> None:
    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(StepLimitError, match="spins"):
        loop.run_until_complete(main())
    assert loop.end_all() == []


def test_a_run_without_end_is_noticed() -> None:
    loop = VirtualLoop(step_limit=1000)

    async def main() -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(StepLimitError, match="does not end"):
        loop.run_until_complete(main())
    loop.close()


def test_threads_are_refused(loop: VirtualLoop) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(print)

    loop.run_until_complete(main())


def ticker(seen: list[Any], name: str, loop: VirtualLoop) -> Coroutine[Any, Any, None]:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            seen.append((name, loop.time()))

    return tick()


def test_a_frozen_process_stands_still_and_catches_up(loop: VirtualLoop) -> None:
    seen: list[Any] = []

    async def main() -> None:
        first, second = loop.scope("first"), loop.scope("second")
        first.spawn(ticker(seen, "first", loop), "tick")
        second.spawn(ticker(seen, "second", loop), "tick")
        await asyncio.sleep(1.5)
        first.freeze()
        await asyncio.sleep(2)
        first.thaw()
        await asyncio.sleep(1.2)

    loop.run_until_complete(main())
    # The tick due at 2 happens at the thaw, 3.5, and the next one a second after it.
    assert seen == [
        ("first", 1.0),
        ("second", 1.0),
        ("second", 2.0),
        ("second", 3.0),
        ("first", 3.5),
        ("second", 4.0),
        ("first", 4.5),
    ]
    assert loop.end_all() == []


def test_a_killed_process_runs_nothing_more_not_even_its_finally(loop: VirtualLoop) -> None:
    seen: list[Any] = []

    async def careful() -> None:
        try:
            await asyncio.sleep(5)
        finally:
            seen.append("finally")

    async def main() -> None:
        scope = loop.scope("victim")
        task = scope.spawn(careful(), "careful")
        await asyncio.sleep(1)
        scope.kill()
        scope.thaw()  # too late
        task.cancel()
        await asyncio.sleep(10)
        assert not task.done()
        assert not scope.alive

    loop.run_until_complete(main())
    assert seen == []
    assert loop.end_all() == []


def test_tasks_started_by_a_process_belong_to_it(loop: VirtualLoop) -> None:
    seen: list[Any] = []

    async def parent() -> None:
        child = asyncio.create_task(ticker(seen, "child", loop))
        await child

    async def main() -> None:
        scope = loop.scope("parent")
        scope.spawn(parent(), "parent")
        await asyncio.sleep(2.5)
        scope.kill()
        await asyncio.sleep(5)

    loop.run_until_complete(main())
    assert seen == [("child", 1.0), ("child", 2.0)]
    assert loop.end_all() == []


def test_a_task_that_does_not_end_on_cancellation_is_named(loop: VirtualLoop) -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        loop.scope("stubborn").spawn(stubborn(), "loop")
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert loop.end_all() == ["stubborn: loop"]


def test_sets_of_tasks_have_one_order(loop: VirtualLoop) -> None:
    async def main() -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(0), name=str(number)) for number in range(50)}
        names = [task.get_name() for task in tasks]
        await asyncio.gather(*tasks)
        return names

    other = VirtualLoop()
    assert loop.run_until_complete(main()) == other.run_until_complete(main())
    other.close()


def test_clocks_are_skewed_and_jump_but_never_the_monotonic_one(loop: VirtualLoop) -> None:
    exact, wrong = VirtualClock(loop), VirtualClock(loop, skew_ms=-5000, monotonic_start=77.0)

    async def main() -> None:
        await asyncio.sleep(2)

    loop.run_until_complete(main())
    assert exact.now_ms() == EPOCH_MS + 2000
    assert wrong.now_ms() == EPOCH_MS - 3000
    wrong.jump(60_000)
    assert wrong.now_ms() == EPOCH_MS + 57_000
    assert (exact.monotonic(), wrong.monotonic()) == (2.0, 79.0)


def test_a_clock_that_drifts_gains_time_until_it_is_right_again(loop: VirtualLoop) -> None:
    clock = VirtualClock(loop)

    def after(seconds: float) -> int:
        loop.run_until_complete(asyncio.sleep(seconds))
        return clock.now_ms() - EPOCH_MS

    clock.drift(0.5)
    assert after(2.0) == 3_000
    clock.drift(-0.5)
    assert after(2.0) == 4_000
    clock.drift(0.0)
    assert after(1.0) == 5_000
    assert clock.monotonic() == 5.0


def test_a_process_counts_seconds_by_the_clock_of_its_machine(loop: VirtualLoop) -> None:
    fast, slow = VirtualClock(loop, monotonic_start=7.0), VirtualClock(loop)
    woken: dict[str, float] = {}

    async def sleeper(name: str) -> None:
        async with asyncio.timeout(100.0):
            await asyncio.sleep(10.0)
        woken[name] = loop.time()

    fast.run_at(1.25)
    slow.run_at(0.5)
    for name, clock in (("fast", fast), ("slow", slow), ("exact", None)):
        scope = loop.scope(name)
        scope.clock = clock
        scope.spawn(sleeper(name), "sleeper")
    loop.run_until_complete(asyncio.sleep(20.001))
    assert woken == {"fast": 8.0, "exact": 10.0, "slow": 20.0}
    assert (fast.monotonic(), slow.monotonic()) == pytest.approx((32.0, 10.0), abs=0.01)
    fast.run_at(1.0)
    loop.run_until_complete(asyncio.sleep(1.0))
    assert fast.monotonic() == pytest.approx(33.0, abs=0.01)


def test_a_process_gets_the_same_ids_and_chance_from_the_same_seed(loop: VirtualLoop) -> None:
    def draw(seed: int, process: str) -> tuple[str, float]:
        system = seeded_system(VirtualClock(loop), seed, process)
        return system.ids.hex32(), system.rng.random()

    assert draw(1, "jm") == draw(1, "jm")
    assert len({draw(1, "jm"), draw(2, "jm"), draw(1, "tm")}) == 3
