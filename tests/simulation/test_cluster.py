"""Whole clusters in virtual time: fixed scenarios, then many seeds."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from emberkeep.jobs.model import FailureKind, JobStatus
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob, TaskManagerNode
from tests.support.simulator.machines import Process
from tests.support.simulator.properties import TICK
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, play

BOUND = 60.0  # virtual seconds that any step of a scenario may take


async def wait_for(run: Run, condition: Callable[[], object], what: str) -> None:
    end = run.loop.time() + BOUND
    while not condition():
        if run.loop.time() > end:
            run.cluster.history.violate("scenario", f"not in {BOUND:.0f} s: {what}")
        await asyncio.sleep(TICK)


def drivers(run: Run) -> list[Process]:
    return list(run.cluster.machines.drivers())


def executors(run: Run) -> list[Process]:
    return list(run.cluster.machines.executors())


def status(run: Run, job: SubmittedJob) -> JobStatus | None:
    return None if job.job_id is None else run.properties.shown.get(job.job_id)


def attempt(run: Run, job: SubmittedJob) -> int:
    return 0 if job.job_id is None else run.properties.attempts.get(job.job_id, 0)


async def running(run: Run, job: SubmittedJob, *, number: int, executors: int) -> Process:
    """Wait until attempt ``number`` runs with so many executors; returns its driver."""

    def is_its_driver(process: Process) -> bool:
        return job.job_id is not None and process.key == DriverKey(job_id=job.job_id, attempt=number)

    def as_wanted() -> bool:
        sparks = [spark for spark in run.cluster.sparks.values() if spark.process.alive]
        sparks = [spark for spark in sparks if is_its_driver(spark.process)]
        return (
            status(run, job) is JobStatus.RUNNING
            and attempt(run, job) == number
            and any(len(spark.executors) == executors for spark in sparks)
        )

    await wait_for(run, as_wanted, f"{job.name} runs in attempt {number} with {executors} executors")
    return next(process for process in drivers(run) if is_its_driver(process))


def node_of(run: Run, process: Process) -> TaskManagerNode:
    return next(node for node in run.cluster.nodes if node.id == process.owner)


def passes(story: Callable[[Run], Awaitable[None]], **plan: object) -> Report:
    report = play(ClusterPlan(seed="scenario", **plan), story)  # type: ignore[arg-type]
    assert not report.violations, report.failure()
    return report


STREAM = Script(seconds=None, executors=2)


def test_a_job_runs_to_its_end_and_leaves_nothing() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("batch", Script(seconds=5, executors=2))
        await run.settle()
        assert status(run, job) is JobStatus.FINISHED
        await run.end_everything()

    passes(story)


@pytest.mark.parametrize(
    ("script", "expected", "attempts"),
    [
        (Script(exit_code=3), JobStatus.FAILED, 1),
        (Script(raises=True), JobStatus.FAILED, 1),
        (Script(stops_spark=False), JobStatus.FINISHED, 1),
        (Script(sessions=2), JobStatus.FINISHED, 1),
        (Script(sessions=0), JobStatus.FINISHED, 1),
        (Script(session_after=20.0), JobStatus.FINISHED, 1),
        (Script(lost_attempts=2), JobStatus.FINISHED, 3),
        (Script(mute_attempts=1), JobStatus.FINISHED, 2),
        (Script(setup="retry"), JobStatus.FINISHED, 1),
        (Script(bad_executors=True), JobStatus.FAILED, 1),
    ],
)
def test_what_a_script_does_decides_how_its_job_ends(script: Script, expected: JobStatus, attempts: int) -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("job", script)
        await run.settle()
        assert status(run, job) is expected
        assert attempt(run, job) == attempts
        await run.end_everything()

    passes(story)


def test_a_lost_executor_is_replaced() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        victim = executors(run)[0]
        run.cluster.machines.kill(victim)
        assert await running(run, job, number=1, executors=2) is driver
        ids = {p.key.executor_id for p in executors(run) if isinstance(p.key, ExecutorKey)}
        assert isinstance(victim.key, ExecutorKey)
        assert victim.key.executor_id not in ids
        await run.end_everything()

    passes(story)


@pytest.mark.req("HA-5")
def test_a_killed_driver_gets_a_new_attempt() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        run.cluster.machines.kill(await running(run, job, number=1, executors=2))
        await running(run, job, number=2, executors=2)
        await run.end_everything()

    passes(story)


@pytest.mark.req("HA-5")
def test_a_new_jobmanager_attaches_to_running_jobs_without_touching_them() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        before = executors(run)
        run.cluster.kill_job_manager()
        await asyncio.sleep(40.0)
        run.properties.shown.clear()
        run.cluster.start_job_manager()
        assert await running(run, job, number=1, executors=2) is driver
        assert executors(run) == before
        await run.end_everything()

    passes(story)


@pytest.mark.req("LOC-6")
@pytest.mark.req("LOC-11")
def test_a_job_outlives_its_task_managers_agent_with_all_its_processes() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        node, before = node_of(run, driver), executors(run)
        assert node.agent is not None
        run.cluster.machines.kill(node.agent)
        await asyncio.sleep(50.0)  # longer than every timeout but the one for orphans
        assert [view.info.id for view in run.managers_shown if view.away] == [node.id]
        assert await running(run, job, number=1, executors=2) is driver
        assert executors(run) == before
        run.cluster.start_agent(node)
        await wait_for(run, lambda: not any(view.away for view in run.managers_shown), "it is back")
        await asyncio.sleep(30.0)
        assert (await running(run, job, number=1, executors=2), executors(run)) == (driver, before)
        await run.end_everything()

    passes(story, only_agents=True)


@pytest.mark.req("LOC-11")
def test_executors_are_replaced_elsewhere_when_their_agent_stays_away() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        away = next(p for p in executors(run) if p.owner != driver.owner)
        node = node_of(run, away)
        assert node.agent is not None
        run.cluster.machines.kill(node.agent)
        await wait_for(run, lambda: not away.alive, "Spark has told it to end")
        assert await running(run, job, number=1, executors=2) is driver
        assert all(p.owner != node.id for p in executors(run))
        assert node.id not in [view.info.id for view in run.managers_shown]
        run.cluster.start_agent(node)
        await run.settle()
        await run.end_everything()

    passes(story)


@pytest.mark.req("LOC-11")
def test_an_executor_that_dies_while_its_agent_is_away_is_replaced_elsewhere() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        victim = next(p for p in executors(run) if p.owner != driver.owner)
        node = node_of(run, victim)
        assert node.agent is not None
        run.cluster.machines.kill(node.agent)
        await wait_for(run, lambda: any(view.away for view in run.managers_shown), "it is away")
        run.cluster.machines.kill(victim)
        began = run.loop.time()
        assert await running(run, job, number=1, executors=2) is driver
        assert run.loop.time() - began < 10.0, "without waiting for the agent"
        run.cluster.start_agent(node)
        await run.settle()
        assert len(executors(run)) == 2
        await run.end_everything()

    passes(story)


def _url(run: Run, driver: Process) -> str:
    return next(url for url, spark in run.cluster.sparks.items() if spark.process is driver)


@pytest.mark.req("LOC-5")
@pytest.mark.req("LOC-11")
@pytest.mark.parametrize("seconds", [0.0, 3.0, 12.0])
def test_a_restarted_agent_takes_over_what_its_former_life_left(seconds: float) -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        before, node = executors(run), node_of(run, driver)
        for _ in range(2):
            assert node.agent is not None
            run.cluster.machines.kill(node.agent)
            await asyncio.sleep(seconds)
            run.cluster.start_agent(node)
            await asyncio.sleep(40.0)
            assert (await running(run, job, number=1, executors=2), executors(run)) == (driver, before)
        await run.end_everything()

    passes(story, only_agents=True)


@pytest.mark.req("LOC-5")
def test_executors_that_ended_while_their_agent_was_away_are_started_anew_in_their_slots() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        victim = next(p for p in executors(run) if p.owner != driver.owner)
        node = node_of(run, victim)
        assert node.agent is not None
        run.cluster.machines.kill(node.agent)
        run.cluster.machines.kill(victim)
        run.cluster.start_agent(node)
        assert await running(run, job, number=1, executors=2) is driver
        (new,) = [p for p in executors(run) if p.owner == node.id]
        assert isinstance(new.key, ExecutorKey)
        assert isinstance(victim.key, ExecutorKey)
        assert new.key.allocation_id == victim.key.allocation_id
        assert new.key.executor_id != victim.key.executor_id
        pool = run.cluster.room.drivers[driver.pid].service.master.pool
        assert not pool.state.replacements.failures, "that was no failure of the job's"
        await run.end_everything()

    passes(story)


@pytest.mark.req("LOC-5")
def test_a_node_that_is_started_again_offers_its_old_slots() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        victim = next(p for p in executors(run) if p.owner != driver.owner)
        node = node_of(run, victim)
        run.cluster.machines.crash(node.machine)
        run.cluster.machines.power_on(node.machine)
        run.cluster.start_agent(node)
        assert await running(run, job, number=1, executors=2) is driver
        (new,) = [p for p in executors(run) if p.owner == node.id]
        assert isinstance(new.key, ExecutorKey)
        assert isinstance(victim.key, ExecutorKey)
        assert new.key.allocation_id == victim.key.allocation_id
        await run.end_everything()

    passes(story)


@pytest.mark.req("HA-7")
def test_a_driver_that_was_frozen_and_superseded_ends_itself_when_it_thaws() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        old = await running(run, job, number=1, executors=2)
        agent = node_of(run, old).agent
        assert agent is not None
        old.party.scope.freeze()
        agent.party.scope.freeze()
        await running(run, job, number=2, executors=2)
        assert old.alive
        old.party.scope.thaw()
        await wait_for(run, lambda: not old.alive, "the old attempt ends itself")
        assert agent.frozen
        assert isinstance(old.key, DriverKey)
        assert (old.key.job_id, old.key.attempt) in run.cluster.truth.abandoned
        agent.party.scope.thaw()
        await run.settle()
        assert attempt(run, job) == 2
        await run.end_everything()

    passes(story)


@pytest.mark.req("HA-7")
@pytest.mark.parametrize("seconds", [None, 20.0], ids=["streams on", "finishes as it thaws"])
@pytest.mark.parametrize("agent_thaws", [False, True], ids=["its agent stays frozen", "its agent thaws first"])
def test_everything_that_a_superseded_driver_sends_is_refused(seconds: float | None, agent_thaws: bool) -> None:
    """Frozen until its successor runs, then thawed: what was due meanwhile (heartbeats, its outcome, beats to task
    managers) goes out at once, and nobody takes any of it."""

    async def story(run: Run) -> None:
        job = run.cluster.submit("job", Script(seconds=seconds, executors=2))
        old = await running(run, job, number=1, executors=2)
        agent = node_of(run, old).agent
        assert agent is not None
        if seconds is not None:
            await asyncio.sleep(seconds * 0.6)  # what is left of it passes while it is frozen
        old.party.scope.freeze()
        agent.party.scope.freeze()
        new = await running(run, job, number=2, executors=2)
        served: list[tuple[str, str]] = []
        run.cluster.network.on_served.append(
            lambda source, operation, _, error: served.append((operation, error)) if source is old.party else None
        )
        if agent_thaws:
            agent.party.scope.thaw()
            await wait_for(run, lambda: not old.alive, "its task manager ends it")
        old.party.scope.thaw()
        await wait_for(run, lambda: not old.alive, "the old attempt ends itself")
        assert set(served) <= {
            ("JobMasterHeartbeat", "Conflict"),
            ("RegisterJobMaster", "Conflict"),
            ("ReportOutcome", "Conflict"),
            ("JobMasterBeat", "Conflict"),
            ("ReleaseSlot", ""),  # what was given back before is given back
        }
        assert served or agent_thaws
        assert new.alive
        agent.party.scope.thaw()
        await run.settle()
        assert attempt(run, job) == 2
        await run.end_everything()
        assert job.job_id is not None
        records = run.properties.results[job.job_id].attempts
        assert [record.attempt for record in records] == [1, 2]
        assert records[0].outcome is not None
        assert records[0].outcome.kind is FailureKind.LOST

    passes(story)


@pytest.mark.req("HA-7")
def test_an_old_attempts_success_after_it_was_superseded_counts_for_nothing() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("batch", Script(seconds=45.0))
        old = await running(run, job, number=1, executors=1)
        run.cluster.network.cut(old.machine.name, run.cluster.jm_machine.name)
        await wait_for(run, lambda: attempt(run, job) == 2, "the second attempt")
        await wait_for(run, lambda: run.cluster.truth.outcomes, "the old attempt's end")
        run.cluster.network.heal()
        await run.settle()
        result = run.properties.results[job.job_id or ""]  # type: ignore[index]
        assert result.status is JobStatus.FINISHED
        assert len(result.attempts) == 2
        await run.end_everything()

    passes(story)


def test_a_node_that_loses_power_costs_an_attempt_and_nothing_else() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        node = node_of(run, driver)
        run.cluster.machines.crash(node.machine)
        await running(run, job, number=2, executors=2)
        run.cluster.machines.power_on(node.machine)
        run.cluster.start_agent(node)
        await run.end_everything()

    passes(story)


def test_a_script_that_ignores_sigterm_is_killed_after_its_grace() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stubborn", Script(seconds=None, ignores_sigterm=True))
        driver = await running(run, job, number=1, executors=1)
        run.cluster.cancel(job)
        await wait_for(run, lambda: status(run, job) is JobStatus.CANCELED, "CANCELED")
        assert driver.exit_code == -9
        await run.end_everything()

    passes(story)


def test_thirty_submissions_at_once_on_a_small_cluster_all_end() -> None:
    async def story(run: Run) -> None:
        for number in range(30):
            run.cluster.submit(f"job-{number}", Script(seconds=2.0, executors=2))
        await run.settle()
        assert Counter(run.properties.shown.values()) == {JobStatus.FINISHED: 30}
        await run.end_everything()

    passes(story, task_managers=2, slots=2, driver_places=3)


def test_a_driver_that_dies_while_the_jobmanager_is_away_is_restarted_by_the_next_one() -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", STREAM)
        driver = await running(run, job, number=1, executors=2)
        run.cluster.kill_job_manager()
        run.cluster.machines.kill(driver)
        run.cluster.start_job_manager()
        await running(run, job, number=2, executors=2)
        await run.end_everything()

    passes(story)


@pytest.mark.parametrize("way", ["to the JobManager", "from the JobManager", "between the nodes"])
def test_a_gap_shorter_than_the_heartbeat_timeout_costs_nothing(way: str) -> None:
    async def story(run: Run) -> None:
        job = run.cluster.submit("stream", Script(seconds=None, executors=3))
        driver = await running(run, job, number=1, executors=3)
        before = executors(run)
        jm, network = run.cluster.jm_machine.name, run.cluster.network
        names = [node.machine.name for node in run.cluster.nodes]
        pairs = {
            "to the JobManager": [(name, jm) for name in names],
            "from the JobManager": [(jm, name) for name in names],
            "between the nodes": [(one, other) for one in names for other in names if one != other],
        }[way]
        for pair in pairs:
            network.cut(*pair)
        await asyncio.sleep(2.0)  # one or two heartbeats of everybody are lost
        network.heal()
        await asyncio.sleep(20.0)
        assert executors(run) == before
        assert drivers(run) == [driver]
        await run.end_everything()

    passes(story)
