"""A TaskManagerService over fake processes, in virtual time: JobManager and JobMaster are scripted."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from emberkeep.base.errors import Absent, Conflict, Fatal, InvalidInput, RetryLater, UnknownOutcome
from emberkeep.base.ids import AllocationId
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.protocol.messages.executors import ExecutorChanged, OfferSlots, OfferSlotsReply, ReleaseSlot
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_manager_reports import ProcessState
from emberkeep.protocol.messages.task_managers import (
    AttemptKey,
    RegisterTaskManager,
    ReservedStandby,
    TaskManagerHeartbeat,
    TaskManagerHeartbeatReply,
    TaskManagerRegistered,
)
from emberkeep.slots.model import ProcessStart
from emberkeep.taskmanager.task_executor import FORGET_AFTER
from tests.support.simulator.virtual_loop import VirtualLoop
from tests.unit.taskmanager.agent_bench import (
    DRIVER,
    FREE_MB,
    INFO,
    INTERVAL,
    JOB,
    JOB_MANAGER,
    SLOT,
    SLOT_WAIT,
    START_WAIT,
    TIMEOUT,
    Bench,
    Run,
    allocate,
    start_driver,
    start_executor,
    stop_driver,
)

# --- reserved standbys ------------------------------------------------------------------------------------------------


def test_the_launcher_follows_what_each_reply_says_of_reserved_standbys(run: Run) -> None:
    async def story(bench: Bench) -> None:
        reserved: tuple[ReservedStandby, ...]
        for reserved in ((ReservedStandby(job_id=JOB),), ()):
            reply = TaskManagerHeartbeatReply(epoch=1, known=True, reserved_standbys=reserved)
            bench.job_manager.answers[TaskManagerHeartbeat] = reply
            await asyncio.sleep(2 * INTERVAL)
            assert bench.launcher.reserved == reserved

    run(story)


def test_an_unknown_task_manager_keeps_its_reserved_standbys_until_it_is_told(run: Run) -> None:
    async def story(bench: Bench) -> None:
        reserved = (ReservedStandby(job_id=JOB),)
        known = TaskManagerHeartbeatReply(epoch=1, known=True, reserved_standbys=reserved)
        bench.job_manager.answers[TaskManagerHeartbeat] = known
        await bench.until(lambda: bench.launcher.reserved == reserved)
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(epoch=1, known=False)
        await asyncio.sleep(3 * INTERVAL)
        assert bench.launcher.reserved == reserved

    run(story)


# --- slots ------------------------------------------------------------------------------------------------------------


def test_a_reserved_slot_is_offered_at_once_and_reported(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate())
        await bench.until(lambda: bool(bench.job_master.asked(OfferSlots)), 0.5)
        offer = bench.job_master.asked(OfferSlots)[0]
        assert offer.task_manager == INFO
        assert [slot.id for slot in offer.slots] == [SLOT]
        await bench.until(lambda: [slot.id for slot in bench.report().allocations] == [SLOT], 0.5)
        assert bench.report().disk_free_mb == FREE_MB

    run(story)


def test_a_slot_that_nobody_answers_for_is_offered_again_and_freed_in_the_end(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.job_master.answers[OfferSlots] = UnknownOutcome("the answer was lost")
        await bench.send(allocate())
        await bench.until(lambda: len(bench.job_master.asked(OfferSlots)) > 3, SLOT_WAIT)
        assert bench.service.executor.table.state.slots
        await bench.until(lambda: not bench.service.executor.table.state.slots, SLOT_WAIT + INTERVAL)
        await bench.until(lambda: bench.report().allocations == (), INTERVAL)

    run(story)


@pytest.mark.parametrize("answer", [OfferSlotsReply(accepted=()), Conflict("another attempt"), Absent("no such job")])
def test_a_slot_that_is_not_accepted_is_freed_at_once(run: Run, answer: Message | Conflict | Absent) -> None:
    async def story(bench: Bench) -> None:
        bench.job_master.answers[OfferSlots] = answer
        await bench.send(allocate())
        await bench.until(lambda: not bench.service.executor.table.state.slots, 0.5)

    run(story)


def test_an_executor_runs_in_an_accepted_slot_and_its_life_is_told(run: Run) -> None:
    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        await bench.until(lambda: len(bench.job_master.asked(ExecutorChanged)) == 1)
        assert bench.job_master.asked(ExecutorChanged)[0].executor.state is ProcessState.RUNNING
        bench.launcher.end(key, 52, detail="java.lang.OutOfMemoryError")
        await bench.until(lambda: len(bench.job_master.asked(ExecutorChanged)) == 2)
        ended = bench.job_master.asked(ExecutorChanged)[1].executor
        assert (ended.state, ended.exit_code) == (ProcessState.EXITED, 52)
        assert "OutOfMemoryError" in ended.detail
        reply = await bench.beat(SLOT)
        assert reply.instance == INFO.instance
        assert reply.executors == (ended,), "what the change told once, each beat tells again"

    run(story)


def test_starting_the_same_executor_again_starts_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.send(start_executor())
        with pytest.raises(Conflict, match="already holds executor 0"):
            await bench.send(start_executor(executor_id="1"))
        assert len(bench.launcher.started) == 1

    run(story)


def test_a_start_is_as_good_as_an_acceptance_that_was_lost(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.job_master.answers[OfferSlots] = UnknownOutcome("the answer was lost")
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.until(lambda: len(bench.launcher.executors()) == 1)
        await bench.keep_beating(SLOT_WAIT * 2, SLOT)
        assert len(bench.launcher.executors()) == 1

    run(story)


def test_an_executor_that_cannot_be_started_is_reported_as_ended(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems.append(Fatal("no space left in /work"))
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.until(lambda: bool(bench.job_master.asked(ExecutorChanged)))
        ended = bench.job_master.asked(ExecutorChanged)[0].executor
        assert (ended.state, ended.exit_code) == (ProcessState.EXITED, None)
        assert "no space left" in ended.detail

    run(story)


def test_an_executor_start_that_may_be_tried_again_is(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 3
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.until(lambda: len(bench.launcher.executors()) == 1, 10.0)
        assert [change.executor.state for change in bench.job_master.asked(ExecutorChanged)] == [ProcessState.RUNNING]

    run(story)


def test_an_executor_start_that_never_succeeds_is_given_up_with_the_reason(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 1000
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.keep_beating(START_WAIT + 2 * INTERVAL, SLOT)
        ended = bench.job_master.asked(ExecutorChanged)[0].executor
        assert (ended.state, ended.exit_code) == (ProcessState.EXITED, None)
        assert ended.detail == "the executor could not be started within 20 s: artefacts are not there yet"

    run(story)


def test_an_executor_that_cannot_be_started_yet_is_not_tried_for_a_slot_that_was_given_back(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 1000
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT))
        await bench.until(lambda: not bench.service.executor.table.state.slots, 4.0)

    run(story)


def test_a_released_slot_is_taken_until_its_executor_has_ended(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.start_seconds = 3.0
        await bench.send(allocate())
        await bench.send(start_executor())
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT))
        assert SLOT in bench.service.executor.table.state.slots, "a process may still come to be in it"
        assert (await bench.beat()).allocations == (), "its JobMaster has given it up"
        await bench.until(lambda: not bench.service.executor.table.state.slots, 4.0)
        assert bench.launcher.executors() == []
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT))

    run(story)


def test_starting_an_executor_in_a_slot_that_is_not_held_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(Absent, match="not held here"):
            await bench.send(start_executor())

    run(story)


def test_a_new_reason_why_no_job_manager_answers_is_logged_once(run: Run) -> None:
    """A task manager that starts before its JobManager cannot connect at first, and only later lacks a certificate."""

    async def story(bench: Bench) -> None:
        reasons = ["connection refused", "no valid certificate of the cluster"]
        with capture_logs() as said:
            for reason in [*reasons, *reasons]:
                bench.job_manager.answers[TaskManagerHeartbeat] = RetryLater(reason)
                asked = len(bench.job_manager.requests)
                await bench.until(lambda asked=asked: len(bench.job_manager.requests) > asked + 1)  # type: ignore[misc]
        assert [line["reason"] for line in said if "does not answer" in line["event"]] == reasons

    run(story)


def test_slots_of_a_silent_job_master_are_freed(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.keep_beating(3 * TIMEOUT, SLOT)
        assert bench.launcher.executors()
        await bench.until(lambda: not bench.service.executor.table.state.slots, TIMEOUT + INTERVAL)
        assert bench.launcher.executors() == []

    run(story)


def test_a_drivers_report_says_how_it_got_its_process(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.start_seconds = 1.0
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.report().drivers), INTERVAL)
        assert (bench.report().drivers[0].start, bench.report().drivers[0].why_cold) == (None, "")
        await bench.until(lambda: bench.report().drivers[0].pid > 0, 2 * INTERVAL)
        told = bench.report().drivers[0]
        assert (told.start, told.why_cold) == (ProcessStart.COLD, "there are no standby processes")

    run(story)


def test_slots_of_a_silent_job_master_stay_while_its_driver_lives_here(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        await asyncio.sleep(4 * TIMEOUT)
        assert bench.launcher.executors()

    run(story)


@pytest.mark.req("LOC-5")
def test_what_is_kept_of_a_job_stays_until_the_job_manager_says_that_it_has_ended(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        assert bench.report().left == ()
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT, stopped=True))
        await bench.until(lambda: bench.report().left == (JOB,), 0.5)
        await asyncio.sleep(600.0)  # a pause of its restart strategy, and the wait for a place
        assert bench.launcher.forgotten == []
        assert bench.report().left == (JOB,)

        await bench.running_executor(AllocationId("a2"))
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(epoch=1, known=True, ended=(JOB,))
        await asyncio.sleep(3 * INTERVAL)
        assert bench.launcher.forgotten == [], "an answer to what was said before it came back"
        assert bench.report().left == ()
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=AllocationId("a2"), stopped=True))
        await bench.until(lambda: bench.launcher.forgotten == [JOB], 2 * INTERVAL)
        assert bench.listener.told[-1] == ("forgotten", JOB, None)
        await bench.until(lambda: bench.report().left == (), 2 * INTERVAL)

    run(story)


def test_what_is_kept_of_a_job_goes_in_the_end_though_it_may_not_have_ended(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate())
        await bench.send(ReleaseSlot(job_id=JOB, attempt=1, allocation_id=SLOT))
        await asyncio.sleep(FORGET_AFTER - TIMEOUT)
        assert bench.launcher.forgotten == []
        await bench.until(lambda: bench.launcher.forgotten == [JOB], 2 * TIMEOUT)

    run(story)


def test_a_slot_that_beats_do_not_name_is_freed_after_the_second_one(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.running_executor()
        await bench.beat()
        assert bench.launcher.executors(), "this beat may have been under way when the slot was accepted"
        await bench.beat()
        await bench.until(lambda: not bench.service.executor.table.state.slots, 0.5)

    run(story)


def test_resources_are_not_given_twice(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate(AllocationId("a1")))
        await bench.send(allocate(AllocationId("a2")))
        with pytest.raises(Conflict, match="all 2 slots are taken"):
            await bench.send(allocate(AllocationId("a3")))
        with pytest.raises(Conflict, match="does not fit in what is free"):
            await bench.send(start_driver(memory_mb=1001))
        await bench.send(start_driver(memory_mb=1000))

    run(story)


# --- drivers ----------------------------------------------------------------------------------------------------------


def test_a_driver_is_started_once_and_its_end_reported_until_acknowledged(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()) and bool(bench.report().drivers), 0.5)
        await bench.until(lambda: bench.driver_report().state is ProcessState.RUNNING, 0.5)
        assert len(bench.launcher.started) == 1
        assert bench.driver_report().memory_mb == 1000
        outcome = AttemptOutcome(exit_code=3, kind=FailureKind.SCRIPT, message="exit code 3")
        bench.launcher.end(DRIVER, 3, outcome)
        await bench.until(lambda: bench.driver_report().state is ProcessState.EXITED, 0.5)
        assert bench.driver_report().outcome == outcome
        await asyncio.sleep(3 * INTERVAL)
        assert bench.driver_report().outcome == outcome
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=1, known=True, acknowledged=(AttemptKey(job_id=JOB, attempt=1),)
        )
        await bench.until(lambda: bench.report().drivers == (), 2 * INTERVAL)
        with pytest.raises(Conflict, match="is over"):
            await bench.send(start_driver())

    run(story)


def test_a_driver_that_left_no_outcome_counts_as_lost(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()))
        bench.launcher.end(DRIVER, -9, detail="Killed")
        outcome = await bench.reported_outcome(0.5)
        assert (outcome.exit_code, outcome.kind) == (-9, FailureKind.LOST)

    run(story)


@pytest.mark.parametrize("problem", [Fatal("app.py is damaged"), InvalidInput("app.py is damaged")])
def test_a_driver_that_cannot_be_started_has_failed_in_setup(run: Run, problem: Fatal | InvalidInput) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems.append(problem)
        await bench.send(start_driver())
        outcome = await bench.reported_outcome(0.5)
        assert outcome.kind is FailureKind.SETUP
        assert "app.py is damaged" in outcome.message
        assert bench.service.executor.table.state.free == INFO.total

    run(story)


def test_a_driver_start_that_may_be_tried_again_is(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 3
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()), START_WAIT)

    run(story)


def test_a_driver_start_that_never_succeeds_is_given_up(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.problems += [RetryLater("artefacts are not there yet")] * 1000
        await bench.send(start_driver())
        outcome = await bench.reported_outcome()
        assert outcome.kind is FailureKind.SETUP
        assert "artefacts are not there yet" in outcome.message

    run(story)


def test_a_driver_is_given_its_grace(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.obeys = False
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()))
        await bench.send(stop_driver(grace=8.0))
        await bench.send(stop_driver(grace=8.0))
        await asyncio.sleep(7.9)
        assert bench.launcher.drivers()
        await bench.until(lambda: bench.driver_report().state is ProcessState.EXITED, 0.5)
        assert bench.launcher.stops == [(DRIVER, 8.0)]

    run(story)


def test_a_shorter_grace_overrules_a_longer_one(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.obeys = False
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()))
        await bench.send(stop_driver(grace=30.0))
        await bench.send(stop_driver(grace=0.0))
        await bench.until(lambda: not bench.launcher.drivers(), 0.5)

    run(story)


def test_a_driver_asked_to_end_while_it_is_being_started_ends_then(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.start_seconds = 5.0
        await bench.send(start_driver())
        await bench.send(stop_driver(grace=1.0))
        await bench.until(lambda: bench.driver_report().state is ProcessState.EXITED, 6.0)
        assert bench.launcher.drivers() == []

    run(story)


def test_executors_beside_their_driver_end_with_it(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        bench.launcher.end(DRIVER, 0, AttemptOutcome(exit_code=0))
        await bench.until(lambda: not bench.launcher.executors(), 0.5)
        await bench.until(lambda: bench.report().allocations == (), 0.5)

    run(story)


# --- fencing ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("HA-7")
def test_a_job_manager_that_was_deposed_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate(epoch=5))
        late: list[Message] = [allocate(AllocationId("a2"), epoch=4), start_driver(epoch=4), stop_driver(epoch=4)]
        for request in late:
            with pytest.raises(Conflict, match="epoch 4 is over"):
                await bench.send(request)

    run(story)


@pytest.mark.req("HA-7")
def test_an_older_attempt_is_refused_everywhere(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(allocate(attempt=2))
        late: list[Message] = [allocate(AllocationId("a2")), start_driver(), start_executor()]
        for request in late:
            with pytest.raises(Conflict, match="superseded by attempt 2"):
                await bench.send(request)
        with pytest.raises(Conflict, match="superseded by attempt 2"):
            await bench.beat(SLOT)

    run(story)


@pytest.mark.req("HA-7")
def test_a_newer_attempt_ends_what_older_ones_hold(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        await bench.send(allocate(AllocationId("a2"), attempt=2))
        await bench.until(lambda: not bench.launcher.alive, 0.5)
        await bench.until(lambda: [slot.id for slot in bench.report().allocations] == ["a2"], 0.5)

    run(story)


@pytest.mark.req("HA-7")
def test_a_start_that_comes_after_its_stop_starts_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(stop_driver())
        with pytest.raises(Conflict, match="is over"):
            await bench.send(start_driver())
        await bench.send(start_driver(attempt=2))

    run(story)


def test_stale_attempts_are_cleaned_up_and_their_files_deleted_later(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=1, known=True, stale=(AttemptKey(job_id=JOB, attempt=1),)
        )
        await bench.until(lambda: not bench.launcher.alive and not bench.report().allocations, 2 * INTERVAL)
        asked = len(bench.job_manager.asked(TaskManagerHeartbeat))
        await bench.until(lambda: len(bench.job_manager.asked(TaskManagerHeartbeat)) > asked + 2, 4 * INTERVAL)
        assert len(bench.report().drivers) == 1, "that its attempt is over does not say that its end is stored"
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=1, known=True, acknowledged=(AttemptKey(job_id=JOB, attempt=1),)
        )
        await bench.until(lambda: bench.report().drivers == (), 2 * INTERVAL)
        assert bench.launcher.forgotten == []
        await bench.until(lambda: bench.launcher.forgotten == [JOB], FORGET_AFTER + TIMEOUT)

    run(story)


# --- the JobManager's absence and refusal -----------------------------------------------------------------------------


@pytest.mark.req("HA-5")
def test_without_a_job_manager_everything_goes_on_and_it_is_told_later(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.running_executor()
        bench.network.detach(JOB_MANAGER)
        await bench.keep_beating(20 * TIMEOUT, SLOT)
        assert len(bench.launcher.alive) == 2
        bench.network.attach(JOB_MANAGER, bench.job_manager)
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(epoch=2, known=False)
        bench.job_manager.answers[RegisterTaskManager] = TaskManagerRegistered(epoch=2, heartbeat_interval=INTERVAL)
        registrations = len(bench.job_manager.asked(RegisterTaskManager))
        await bench.until(lambda: len(bench.job_manager.asked(RegisterTaskManager)) > registrations, 2 * INTERVAL)
        again = bench.job_manager.asked(RegisterTaskManager)[-1].report
        assert len(again.drivers) == len(again.allocations) == 1

    run(story)


def test_answers_of_an_older_job_manager_change_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver(epoch=5))
        await bench.until(lambda: bool(bench.launcher.drivers()))
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(
            epoch=4, known=True, stale=(AttemptKey(job_id=JOB, attempt=1),)
        )
        await asyncio.sleep(5 * TIMEOUT)
        assert bench.launcher.drivers()

    run(story)


def test_reports_are_numbered_and_come_at_each_interval(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await asyncio.sleep(10 * INTERVAL)
        sequences = [request.report.sequence for request in bench.job_manager.asked(TaskManagerHeartbeat)]
        assert sequences == sorted(set(sequences))
        assert 8 <= len(sequences) <= 11

    run(story)


def test_a_lasting_refusal_ends_the_process_with_advice() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        bench = Bench(loop)
        bench.job_manager.answers[RegisterTaskManager] = Conflict("tm-1 is registered from another host")
        async with asyncio.timeout(10 * TIMEOUT):
            with pytest.raises(Fatal, match=r"refuses task manager tm-1.*resource-id"):
                await bench.service.run()
        assert loop.time() > 2 * TIMEOUT, "the other one may just be about to be found lost"

    loop.run_until_complete(main())
    assert loop.end_all() == []
    loop.close()


@pytest.mark.req("SAFE-16")
def test_one_that_is_refused_goes_on_while_anything_works_here(run: Run) -> None:
    """Its JobMasters may know of no other process under this id, whatever a new leader has been told."""

    async def story(bench: Bench) -> None:
        key = await bench.running_executor()
        refusal = Conflict("task manager tm-1 is alive: pid 7 on b is registered under this id")
        bench.job_manager.answers[RegisterTaskManager] = bench.job_manager.answers[TaskManagerHeartbeat] = refusal
        await bench.keep_beating(10 * TIMEOUT, SLOT)
        assert bench.launcher.executors() == [key]
        bench.job_manager.answers[RegisterTaskManager] = TaskManagerRegistered(epoch=2, heartbeat_interval=INTERVAL)
        await bench.until(lambda: bench.service.registered, 2 * INTERVAL)

    run(story)


@pytest.mark.req("SAFE-16")
@pytest.mark.parametrize("elsewhere", [False, True], ids=["the JobManager is restarted", "another one leads"])
def test_one_that_was_refused_lets_the_first_one_register_before_it_at_the_next_job_manager(elsewhere: bool) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        bench = Bench(loop)
        bench.job_manager.answers[RegisterTaskManager] = Conflict("tm-1 is alive")
        running = asyncio.create_task(bench.service.run())
        await asyncio.sleep(TIMEOUT / 2)
        refused = len(bench.job_manager.asked(RegisterTaskManager))
        assert refused
        bench.job_manager.answers[RegisterTaskManager] = RetryLater("is being started")
        if elsewhere:
            bench.network.attach("jm:2", bench.job_manager)
            bench.service.follow("jm:2")
        else:
            await bench.until(lambda: len(bench.job_manager.asked(RegisterTaskManager)) > refused, 2 * INTERVAL)
        bench.job_manager.answers[RegisterTaskManager] = TaskManagerRegistered(epoch=2, heartbeat_interval=INTERVAL)
        since = loop.time()
        await bench.until(lambda: bench.service.registered, 3 * TIMEOUT)
        assert loop.time() - since >= TIMEOUT - INTERVAL
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    loop.run_until_complete(main())
    loop.end_all()
    loop.close()


def test_another_storage_than_the_job_managers_ends_the_process_and_nothing_else() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        bench = Bench(loop)
        refusal = InvalidInput("checkpoints are in /a", field="high-availability.storageDir", hint="give both the same")
        bench.job_manager.answers[RegisterTaskManager] = refusal
        async with asyncio.timeout(TIMEOUT):
            with pytest.raises(Fatal, match=r"refuses this config.*: checkpoints are in /a \(give both the same\)"):
                await bench.service.run()

    loop.run_until_complete(main())
    assert loop.end_all() == []
    loop.close()


def test_a_later_job_manager_with_another_storage_ends_nothing(run: Run) -> None:
    async def story(bench: Bench) -> None:
        await bench.send(start_driver())
        await bench.until(lambda: bool(bench.launcher.drivers()))
        bench.job_manager.answers[TaskManagerHeartbeat] = TaskManagerHeartbeatReply(epoch=2, known=False)
        refusal = InvalidInput("checkpoints are in /a", field="high-availability.storageDir")
        bench.job_manager.answers[RegisterTaskManager] = refusal
        await asyncio.sleep(10 * TIMEOUT)
        assert bench.launcher.drivers()
        bench.job_manager.answers[RegisterTaskManager] = TaskManagerRegistered(epoch=2, heartbeat_interval=INTERVAL)
        await bench.until(lambda: bench.service.registered, 2 * INTERVAL)

    run(story)


def test_what_a_task_manager_does_not_serve_is_refused(run: Run) -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(InvalidInput, match="does not serve"):
            await bench.service.serve(TaskManagerHeartbeatReply(epoch=1, known=True))

    run(story)


# --- shutdown ---------------------------------------------------------------------------------------------------------


def test_an_orderly_shutdown_ends_everything_and_says_so(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.launcher.obeys = False
        await bench.send(start_driver())
        await bench.running_executor()
        closing = asyncio.create_task(bench.service.shutdown(6.0))
        await bench.until(lambda: bench.report().leaving, 0.5)
        with pytest.raises(Conflict, match="shutting down"):
            await bench.send(allocate(AllocationId("a2")))
        await asyncio.sleep(5.0)
        assert len(bench.launcher.alive) == 2, "a driver needs its executors until it has ended"
        await closing
        assert not bench.launcher.alive
        assert bench.report().allocations == ()
        assert bench.driver_report().state is ProcessState.EXITED

    run(story)


def test_a_shutdown_without_a_job_manager_is_bounded(run: Run) -> None:
    async def story(bench: Bench) -> None:
        bench.network.detach(JOB_MANAGER)
        await bench.running_executor()
        began = bench.loop.time()
        await bench.service.shutdown(5.0)
        assert not bench.launcher.alive
        assert bench.loop.time() - began < 5.0

    run(story)
