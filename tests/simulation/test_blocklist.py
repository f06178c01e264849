"""Nodes that are blocked, evacuated and given back, in a cluster of real actors on virtual time."""

from collections import Counter

import pytest

from emberkeep.blocklist.claims import claim_prefix
from emberkeep.blocklist.model import BlockAction, BlockedNode, EvacuatedDrivers
from emberkeep.jobs.model import FailureKind, JobStatus
from tests.campaign import keep, seeds, seldom
from tests.simulation.test_cluster import STREAM, executors, passes, running, status, wait_for
from tests.support.simulator.machines import Process
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run, simulate, simulate_many

SEEDS = seeds(10, theme="block", times=10)
MARK, EVACUATE = BlockAction.MARK_BLOCKED, BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS

# What a batch must have met; otherwise it has shown nothing about it.
SOMETIMES = {
    "node blocked": len(SEEDS),
    "fault: kill jobmanager": len(SEEDS) // 4,
    "executor replaced": len(SEEDS) // 4,
    "executor decommissioned": max(1, len(SEEDS) // 8),
    "driver left": max(1, len(SEEDS) // 16),
}


async def blocked(
    run: Run, node: str, action: BlockAction, seconds: float | None = None, drivers: EvacuatedDrivers | None = None
) -> None:
    """Block, and wait for the acknowledgement."""
    run.cluster.blocklist.block(node, action, seconds, drivers or EvacuatedDrivers.WAIT)
    await wait_for(run, lambda: node in run.cluster.blocklist.promises, f"{node} is blocked")


def cordoned(run: Run, driver: Process) -> set[Process]:
    """Executors of a driver that take no new task."""
    spark = run.cluster.room.drivers[driver.pid].spark
    return {spark.executors[key] for key in spark.cordoned}


def tm_of(process: Process) -> str:
    return process.owner


def on_node(run: Run, number: int) -> list[Process]:
    return [process for process in executors(run) if process.owner == f"tm-{number}"]


@pytest.mark.req("BLK-2")
@pytest.mark.req("BLK-9")
def test_on_a_blocked_node_executors_stay_and_take_no_new_tasks_once_others_are_there() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", Script(seconds=None, executors=3))
        driver = await running(run, job, number=1, executors=3)
        before = set(executors(run))
        assert Counter(map(tm_of, before)) == {"tm-1": 1, "tm-2": 1, "tm-3": 1}
        number = next(n for n in (1, 2, 3) if f"tm-{n}" != driver.owner)
        await blocked(run, f"node-{number}", MARK)
        (victim,) = on_node(run, number)
        await wait_for(run, lambda: cordoned(run, driver) == {victim}, "it takes no new task")
        await run.settle()
        assert set(executors(run)) > before, "what runs stays, and another one is there for it"
        assert len(executors(run)) == 4

        run.cluster.machines.kill(victim)
        await wait_for(run, lambda: len(executors(run)) == 3, "it is gone")
        await run.settle()
        assert len(executors(run)) == 3, "it had been replaced before"
        assert not on_node(run, number), "but not there"
        late = run.cluster.submit("late", STREAM)
        await running(run, late, number=1, executors=2)
        assert not on_node(run, number)

        run.cluster.blocklist.unblock(f"node-{number}")
        await running(run, run.cluster.submit("later", STREAM), number=1, executors=2)
        assert on_node(run, number), "given back, it is used"
        assert await running(run, job, number=1, executors=3) is driver
        await run.end_everything()

    passes(story, task_managers=3, slots=3)


@pytest.mark.req("BLK-2")
@pytest.mark.req("BLK-8")
def test_an_evacuated_node_loses_its_executors_at_once_and_nothing_has_failed() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", Script(seconds=None, executors=4))
        driver = await running(run, job, number=1, executors=4)
        number = next(n for n in (1, 2) if f"tm-{n}" != driver.owner)
        assert len(on_node(run, number)) == 2
        began = run.loop.time()
        await blocked(run, f"node-{number}", EVACUATE)
        await wait_for(run, lambda: not on_node(run, number), "its executors are gone")
        assert await running(run, job, number=1, executors=4) is driver
        # A beat of the JobMaster, the slots, and the start of two executors; no pause and no time-out is in it.
        assert run.loop.time() - began < 12.0
        pool = run.cluster.room.drivers[driver.pid].service.master.pool
        assert not pool.state.replacements.failures
        assert not pool.state.replacements.ends
        await run.end_everything()

    # Two executors leave: as failures they would fail the attempt.
    passes(story, task_managers=2, slots=4, cores=8, options={"executor.max-failures": "1"})


@pytest.mark.req("BLK-18")
def test_executors_leave_when_others_are_there_and_drivers_move_and_nothing_has_failed() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", Script(seconds=None, executors=2))
        driver = await running(run, job, number=1, executors=2)
        number = next(n for n in (1, 2) if f"tm-{n}" != driver.owner)
        other = next(n for n in (1, 2) if n != number)
        stayed, left = on_node(run, other), on_node(run, number)
        assert (len(stayed), len(left)) == (1, 1)
        began = run.loop.time()
        await blocked(run, f"node-{number}", EVACUATE)
        await wait_for(run, lambda: len(on_node(run, other)) == 2, "a replacement is there")
        await wait_for(run, lambda: not on_node(run, number), "what leaves has left, or was ended in time")
        assert run.loop.time() - began < 330.0
        assert await running(run, job, number=1, executors=2) is driver

        await blocked(run, f"node-{other}", EVACUATE)
        await wait_for(run, lambda: not driver.alive, "the driver leaves")
        assert job.job_id is not None
        key = job.job_id
        await wait_for(run, lambda: "blocked nodes" in run.properties.waiting.get(key, ""), "it says what it waits for")
        run.cluster.blocklist.unblock(f"node-{number}")
        again = await running(run, job, number=2, executors=2)
        assert again.owner == f"tm-{number}"
        assert run.cluster.jm_service is not None
        view = await run.cluster.jm_service.gateway.job(key)
        assert [record.outcome.kind for record in view.attempts if record.outcome] == [FailureKind.MOVED]
        await run.end_everything()

    passes(story, task_managers=2, slots=4, cores=8, options={"restart-strategy.type": "none"})


@pytest.mark.req("BLK-4")
def test_a_block_times_out_and_the_node_is_used_again() -> None:
    async def story(run: Run) -> None:
        for node in ("node-1", "node-2"):
            await blocked(run, node, MARK, seconds=30.0)
        job = run.cluster.submit("batch", Script(seconds=1, executors=1))
        await wait_for(
            run,
            lambda: job.job_id is not None and "blocked nodes" in run.properties.waiting.get(job.job_id, ""),
            "it says what it waits for",
        )
        assert run.loop.time() < 30.0
        await wait_for(run, lambda: status(run, job) is JobStatus.FINISHED, "after the time-out it runs")
        assert run.loop.time() > 30.0
        await run.end_everything()

    passes(story, task_managers=2)


@pytest.mark.req("BLK-17")
def test_a_block_outlives_the_job_manager() -> None:
    async def story(run: Run) -> None:
        await blocked(run, "node-2", MARK)
        await blocked(run, "node-3", EVACUATE)
        run.cluster.kill_job_manager()
        run.cluster.start_job_manager()
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        assert {process.owner for process in (driver, *executors(run))} == {"tm-1"}
        for node in ("node-2", "node-3"):
            run.cluster.blocklist.unblock(node)
        await run.end_everything()

    passes(story, task_managers=3)


@pytest.mark.req("BLK-6")
@pytest.mark.req("BLK-7")
def test_what_one_job_reports_all_jobs_hear() -> None:
    async def story(run: Run) -> None:
        jobs = [run.cluster.submit(f"stream {n}", STREAM) for n in range(2)]
        drivers = [await running(run, job, number=1, executors=2) for job in jobs]
        masters = [run.cluster.room.drivers[driver.pid].service.master for driver in drivers]
        host = next(slot.task_manager for slot in masters[0].pool.state.held.values())
        now = run.cluster.client.machine.clock.now_ms()
        assert jobs[0].job_id is not None
        entry = BlockedNode(
            id=host.node_id,
            action=MARK,
            start_ms=now,
            end_ms=now + 600_000,
            causes=(f"{claim_prefix(jobs[0].job_id)}its tasks fail here",),
        )
        await run.settle()  # the task managers have reported their slots
        masters[0].report_blocked(entry)
        place = (host.id, host.node_id)
        await wait_for(
            run, lambda: all(m.pool.state.places.blocked.is_blocked(*place) for m in masters), "both know it"
        )
        assert run.cluster.jm_service is not None
        assert (await run.cluster.jm_service.gateway.blocklist()).entries == (entry,)
        for job, driver in zip(jobs, drivers, strict=True):
            assert await running(run, job, number=1, executors=2) is driver
        await wait_for(run, lambda: not masters[0]._blocklist.reports, "the report is answered")

        late = run.cluster.submit("late", STREAM)
        newest = await running(run, late, number=1, executors=2)
        master = run.cluster.room.drivers[newest.pid].service.master
        assert master.pool.state.places.blocked.is_blocked(*place), "who registers later gets the whole list"

        await run.cluster.jm_service.gateway.unblock(entry.place)
        await wait_for(
            run, lambda: not any(m.pool.state.places.blocked.is_blocked(*place) for m in masters), "both know it"
        )
        await run.settle()
        assert (await run.cluster.jm_service.gateway.blocklist()).entries == (), "nobody brings it back"
        await run.end_everything()

    settings = {"blocklist.report-excluded-nodes": "true", "blocklist.detection.max-share": "0.4"}
    passes(story, task_managers=3, slots=3, options=settings)


@pytest.mark.req("BLK-18")
def test_an_executor_that_hangs_as_it_is_to_leave_does_not_keep_its_slot() -> None:
    """Found by a campaign: a job waited for a slot that an executor held which a block had replaced."""
    report = simulate("block-7771027")
    assert not report.violations, report.failure()


@pytest.mark.campaign
@pytest.mark.req("BLK-9")
@pytest.mark.req("BLK-17")
def test_nothing_is_given_on_blocked_nodes_whatever_fails() -> None:
    batch = simulate_many([f"block-{number}" for number in SEEDS], stop_after=3)
    for report in batch.failures:
        keep(int(report.seed.partition("-")[2]), theme="block")
    assert not batch.failures, "\n\n".join(report.failure() for report in batch.failures)
    assert not seldom(batch.counts, SOMETIMES)
