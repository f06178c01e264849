"""Sent at once on change, else at an interval; an absent receiver gets one try per growing pause."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from emberkeep.base.beacon import Beacon, retry_pause
from tests.support.simulator.virtual_loop import VirtualLoop

INTERVAL = 10.0


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.end_all()
    loop.close()


class Receiver:
    """Notes when something arrived."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.answers = True
        self.takes = 0.0
        self.times: list[float] = []

    async def send(self) -> bool:
        self.times.append(self.loop.time())
        await asyncio.sleep(self.takes)
        return self.answers


def test_it_sends_at_each_interval_and_at_once_when_woken(loop: VirtualLoop) -> None:
    receiver = Receiver(loop)
    beacon = Beacon(INTERVAL, random.Random(1))

    async def main() -> None:
        sending = asyncio.create_task(beacon.run(receiver.send))
        await asyncio.sleep(23.0)
        beacon.wake()
        await asyncio.sleep(10.5)
        sending.cancel()

    loop.run_until_complete(main())
    assert receiver.times == [0.0, 10.0, 20.0, 23.0, 33.0]


def test_changes_under_way_are_gathered_into_one(loop: VirtualLoop) -> None:
    receiver = Receiver(loop)
    receiver.takes = 4.0
    beacon = Beacon(INTERVAL, random.Random(1))

    async def main() -> None:
        sending = asyncio.create_task(beacon.run(receiver.send))
        for _ in range(3):
            await asyncio.sleep(1.0)
            beacon.wake()
        await asyncio.sleep(10.0)
        sending.cancel()

    loop.run_until_complete(main())
    assert receiver.times == [0.0, 4.0]


def test_an_absent_receiver_is_tried_in_growing_pauses_that_changes_do_not_shorten(loop: VirtualLoop) -> None:
    receiver = Receiver(loop)
    receiver.answers = False
    beacon = Beacon(INTERVAL, random.Random(1))

    async def main() -> None:
        sending = asyncio.create_task(beacon.run(receiver.send))
        for _ in range(2000):
            await asyncio.sleep(0.05)
            beacon.wake()
        sending.cancel()

    loop.run_until_complete(main())
    pauses = [after - before for before, after in zip(receiver.times, receiver.times[1:], strict=False)]
    assert pauses[0] < 0.2
    assert all(INTERVAL / 2 <= pause <= INTERVAL for pause in pauses[8:])
    assert len(receiver.times) < 30


@pytest.mark.parametrize("failures", [1, 5, 17, 100_000])
def test_pauses_are_bounded(failures: int) -> None:
    assert 0 < retry_pause(failures, INTERVAL, random.Random(1)) <= INTERVAL


def test_another_receiver_is_tried_at_once(loop: VirtualLoop) -> None:
    receiver = Receiver(loop)
    receiver.answers = False
    beacon = Beacon(INTERVAL, random.Random(1))

    async def main() -> None:
        sending = asyncio.create_task(beacon.run(receiver.send))
        await asyncio.sleep(60.0)
        receiver.times.clear()
        receiver.answers = True
        beacon.restart()
        await asyncio.sleep(1.0)
        sending.cancel()

    loop.run_until_complete(main())
    assert receiver.times == [60.0]
