"""The next life of a task manager: what it takes over, offers again, gives back, and what it refuses to rely on."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, RetryLater, Unavailable
from emberkeep.base.ids import AllocationId, ExecutorId, InstanceId
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.protocol.messages.executors import OfferSlots, OfferSlotsReply, ReleaseSlot
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.messages.task_managers import (
    AttemptKey,
    RegisterTaskManager,
    StopTaskManager,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
)
from emberkeep.slots.model import ResourceProfile
from emberkeep.taskmanager.agent_record import decode
from emberkeep.taskmanager.journal import PATIENCE, RETRY_PAUSE
from emberkeep.taskmanager.ports import ExecutorKey
from tests.unit.taskmanager.agent_bench import (
    DRIVER,
    FREE_MB,
    INTERVAL,
    JOB,
    JOB_MASTER,
    SLOT,
    SLOT_WAIT,
    TIMEOUT,
    Bench,
    Run,
    allocate,
    start_driver,
    start_executor,
    stop_driver,
    take_all,
)

SECOND = AllocationId("a2")
SUCCESS = AttemptOutcome(exit_code=0)


def stop(life: str = "life-1", *, epoch: int = 1, drain: float = 0.0) -> StopTaskManager:
    return StopTaskManager(epoch=epoch, instance=InstanceId(life), drain=drain)


def newest_offer(bench: Bench) -> OfferSlots:
    return bench.job_master.asked(OfferSlots)[-1]


async def restarted(bench: Bench, **changes: object) -> OfferSlots:
    """The first offer of the next life."""
    await bench.crash()
    before = len(bench.job_master.asked(OfferSlots))
    await bench.restart(**changes)
    await bench.until(lambda: len(bench.job_master.asked(OfferSlots)) > before)
    return bench.job_master.asked(OfferSlots)[before]


@pytest.mark.req("LOC-3", "LOC-5", "LOC-11")
def test_a_living_executor_is_adopted_offered_again_and_goes_on(run: Run) -> None:
    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        pid = bench.launcher.alive[key]
        await bench.until(lambda: bench.service.executor.table.state.slots[SLOT].pid == pid)
        offer = await restarted(bench)
        assert offer.task_manager.instance == InstanceId("life-2")
        assert offer.task_manager.predecessor == InstanceId("life-1")
        (report,) = offer.executors
        assert (report.executor_id, report.state, report.pid) == (ExecutorId("0"), ProcessState.RUNNING, pid)
        registration = bench.job_manager.asked(RegisterTaskManager)[-1]
        assert registration.info == offer.task_manager
        assert [slot.id for slot in registration.report.allocations] == [SLOT]
        assert bench.listener.told == [("begun", SLOT, None), ("recovered", SLOT, None)]
        await bench.keep_beating(3 * TIMEOUT, SLOT)
        assert bench.launcher.alive == {key: pid}
        bench.launcher.end(key, None)
        await bench.until(lambda: bench.service.executor.table.state.slots[SLOT].state.name == "EXITED")
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT))
        assert bench.listener.told[-1] == ("freed", SLOT, True)

    run(story)


@pytest.mark.req("LOC-5")
def test_the_slot_of_an_executor_that_ended_meanwhile_takes_another_one(run: Run) -> None:
    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        await bench.crash()
        bench.launcher.end(key, -9)
        await bench.restart()
        await bench.until(lambda: newest_offer(bench).executors != ())
        (report,) = newest_offer(bench).executors
        assert (report.state, report.exit_code) == (ProcessState.EXITED, None)
        await bench.until(lambda: bench.service.executor.table.state.slots[SLOT].claim_until is None)
        with pytest.raises(Conflict):
            await bench.send(start_executor(executor_id="7", attempt=0))
        await bench.send(start_executor(executor_id="1"))
        await bench.until(lambda: [key.executor_id for key in bench.launcher.executors()] == ["1"])
        with pytest.raises(Conflict):  # a late repetition
            await bench.send(start_executor(executor_id="0"))

    run(story)


@pytest.mark.req("LOC-4", "LOC-5")
@pytest.mark.parametrize(
    ("answer", "may_return", "patience"),
    [
        (OfferSlotsReply(accepted=()), False, 3.0),
        (Conflict("another attempt runs here"), False, 3.0),
        (RetryLater("busy"), False, TIMEOUT + SLOT_WAIT + 3.0),
        (OfferSlotsReply(accepted=(), later=(SLOT,)), True, 3.0),
    ],
    ids=["not accepted", "refused", "no answer", "wanted later"],
)
def test_a_slot_whose_executor_has_ended_gives_its_state_back_at_once_unless_it_is_wanted_later(
    run: Run, answer: OfferSlotsReply | EmberkeepError, may_return: bool, patience: float
) -> None:
    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        await bench.crash()
        bench.launcher.end(key, -9)
        bench.job_master.answers[OfferSlots] = answer
        await bench.restart()
        await bench.until(lambda: bench.listener.told[-1] == ("freed", SLOT, may_return), patience)

    run(story)


@pytest.mark.req("LOC-5")
@pytest.mark.parametrize("answer", ["refused", "nobody there", "not accepted", "no answer"])
def test_what_its_job_master_does_not_take_is_freed_and_its_executor_ended(run: Run, answer: str) -> None:
    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        await bench.crash()
        match answer:
            case "refused":
                bench.job_master.answers[OfferSlots] = Conflict("another attempt")
            case "not accepted":
                bench.job_master.answers[OfferSlots] = OfferSlotsReply(accepted=())
            case "no answer":
                bench.job_master.answers[OfferSlots] = RetryLater("busy")
            case _:
                bench.network.detach(JOB_MASTER)
        await bench.restart()
        patient = answer in ("no answer", "nobody there")
        if patient:
            await asyncio.sleep(TIMEOUT + SLOT_WAIT - 1.0)
            assert bench.launcher.executors() == [key]
            assert bench.listener.told[-1][0] == "recovered"
        await bench.until(lambda: bench.launcher.executors() == [], 3.0)
        await bench.until(lambda: bench.listener.told[-1] == ("freed", SLOT, False), 3.0)
        assert bench.service.executor.table.state.is_empty

    run(story)


def test_a_job_master_on_the_same_node_may_take_its_time(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bench.launcher.drivers() != [])
        await bench.running_executor()
        await bench.crash()
        bench.job_master.answers[OfferSlots] = RetryLater("busy")
        await bench.restart()
        await asyncio.sleep(10 * TIMEOUT)
        assert len(bench.launcher.executors()) == 1
        with pytest.raises(RetryLater):
            await bench.beat(SLOT)
        bench.job_master.answers[OfferSlots] = take_all
        await bench.until(lambda: bench.service.executor.table.state.slots[SLOT].claim_until is None)
        assert (await bench.beat(SLOT)).allocations == (SLOT,)

    run(story)


@pytest.mark.req("LOC-11")
def test_a_living_driver_is_adopted_and_can_be_ended(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bench.launcher.drivers() == [DRIVER])
        pid = bench.launcher.alive[DRIVER]
        await bench.crash()
        await bench.restart()
        (driver,) = bench.job_manager.asked(RegisterTaskManager)[-1].report.drivers
        assert (driver.state, driver.pid, driver.memory_mb) == (ProcessState.RUNNING, pid, 1000)
        await bench.send(start_driver())  # a repetition starts nothing
        assert len(bench.launcher.started) == 1
        await bench.send(stop_driver(grace=3.0))
        await bench.until(lambda: bench.launcher.drivers() == [])
        assert bench.launcher.stops[-1] == (DRIVER, 3.0)

    run(story)


def test_the_end_of_a_driver_that_nobody_saw_is_told_and_gives_back_its_slots(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        await bench.until(lambda: len(bench.launcher.alive) == 2)
        await bench.crash()
        bench.launcher.end(DRIVER, 0)
        bench.launcher.outcomes[DRIVER] = AttemptOutcome(exit_code=0)
        await bench.restart()
        assert (await bench.reported_outcome()).exit_code == 0
        await bench.until(lambda: bench.launcher.executors() == [])
        await bench.until(lambda: ("freed", SLOT, True) in bench.listener.told)
        with pytest.raises(Conflict):
            await bench.send(start_driver())

    run(story)


def test_an_outcome_that_was_not_acknowledged_is_told_by_the_next_life(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems.append(Fatal("no interpreter"))
        await bench.send(start_driver())
        await bench.reported_outcome()
        await bench.crash()
        await bench.restart()
        (driver,) = bench.job_manager.asked(RegisterTaskManager)[-1].report.drivers
        assert driver.outcome is not None
        assert (driver.outcome.kind, driver.outcome.message) == (FailureKind.SETUP, "no interpreter")
        key = AttemptKey(job_id=JOB, attempt=1)
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=1, known=True, acknowledged=(key,)
        )
        await bench.until(lambda: not bench.report().drivers)
        await bench.crash()
        await bench.restart()
        assert bench.job_manager.asked(RegisterTaskManager)[-1].report.drivers == ()

    run(story)


@pytest.mark.req("HA-7")
def test_the_reply_to_a_stop_says_that_there_is_no_such_driver_and_none_is_started_any_more(run: Run) -> None:
    async def story(bench: Bench) -> None:
        reply = await bench.send(stop_driver(attempt=1))
        assert reply.never_had_by == bench.job_manager.asked(RegisterTaskManager)[-1].info.instance
        with pytest.raises(Conflict, match="is over"):
            await bench.send(start_driver(attempt=1))
        await bench.send(start_driver(attempt=2))
        reply = await bench.send(stop_driver(attempt=2))
        assert not reply.never_had_by, "it has that one"

    run(story)


def test_an_older_epoch_and_an_attempt_that_is_over_stay_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(stop_driver(attempt=2, epoch=1))
        await bench.crash()
        await bench.restart()
        with pytest.raises(Conflict):
            await bench.send(start_driver(attempt=2))
        with pytest.raises(Conflict):
            await bench.send(allocate(attempt=1))
        await bench.send(allocate(attempt=3))
        with pytest.raises(Conflict):
            await bench.send(stop_driver(attempt=3, epoch=0))

    run(story)


@pytest.mark.req("LOC-6")
def test_one_that_is_told_to_end_takes_nothing_new_and_gives_its_work_time(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        key = await bench.running_executor()
        retired = asyncio.create_task(bench.service.retired())
        await bench.send(stop(drain=300.0))
        await bench.until(lambda: bench.report().leaving)
        with pytest.raises(Conflict):
            await bench.send(allocate(SECOND))
        await asyncio.sleep(100.0)
        assert (bench.launcher.executors(), bench.launcher.drivers()) == ([key], [DRIVER])
        assert not retired.done()
        bench.launcher.end(DRIVER, 0, AttemptOutcome(exit_code=0))
        await bench.until(retired.done, 5.0)
        assert bench.service.executor.table.state.is_empty

        with pytest.raises(Conflict):  # by a JobManager that was deposed
            await bench.send(stop(epoch=0))

    run(story)


@pytest.mark.req("LOC-6")
def test_what_was_meant_for_an_earlier_life_ends_no_later_one(run: Run) -> None:
    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        await bench.crash()
        await bench.restart()
        retired = asyncio.create_task(bench.service.retired())
        with pytest.raises(Conflict, match="life-1"):
            await bench.send(stop("life-1"))
        await bench.keep_beating(10.0, SLOT)
        assert not retired.done()
        assert not bench.report().leaving
        assert bench.launcher.executors() == [key]
        await bench.send(allocate(SECOND))
        await bench.send(stop("life-2"))
        await bench.until(retired.done, 5.0)

    run(story)


@pytest.mark.req("LOC-6")
def test_one_whose_work_does_not_end_in_time_ends_it(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        retired = asyncio.create_task(bench.service.retired())
        await bench.send(stop(drain=30.0))
        await asyncio.sleep(29.0)
        assert not retired.done()
        await bench.until(retired.done, 2.0)
        await bench.service.shutdown(3.0)
        assert bench.launcher.alive == {}
        assert bench.listener.told[-1] == ("freed", SLOT, True)
        assert bench.store.data is not None
        assert (await bench.store.read()).table.slots == ()

    run(story)


@pytest.mark.req("LOC-8")
def test_a_record_that_cannot_be_used_means_that_everything_is_lost(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.send(start_driver())
        await bench.until(lambda: len(bench.launcher.alive) == 2)
        await bench.crash()
        bench.store.data = b'{"instance": 7}'
        await bench.restart()
        assert bench.launcher.alive == {}
        registration = bench.job_manager.asked(RegisterTaskManager)[-1]
        assert (registration.report.allocations, registration.report.drivers) == ((), ())
        assert registration.info.predecessor is None
        assert bench.launcher.kept[-1] == frozenset()
        await bench.send(allocate(SECOND))
        await bench.crash()
        await bench.restart()
        assert ("recovered", SECOND, None) in bench.listener.told

    run(story)


def test_a_life_that_nobody_heard_of_is_skipped(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.crash()
        answer = bench.job_manager.answers.pop(RegisterTaskManager)
        bench.job_master.answers[OfferSlots] = RetryLater("busy")
        unheard = asyncio.create_task(bench.restart())
        await asyncio.sleep(1.0)
        unheard.cancel()
        await asyncio.gather(unheard, return_exceptions=True)
        await bench.crash()
        bench.job_manager.answers[RegisterTaskManager] = answer
        bench.job_master.answers[OfferSlots] = take_all
        offer = await restarted(bench)
        assert offer.task_manager.instance == InstanceId("life-3")
        assert offer.task_manager.predecessor == InstanceId("life-1")
        assert offer.task_manager.unconfirmed == (InstanceId("life-2"),), "its registration may have arrived"
        again = await restarted(bench)
        assert again.task_manager.predecessor == InstanceId("life-3")
        assert again.task_manager.unconfirmed == ()

    run(story)


@pytest.mark.parametrize("lives", [1, 2, 3])
def test_a_life_whose_registration_has_arrived_is_on_disk_by_then(run: Run, lives: int) -> None:
    async def story(bench: Bench) -> None:
        bench.store.seconds = INTERVAL / 2
        known: list[tuple[InstanceId, ...]] = []

        def note(_: Message) -> Message:
            record = decode(bench.store.data or b"", where="memory")
            known.append((record.instance, *record.unconfirmed))
            raise RetryLater("the reply is lost")

        answer = bench.job_manager.answers[RegisterTaskManager]
        bench.job_manager.answers[RegisterTaskManager] = note
        await bench.crash()
        bench.store.data = None
        for _ in range(lives):
            known.clear()
            unheard = asyncio.create_task(bench.restart())
            await bench.until(lambda: known != [])
            assert InstanceId(f"life-{bench.lives}") in known[-1]
            unheard.cancel()
            await asyncio.gather(unheard, return_exceptions=True)
            await bench.crash()
        bench.job_manager.answers[RegisterTaskManager] = answer
        await bench.restart()
        info = bench.job_manager.asked(RegisterTaskManager)[-1].info
        assert info.predecessors == tuple(InstanceId(f"life-{number + 2}") for number in range(lives))

    run(story)


@pytest.mark.parametrize("problem", [None, Unavailable("the disk is full")])
def test_a_disk_that_hangs_or_fails_does_not_keep_a_task_manager_away(run: Run, problem: EmberkeepError | None) -> None:
    async def story(bench: Bench) -> None:
        await bench.crash()
        bench.store.seconds, bench.store.problem = (1000.0 if problem is None else 0.0), problem
        await bench.restart()
        assert bench.job_manager.asked(RegisterTaskManager)[-1].info.instance == InstanceId("life-2")

    run(story)


def test_a_smaller_life_ends_what_has_no_room(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor(SLOT, "0")
        await bench.send(allocate(SECOND))
        await bench.until(lambda: len(bench.job_master.asked(OfferSlots)) > 1)
        await bench.send(start_executor(SECOND, "1"))
        await bench.until(lambda: len(bench.launcher.executors()) == 2)
        offer = await restarted(bench, slots=1)
        assert [slot.id for slot in offer.slots] == [SLOT]
        assert [key.executor_id for key in bench.launcher.executors()] == ["0"]

    run(story)


@pytest.mark.req("SAFE-9")
@pytest.mark.parametrize(
    "room",
    [{"driver_places": 0}, {"total": ResourceProfile(cores=2, memory_mb=600)}],
    ids=["no place", "no memory"],
)
def test_a_smaller_life_tells_how_a_driver_without_room_has_ended_until_that_is_acknowledged(
    run: Run, room: dict[str, object]
) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bench.launcher.drivers() == [DRIVER])
        await bench.crash()
        bench.launcher.end(DRIVER, 0)
        bench.launcher.outcomes[DRIVER] = SUCCESS
        for _ in range(2):
            await bench.restart(**room)
            assert await bench.reported_outcome() == SUCCESS
            await bench.crash()
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=1, known=True, acknowledged=(AttemptKey(job_id=JOB, attempt=1),)
        )
        await bench.restart(**room)
        await bench.until(lambda: not bench.report().drivers)

    run(story)


def test_a_smaller_life_ends_a_driver_without_room_and_says_why(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bench.launcher.drivers() == [DRIVER])
        await bench.crash()
        await bench.restart(driver_places=0)
        outcome = await bench.reported_outcome()
        assert (outcome.kind, outcome.message) == (
            FailureKind.LOST,
            "the task manager has fewer slots or driver places than before its restart",
        )
        assert bench.launcher.drivers() == []

    run(story)


@pytest.mark.req("SAFE-9")
def test_an_end_without_its_outcome_in_the_record_is_looked_up(run: Run) -> None:
    """As in a record from which a failed write, or another release, has left it out."""

    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bench.launcher.drivers() == [DRIVER])
        bench.launcher.end(DRIVER, 0, SUCCESS)
        await bench.reported_outcome()
        await bench.service.executor.journal.settled()
        await bench.crash()
        await bench.store.write(msgspec.structs.replace(await bench.store.read(), outcomes=()))
        bench.launcher.outcomes[DRIVER] = SUCCESS
        await bench.restart()
        assert await bench.reported_outcome() == SUCCESS

    run(story)


@pytest.mark.req("SAFE-9")
@pytest.mark.parametrize("record", [None, b'{"instance": 7}'], ids=["no record", "damaged"])
def test_without_a_record_all_outcomes_that_are_there_are_told(run: Run, record: bytes | None) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bench.launcher.drivers() == [DRIVER])
        await bench.crash()
        bench.launcher.end(DRIVER, 0)
        bench.launcher.outcomes[DRIVER] = SUCCESS
        bench.store.data = record
        await bench.restart()
        assert await bench.reported_outcome() == SUCCESS
        with pytest.raises(Conflict):
            await bench.send(start_driver())
        await bench.crash()
        await bench.restart()
        assert await bench.reported_outcome() == SUCCESS

    run(story)


@pytest.mark.req("LOC-3")
def test_nothing_is_started_or_answered_before_it_is_on_disk(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate())
        await bench.until(lambda: bench.service.executor.table.state.slots[SLOT].claim_until is None)
        bench.store.problem = Fatal("no space left on device")
        with pytest.raises(RetryLater, match="no space left on device"):
            await bench.send(start_executor())
        assert bench.launcher.started == []
        await bench.beat(SLOT)
        with pytest.raises(RetryLater):
            await bench.send(allocate(SECOND))
        assert [slot.id for offer in bench.job_master.asked(OfferSlots) for slot in offer.slots] == [SLOT]
        bench.store.problem = None
        await bench.until(lambda: len(bench.launcher.executors()) == 1)
        assert bench.launcher.executors() == [
            ExecutorKey(job_id=JOB, attempt=1, allocation_id=SLOT, executor_id=ExecutorId("0"))
        ]

    run(story)


def test_a_task_manager_has_no_room_while_its_record_cannot_be_written(run: Run) -> None:
    """A disk that can only be read has free space, but nothing can be started there."""

    async def story(bench: Bench) -> None:
        bench.store.problem = Fatal("read-only file system")
        with pytest.raises(RetryLater):
            await bench.send(allocate())
        await bench.until(lambda: bench.report().disk_free_mb == 0)
        bench.store.problem = None
        await bench.until(lambda: bench.report().disk_free_mb == FREE_MB)

    run(story)


@pytest.mark.req("LOC-3")
def test_nothing_is_written_while_slots_stay_as_they_are(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.keep_beating(2 * INTERVAL, SLOT)
        written = bench.store.writes
        await bench.keep_beating(20 * TIMEOUT, SLOT)
        assert bench.store.writes == written

    run(story)


def test_a_disk_that_stays_full_fails_the_start_of_a_driver(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.store.problem = Fatal("no space left on device")
        with pytest.raises(RetryLater):
            await bench.send(start_driver())
        outcome = await bench.reported_outcome(PATIENCE * RETRY_PAUSE + 1.0)
        assert (outcome.kind, bench.launcher.started) == (FailureKind.SETUP, [])
        assert "no space left on device" in outcome.message
        assert not outcome.lasting

    run(story)


@pytest.mark.req("SAFE-16")
def test_a_task_manager_that_cannot_read_its_record_ends_no_process(run: Run) -> None:
    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        await bench.crash()
        bench.store.unreadable = Unavailable("slots.record cannot be read now")
        with pytest.raises(Unavailable):
            await bench.next_life().run()
        assert list(bench.launcher.alive) == [key]
        bench.store.unreadable = None
        await bench.restart()
        assert list(bench.launcher.alive) == [key]

    run(story)
