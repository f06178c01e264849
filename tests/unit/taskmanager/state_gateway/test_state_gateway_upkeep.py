"""How long local copies live: with their slot, with Spark's own purges, with the job."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from emberkeep.adapters.state.copies_index import Copy
from emberkeep.base.clock import SystemClock
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.errors import Fenced
from emberkeep.local_state.model import STANDBY, Caller, CopyRecord, StatePath
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.taskmanager.state_gateway.upkeep import CLAIM_TIMEOUT, StateUpkeep
from tests.unit.taskmanager.state_gateway.state_gateways import DRIVER_OF, EXECUTOR, JOB, OTHER, OTHER_SLOT, SLOT, Node

CONTENT = b"x" * 10_000
NEXT_SLOT = AllocationId("c" * 32)


class HandClock(SystemClock):
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def allocation(slot: AllocationId, attempt: int = 1, job_id: JobId = JOB) -> Allocation:
    return Allocation(
        id=slot,
        slot_index=0,
        job_id=job_id,
        attempt=attempt,
        profile=ResourceProfile(cores=1, memory_mb=1),
        job_master="h:1",
    )


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@contextlib.asynccontextmanager
async def upkeep_of(node: Node, clock: HandClock) -> AsyncIterator[StateUpkeep]:
    upkeep = StateUpkeep(node.gateway, clock, sweep_interval=1e9)
    upkeep.opened(node.copies.records())
    running = asyncio.create_task(upkeep.run())
    try:
        yield upkeep
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(240):
        while not look():  # noqa: ASYNC110 - threads do it, and tell nobody
            await asyncio.sleep(0.005)


async def kept(node: Node, wanted: set[str]) -> None:
    await until(lambda: {record.path.name for record in node.copies.records()} == wanted)


async def test_a_job_that_had_only_its_standby_here_leaves_no_open_store(node: Node, clock: HandClock) -> None:
    state = Caller(job_id=OTHER, attempt=0, allocation_id=STANDBY)
    async with upkeep_of(node, clock) as upkeep:
        upkeep.standbys_reserved({OTHER})
        node.gateway.roots.state(state, str(node.place / OTHER))
        upkeep.standbys_reserved(())
        await upkeep.sweep()
        assert node.gateway.roots.opened(OTHER), "its next attempt may begin here"
        clock.now += CLAIM_TIMEOUT
        await upkeep.sweep()
        await until(lambda: not node.gateway.roots.opened(OTHER))


@pytest.mark.req("LOC-4")
async def test_copies_go_with_their_slot(node: Node, clock: HandClock) -> None:
    async with upkeep_of(node, clock) as upkeep:
        upkeep.allocation_begun(allocation(SLOT))
        upkeep.allocation_begun(allocation(OTHER_SLOT))
        node.write("state/0/1/1.delta", CONTENT)
        node.write("state/0/2/1.delta", CONTENT, Caller(job_id=JOB, attempt=1, allocation_id=OTHER_SLOT))
        upkeep.allocation_freed(allocation(SLOT), may_return=False)
        await kept(node, {"state/0/2/1.delta"})
        assert node.read("state/0/1/1.delta") == CONTENT  # the durable file stays
        upkeep.job_forgotten(JOB)
        await kept(node, set())


@pytest.mark.req("LOC-4")
async def test_the_next_attempt_finds_what_the_last_one_left(node: Node, clock: HandClock) -> None:
    async with upkeep_of(node, clock) as upkeep:
        upkeep.allocation_begun(allocation(SLOT))
        node.write("state/0/1/1.delta", CONTENT)
        upkeep.allocation_freed(allocation(SLOT), may_return=True)
        await upkeep.sweep()
        upkeep.allocation_begun(allocation(NEXT_SLOT, attempt=2))
        await until(lambda: node.copies.records()[0].allocation_id == NEXT_SLOT)
        with pytest.raises(Fenced):
            node.read("state/0/1/1.delta")
        node.gateway.admit(DRIVER_OF[2])
        next_one = Caller(job_id=JOB, attempt=2, allocation_id=NEXT_SLOT)
        assert node.read("state/0/1/1.delta", next_one) == CONTENT
        assert node.counts("hits", "misses") == (1, 0)


@pytest.mark.req("LOC-5")
async def test_after_a_restart_only_what_is_claimed_stays(node: Node, clock: HandClock) -> None:
    node.write("state/0/1/1.delta", CONTENT)
    node.write("state/0/2/1.delta", CONTENT, Caller(job_id=JOB, attempt=1, allocation_id=OTHER_SLOT))
    node.restarted_gateway()
    async with upkeep_of(node, clock) as upkeep:
        upkeep.allocation_recovered(allocation(SLOT))
        clock.now = CLAIM_TIMEOUT - 1
        await upkeep.sweep()
        assert len(node.copies.records()) == 2
        clock.now = CLAIM_TIMEOUT
        await upkeep.sweep()
        await kept(node, {"state/0/1/1.delta"})


async def test_a_sweep_waits_for_a_disk_that_hangs_and_the_event_loop_does_not(
    node: Node, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write("state/0/1/1.delta", CONTENT)
    hangs, answers, asked = threading.Event(), threading.Event(), threading.Event()
    delete = node.copies._places.delete

    def hang(copy: Copy) -> None:
        hangs.set()
        answers.wait()
        delete(copy)

    monkeypatch.setattr(node.copies._places, "delete", hang)
    records = node.copies.records

    def counted() -> tuple[CopyRecord, ...]:
        asked.set()
        return records()

    monkeypatch.setattr(node.copies, "records", counted)
    gives_up = threading.Timer(30.0, answers.set)  # so that a hanging event loop is a failure
    gives_up.start()
    dropping = asyncio.create_task(asyncio.to_thread(node.gateway.disk.drop, node.path("state/0/1/1.delta")))
    await until(hangs.is_set)
    upkeep = StateUpkeep(node.gateway, clock, sweep_interval=1e9)
    sweeping = asyncio.create_task(upkeep.sweep())
    await until(asked.is_set)
    assert not answers.is_set(), "the event loop has waited for the disk"
    gives_up.cancel()
    answers.set()
    await asyncio.gather(dropping, sweeping)
    assert node.copies.records() == ()


@pytest.mark.req("LOC-5")
async def test_nothing_of_a_job_that_never_came_back_stays(node: Node, clock: HandClock) -> None:
    node.write("state/0/1/1.delta", CONTENT)
    node.restarted_gateway()
    async with upkeep_of(node, clock) as upkeep:
        clock.now = CLAIM_TIMEOUT
        await upkeep.sweep()
        await kept(node, set())


async def test_what_spark_purged_elsewhere_goes_here_too(node: Node, clock: HandClock, tmp_path: Path) -> None:
    async with upkeep_of(node, clock) as upkeep:
        upkeep.allocation_begun(allocation(SLOT))
        for number in range(5):
            node.write(f"state/0/1/{number}.delta", CONTENT)
        node.write("offsets/0", CONTENT)
        elsewhere = Node(tmp_path, "elsewhere")
        for number in range(3):
            elsewhere.gateway.delete(EXECUTOR, elsewhere.path(f"state/0/1/{number}.delta"), recursive=False)
        elsewhere.write("state/0/1/3.delta", b"another")
        await upkeep.compare()
        await kept(node, {"state/0/1/4.delta", "offsets/0"})
        assert node.counts("purged") == (4,)
        elsewhere.gateway.delete(EXECUTOR, elsewhere.path("state"), recursive=True)
        await upkeep.compare()
        await kept(node, {"offsets/0"})


async def test_a_store_that_hangs_holds_up_its_comparison_alone(node: Node, clock: HandClock) -> None:
    node.write("state/0/1/1.delta", CONTENT)
    node.restarted_gateway()
    node.gateway.admit(DRIVER_OF[1])
    goes_on = threading.Event()
    node.durable.before = lambda _: assert_true(goes_on.wait(240))
    upkeep = StateUpkeep(node.gateway, clock, sweep_interval=0.005)
    upkeep.opened(node.copies.records())
    running = asyncio.create_task(upkeep.run())
    try:
        node.durable.calls.clear()
        await until(lambda: node.durable.calls == ["listing state/0/1"])
        clock.now = CLAIM_TIMEOUT
        await kept(node, set())
    finally:
        goes_on.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_nobody_waits_while_room_is_made(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, quota=20 * 15_000)
    begun, goes_on = threading.Event(), threading.Event()
    drop = node.copies.drop

    def slow(path: StatePath) -> None:
        begun.set()
        assert_true(goes_on.wait(240))
        drop(path)

    monkeypatch.setattr(node.copies, "drop", slow)
    async with upkeep_of(node, clock) as upkeep:
        upkeep.allocation_begun(allocation(SLOT))
        for number in range(100):
            node.write(f"state/0/1/{number}.delta", CONTENT)
        await until(begun.is_set)
        for number in range(100):
            assert node.read(f"state/0/1/{number}.delta") == CONTENT
        # What came while the room was being made goes little beyond it.
        assert node.quota < node.copies.used() < node.quota + 30_000
        goes_on.set()
        await until(lambda: node.copies.used() <= node.quota)
        assert node.counts("evictions")[0] > 0
        node.write("state/0/1/100.delta", CONTENT)
        assert node.copies.find(node.path("state/0/1/100.delta")) is not None


def assert_true(reached: bool) -> None:
    assert reached


async def test_copies_written_while_their_slot_was_given_back_are_found(node: Node, clock: HandClock) -> None:
    async with upkeep_of(node, clock) as upkeep:
        upkeep.allocation_begun(allocation(SLOT))
        incoming = node.gateway.receive(EXECUTOR, node.path("state/0/1/1.delta"), overwrite=True)
        incoming.write(CONTENT)
        upkeep.allocation_freed(allocation(SLOT), may_return=False)
        incoming.commit()
        await upkeep.sweep()
        await kept(node, set())


async def test_what_lies_here_is_reported(node: Node, clock: HandClock) -> None:
    async with upkeep_of(node, clock) as upkeep:
        upkeep.allocation_begun(allocation(SLOT))
        upkeep.allocation_begun(allocation(NEXT_SLOT, job_id=OTHER))
        node.write("state/0/1/1.delta", CONTENT)
        node.write("state/0/2/1.delta", CONTENT)
        await until(lambda: bool(upkeep.jobs) and upkeep.jobs[0].files == 2)
        (job,) = upkeep.jobs
        assert (job.job_id, job.files, job.size, job.allocations) == (JOB, 2, 20_000, (SLOT,))
        report = upkeep.report()
        assert (report.copies, report.written_bytes, report.kept_bytes) == (2, 20_000, 20_000)
        await asyncio.to_thread(upkeep.clear)
        assert node.copies.records() == ()
