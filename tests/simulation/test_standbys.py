"""Standby processes that are killed, frozen and poisoned, in whole clusters on virtual time: they cost cold starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from emberkeep.daemons.taskmanager import standbys as product
from emberkeep.jobs.model import JobStatus
from emberkeep.slots.standbys.back_off import FIRST_PAUSE
from emberkeep.slots.standbys.events import StandbyKind
from emberkeep.slots.standbys.members import StandbyState
from emberkeep.taskmanager.ports import DriverKey
from tests.campaign import keep, seeds, seldom
from tests.simulation.planted_standby_worlds import permanent_stop
from tests.simulation.test_cluster import attempt, drivers, executors, passes, running, status, wait_for
from tests.support.simulator import standbys
from tests.support.simulator.cluster import SubmittedJob
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, simulate, simulate_many
from tests.support.simulator.standby_faults import OTHER_RELEASE
from tests.support.simulator.standbys import STALLS, SimStandby, Stage

DRIVER, EXECUTOR = StandbyKind.DRIVER, StandbyKind.EXECUTOR
STREAM = Script(seconds=None, executors=1)
USUAL = {"standbys": 25, "poisoned": 15, "reserved": 15}
SEEDS = {theme: seeds(usual, theme=theme, times=2) for theme, usual in USUAL.items()}

# What a batch must have met; otherwise it has shown nothing about it.
SOMETIMES = {
    "standbys": {
        "driver started hot": 20,
        "executor started hot": 20,
        "driver started cold after a failed take": 10,
        "executor started cold after a failed take": 8,
        "standby dies": 5,
        "standby hangs": 5,
        "standby runs out of memory": 5,
        "standby speaks nonsense": 5,
        "standby stalls": 5,
        "fault: kill standby": 20,
        "fault: freeze standby": 20,
        "fault: starve standbys": 5,
        "fault: change release": 5,
        "fault: leave agent": 20,
        "fault: kill agent": 20,
        "driver adopted": 20,
    },
    "poisoned": {
        "driver started hot": 3,
        "driver started cold after a failed take": 8,
        "executor started cold after a failed take": 8,
        "fault: kill standby": 10,
        "fault: freeze standby": 10,
    },
    "reserved": {
        "reserved standby began": 8,
        "reserved standby dies of an import": 2,
        "reserved standby hangs in an import": 2,
        "driver started hot": 20,
    },
}

alone = partial(passes, task_managers=1, standby_drivers=1, standby_executors=1)


def waiting(run: Run, kind: StandbyKind) -> list[SimStandby]:
    return [each for each in run.cluster.room.standbys.waiting() if each.profile.kind is kind]


def ready(run: Run, kind: StandbyKind) -> list[str]:
    """The standby processes that jobs can take, as their task managers know them."""
    pools = [node.launcher.pool for node in run.cluster.nodes if node.launcher is not None]
    members = [each for pool in pools for each in pool.standbys() if each.state is StandbyState.READY]
    return [each.standby_id for each in members if each.profile.kind is kind]


async def complete(run: Run, count: int = 1) -> None:
    def is_complete() -> bool:
        return len(ready(run, DRIVER)) == len(ready(run, EXECUTOR)) == count

    await wait_for(run, is_complete, f"{count} standby processes of each kind are ready")


async def begun(run: Run, job: SubmittedJob) -> None:
    """The first attempt of a job of one executor runs."""
    await running(run, job, number=1, executors=1)


# --- taken ------------------------------------------------------------------------------------------------------------


def test_a_job_takes_both_and_the_pool_is_filled_again() -> None:
    async def story(run: Run) -> None:
        await complete(run)
        both = [each.process for kind in (DRIVER, EXECUTOR) for each in waiting(run, kind)]
        job = run.cluster.submit("stream", STREAM)
        await begun(run, job)
        assert [*drivers(run), *executors(run)] == both
        await complete(run)
        await run.end_everything()

    counts = alone(story).counts
    assert (counts["driver started hot"], counts["executor started hot"]) == (1, 1)


def test_of_two_jobs_at_once_one_takes_the_driver() -> None:
    async def story(run: Run) -> None:
        await complete(run)
        for job in [run.cluster.submit(f"stream-{number}", STREAM) for number in range(2)]:
            await begun(run, job)
        await run.end_everything()

    counts = alone(story).counts
    assert counts["driver started hot"] == counts["executor started hot"] == 1


def test_memory_that_slots_need_is_given_back_and_used_again_later() -> None:
    async def story(run: Run) -> None:
        await complete(run)
        job = run.cluster.submit("stream", Script(seconds=None, executors=3, memory_mb=2048))
        await running(run, job, number=1, executors=3)
        await wait_for(run, lambda: not waiting(run, EXECUTOR), "it has ended")
        await asyncio.sleep(40.0)
        assert not waiting(run, EXECUTOR), "there is no room for it"
        run.cluster.cancel(job)
        await complete(run)
        await run.end_everything()

    alone(story, memory_mb=7200)


# --- failing while they are taken -------------------------------------------------------------------------------------


def cold_in_the_same_attempt(spoil: Callable[[SimStandby], None], kind: StandbyKind) -> Report:
    """A standby process is spoiled, and the job that takes it starts cold, without a lost attempt or executor."""

    async def story(run: Run) -> None:
        await complete(run)
        (standby,) = waiting(run, kind)
        spoil(standby)
        job = run.cluster.submit("stream", STREAM)
        await begun(run, job)
        assert not standby.process.alive
        assert standby.process not in (*drivers(run), *executors(run))
        await run.end_everything()
        assert attempt(run, job) == 1

    report = alone(story, only_standbys=True)
    assert report.counts[f"{kind.value} started cold after a failed take"] == 1
    assert report.counts["executor replaced"] == 0
    return report


@pytest.mark.parametrize("kind", [DRIVER, EXECUTOR])
@pytest.mark.parametrize("fate", ["dies", "runs out of memory", "speaks nonsense", "hangs"])
def test_a_process_that_fails_while_it_is_taken_costs_a_cold_start(
    fate: str, kind: StandbyKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standbys, "HANG", (6.0, 6.0))  # it would answer, too late

    def spoil(standby: SimStandby) -> None:
        standby.fate = fate

    cold_in_the_same_attempt(spoil, kind)


@pytest.mark.parametrize("kind", [DRIVER, EXECUTOR])
def test_a_frozen_process_that_wakes_up_too_late_costs_a_cold_start(kind: StandbyKind) -> None:
    def spoil(standby: SimStandby) -> None:
        scope = standby.process.party.scope
        scope.freeze()
        standby.room.machines.loop.call_later(25.0, scope.thaw)

    cold_in_the_same_attempt(spoil, kind)


def test_a_process_that_hangs_for_a_moment_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standbys, "HANG", (3.0, 3.0))

    async def story(run: Run) -> None:
        await complete(run)
        waiting(run, DRIVER)[0].fate = "hangs"
        await begun(run, run.cluster.submit("stream", STREAM))
        await run.end_everything()

    assert alone(story).counts["driver started hot"] == 1


def test_a_job_that_is_cancelled_while_it_takes_a_process_that_hangs_leaves_nothing() -> None:
    async def story(run: Run) -> None:
        await complete(run)
        (standby,) = waiting(run, DRIVER)
        standby.process.party.scope.freeze()
        job = run.cluster.submit("batch", Script(seconds=5.0))
        await wait_for(run, lambda: standby.process.claim, "it is taken")
        run.cluster.cancel(job)
        await run.end_everything()
        assert status(run, job) is JobStatus.CANCELED
        assert not run.properties.drivers_started

    alone(story)


def test_a_process_that_wakes_up_after_its_attempt_was_superseded_ends_itself() -> None:
    """Its task manager has started it, and stands still for longer than it, so that nobody else can end it."""

    async def story(run: Run) -> None:
        await complete(run, count=2)
        for standby in waiting(run, DRIVER):
            standby.fate = STALLS
        job = run.cluster.submit("stream", STREAM)
        await wait_for(
            run, lambda: any(each.stage is Stage.ANSWERED for each in waiting(run, DRIVER)), "one has stalled"
        )
        (stalled,) = [each for each in waiting(run, DRIVER) if each.stage is Stage.ANSWERED]
        node = next(node for node in run.cluster.nodes if node.id == stalled.process.owner)
        assert node.agent is not None
        node.agent.party.scope.freeze()
        for standby in waiting(run, DRIVER):
            standby.fate = ""
        await running(run, job, number=2, executors=1)
        assert stalled.process.alive
        await wait_for(run, lambda: not stalled.process.alive, "it has woken up and ended")
        assert stalled.stage is Stage.BEGUN
        assert stalled.process.key == DriverKey(job_id=job.job_id or "", attempt=1)  # type: ignore[arg-type]
        assert [number for _, number, _, _ in run.cluster.truth.script_starts] == [2]
        node.agent.party.scope.thaw()
        await run.settle()
        assert attempt(run, job) == 2
        await run.end_everything()

    counts = passes(story, task_managers=2, standby_drivers=1, standby_executors=1).counts
    assert counts["attempt abandoned"] == 1


# --- failing while they wait or warm up -------------------------------------------------------------------------------


def test_a_killed_process_is_replaced_after_a_pause() -> None:
    async def story(run: Run) -> None:
        await complete(run)
        run.cluster.machines.kill(waiting(run, DRIVER)[0].process)
        job = run.cluster.submit("batch", Script(seconds=1.0))
        await asyncio.sleep(FIRST_PAUSE - 1.0)
        assert not waiting(run, DRIVER)
        await complete(run)
        await run.end_everything()
        assert attempt(run, job) == 1

    assert alone(story).counts["driver started hot"] == 0


@pytest.mark.parametrize("what", ["another release", "no memory"])
def test_processes_that_cannot_be_warmed_are_tried_less_and_less_often(what: str) -> None:
    async def story(run: Run) -> None:
        room, (node,) = run.cluster.room.standbys, run.cluster.nodes
        if what == "another release":
            room.releases[node.machine.name] = OTHER_RELEASE
        else:
            room.starved.add(node.machine.name)
        job = run.cluster.submit("batch", Script(seconds=1.0))
        await asyncio.sleep(8 * FIRST_PAUSE)
        assert not ready(run, DRIVER)
        assert not ready(run, EXECUTOR)
        assert len(room.standbys) <= 10
        assert status(run, job) is JobStatus.FINISHED
        room.releases.clear()
        room.starved.clear()
        await asyncio.sleep(8 * FIRST_PAUSE)
        await complete(run)
        await run.end_everything()
        assert attempt(run, job) == 1

    alone(story)


def test_a_warm_up_that_hangs_ends_and_keeps_no_job_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "WARMING_SECONDS", 30.0)

    async def story(run: Run) -> None:
        await wait_for(run, lambda: waiting(run, DRIVER), "it warms up")
        (standby,) = waiting(run, DRIVER)
        standby.process.party.scope.freeze()
        await begun(run, run.cluster.submit("stream", STREAM))
        await wait_for(run, lambda: not standby.process.alive, "it was ended")
        await complete(run)
        await run.end_everything()

    alone(story)


# --- the task manager ends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "ended in order"])
def test_the_next_task_manager_process_has_what_was_taken_and_a_pool_of_its_own(how: str) -> None:
    async def story(run: Run) -> None:
        await complete(run)
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=1)
        before = executors(run)
        await complete(run)
        left = [each.process for each in run.cluster.room.standbys.waiting()]
        (node,) = run.cluster.nodes
        assert node.agent is not None
        if how == "killed":
            run.cluster.machines.kill(node.agent)
        else:
            run.cluster.leave_agent(node)
        await wait_for(run, lambda: node.agent is not None and not node.agent.alive, "it has ended")
        assert not [each for each in left if each.alive]
        run.cluster.start_agent(node)
        await complete(run)
        assert len(run.cluster.room.standbys.waiting()) == 2
        assert (await running(run, job, number=1, executors=1), executors(run)) == (driver, before)
        await run.end_everything()

    counts = alone(story, only_agents=True).counts
    assert counts["driver adopted"] == counts["executor adopted"] == 1


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 1.0])
def test_a_task_manager_that_dies_during_a_take_leaves_no_second_driver(seconds: float) -> None:
    async def story(run: Run) -> None:
        await complete(run)
        (standby,) = waiting(run, DRIVER)
        standby.process.party.scope.freeze()
        job = run.cluster.submit("stream", STREAM)
        await wait_for(run, lambda: standby.process.claim, "it is taken")
        await asyncio.sleep(seconds)
        (node,) = run.cluster.nodes
        assert node.agent is not None
        run.cluster.machines.kill(node.agent)
        standby.process.party.scope.thaw()
        run.cluster.start_agent(node)
        await run.settle()
        assert status(run, job) is JobStatus.RUNNING
        await run.end_everything()

    alone(story)


@pytest.mark.parametrize("seconds", [2.0, 16.0, 25.0])
def test_nothing_is_left_after_the_permanent_stop_of_a_task_manager(seconds: float) -> None:
    assert permanent_stop("scenario", seconds).violations == ()


# --- many seeds -------------------------------------------------------------------------------------------------------


@pytest.mark.campaign
@pytest.mark.parametrize("theme", SEEDS)
def test_many_seeds(theme: str) -> None:
    def keep_failing(report: Report) -> None:
        if report.violations:
            keep(int(report.seed.rpartition("-")[2]), theme=theme)

    batch = simulate_many([f"{theme}-{seed}" for seed in SEEDS[theme]], stop_after=3, on_report=keep_failing)
    assert not batch.failures, "\n\n".join(report.failure() for report in batch.failures)
    assert not seldom(batch.counts, SOMETIMES[theme])


def test_the_same_seed_gives_the_same_history() -> None:
    assert simulate("standbys-3").digest == simulate("standbys-3").digest
