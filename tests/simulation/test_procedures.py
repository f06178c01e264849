"""A stream is asked for a savepoint, and to stop, while the leader dies between any two steps of what it does, and
while drivers and the store fail: what was acknowledged is done once, and nothing is started again after a stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

import msgspec
import pytest

from emberkeep.base.ids import JobId
from emberkeep.blocklist.model import BlockAction, EvacuatedDrivers
from emberkeep.jobs.model import JobResult, JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from tests.campaign import seeds, seldom
from tests.simulation.test_crash_points import Death, check_handles, points, runs, wait_for
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, play

STEPS_AT_LEAST = {  # what an undisturbed run must go through, or the enumeration has become blind
    "receives ask",
    "has answered ask",
    "store, before result FINISHED of stream",
    "store, after result FINISHED of stream",
}
STORED_AT_LEAST = {"store, before procedure", "store, after procedure", "store, before end", "store, after end"}


TROUBLED = seeds(13, theme="procedures")
MET = (  # or the seeds say nothing
    "asked for a SUSPEND: done",
    "asked for a DRAIN: done",
    "asked for a SAVEPOINT: done",
    "store outcome unknown",
    "written again by another attempt",
    "stopped, then lost",
)


def ended(run: Run, job: SubmittedJob) -> JobResult | None:
    """The result as it is stored, with its savepoints."""
    found = run.cluster.store.disk.results.get(job.job_id) if job.job_id is not None else None
    return None if found is None else msgspec.json.decode(found, type=JobResult)


def savepoints(run: Run, job: SubmittedJob) -> list[str]:
    """Trigger ids of those that are recorded while the job has a handle."""
    handle = run.cluster.store.disk.jobs.get(job.job_id) if job.job_id is not None else None
    if handle is None or not handle.pointers:
        return []
    pointers = msgspec.json.decode(handle.pointers)
    return [savepoint["trigger_id"] for savepoint in pointers.get("savepoints", [])]


def check_stopped(run: Run, job: SubmittedJob, triggers: list[str]) -> None:
    """It is FINISHED with just these savepoints, each written by a driver."""
    result, violate = ended(run, job), run.cluster.history.violate
    if result is None or result.status is not JobStatus.FINISHED:
        violate("scenario", f"{job.name} has ended as {result}, not FINISHED")
        return
    if [savepoint.trigger_id for savepoint in result.savepoints] != triggers:
        violate("scenario", f"{job.name} has {result.savepoints}, asked for were {triggers}")
    missing = [trigger for trigger in triggers if not run.cluster.truth.savepoints[trigger]]
    if missing:
        violate("scenario", f"{job.name}: nobody has written {missing}")


async def asked(run: Run, job: SubmittedJob, procedure: Procedure) -> ProcedureRequest:
    """Ask, and again while the job is said to be busy: a leader knows a little later than the store that what went
    before is over."""
    for _ in range(60):
        request = run.cluster.ask(job, procedure)
        await wait_for(run, lambda: job.ask_answer, "the request is answered")
        if "is busy" not in job.ask_answer:
            return request
        await wait_seconds(run, 1.0)
    raise AssertionError(f"{job.name} stays busy: {job.ask_answer}")


def lived(death: Death) -> Report:
    """A stream runs, a savepoint is made of it, then it is stopped. Nothing but the leader dies."""

    async def story(run: Run) -> None:
        death.watch(run)
        cluster = run.cluster
        stream = cluster.submit("stream", Script(seconds=None))
        await wait_for(run, lambda: runs(run, stream), "the stream runs")
        first = cluster.ask(stream, Procedure.SAVEPOINT)
        await wait_for(run, lambda: savepoints(run, stream) == [first.trigger_id], "there is a savepoint")
        await wait_for(run, lambda: cluster.store.disk.jobs[stream.job_id].procedure is None, "it is over")  # type: ignore[index]
        second = await asked(run, stream, Procedure.DRAIN)
        await wait_for(run, lambda: ended(run, stream), "the stream has ended")
        await run.settle()
        check_stopped(run, stream, [first.trigger_id, second.trigger_id])
        if len(cluster.truth.script_starts) != 1:
            cluster.history.violate("scenario", f"the script ran {len(cluster.truth.script_starts)} times")
        if stream.job_id not in cluster.truth.released:
            cluster.history.violate("scenario", "the script has not gone on after its await")
        if any(cluster.truth.savepoints[each.trigger_id] != 1 for each in (first, second)):
            cluster.history.violate("scenario", "a savepoint was written more than once, and no driver was lost")
        await run.end_everything()
        check_handles(run)

    return play(ClusterPlan(seed="procedures", task_managers=2), story)


def steps() -> list[str]:
    death = Death()
    report = lived(death)
    assert not report.violations, report.failure()
    assert set(death.steps) >= STEPS_AT_LEAST, STEPS_AT_LEAST - set(death.steps)
    stored = {" ".join(step.split(" ")[:3]) for step in death.steps}
    assert stored >= STORED_AT_LEAST, STORED_AT_LEAST - stored
    return death.steps


@pytest.mark.req("END-5")
@pytest.mark.req("HA-5")
def test_a_leader_killed_at_any_step_of_a_savepoint_and_a_stop_loses_and_repeats_nothing() -> None:
    chosen = points(steps())
    failures = []
    for at in chosen:
        report = lived(Death(at))
        if report.violations:
            failures.append(f"{at}: {report.failure()}")
    assert not failures, f"{len(failures)} of {len(chosen)} crash points\n" + failures[0]


def troubled(number: int) -> Report:
    """Drivers and leaders die, the store is slow, refuses and does not answer, while streams are asked to stop."""

    async def story(run: Run) -> None:
        cluster = run.cluster
        cluster.store.trouble = 0.3
        streams = [
            cluster.submit(f"stream {each}", Script(seconds=None, savepoints_fail=0.3 if each else 0.0))
            for each in range(3)
        ]
        for stream in streams:
            await wait_for(run, partial(runs, run, stream), f"{stream.name} runs")
        for each, stream in enumerate(streams):
            cluster.ask(stream, (Procedure.SUSPEND, Procedure.DRAIN, Procedure.SAVEPOINT)[each])
        rng = cluster.store.rng
        for _ in range(6):
            await wait_seconds(run, rng.uniform(0.05, 2.5))
            if rng.random() < 0.5:
                drivers = [work.process for work in cluster.room.drivers.values() if work.process.alive]
                if drivers:
                    cluster.history.add("test", "a driver dies")
                    cluster.machines.kill(rng.choice(drivers))
            elif cluster.jm_process is not None and cluster.jm_process.alive:
                cluster.history.add("test", "the leader dies")
                cluster.kill_job_manager()
                await wait_seconds(run, 0.5)
                cluster.start_job_manager()
        cluster.store.trouble = 0.0
        for stream in streams:
            await wait_for(run, partial(over, run, stream), f"what {stream.name} was asked for is over")
        check(run, streams[0])
        if any(number > 1 for number in cluster.truth.savepoints.values()):
            cluster.history.count("written again by another attempt")
        if any(key not in cluster.truth.outcomes for key in last_attempts(run)):
            cluster.history.count("stopped, then lost")
        await run.settle()
        await run.end_everything()

    return play(ClusterPlan(seed=f"troubled {number}", task_managers=3), story)


async def wait_seconds(run: Run, seconds: float) -> None:
    end = run.loop.time() + seconds
    await wait_for(run, lambda: run.loop.time() >= end, "time passes")


def last_attempts(run: Run) -> list[tuple[JobId, int]]:
    """Of jobs that were stopped."""
    return [(job_id, run.properties.attempts[job_id]) for job_id in run.cluster.store.stopped]


def over(run: Run, job: SubmittedJob) -> bool:
    """The request is answered, and nothing of it is under way any more."""
    if not job.ask_answer:
        return False
    handle = run.cluster.store.disk.jobs.get(job.job_id) if job.job_id is not None else None
    return handle is None or (handle.procedure is None and not handle.stopped)


def check(run: Run, job: SubmittedJob) -> None:
    """Of a stream whose savepoints never fail: an acknowledged stop has stopped it."""
    if job.ask_answer == "done" and job.asked is not None:
        check_stopped(run, job, [job.asked.trigger_id])


@pytest.mark.campaign
@pytest.mark.req("END-5")
@pytest.mark.req("END-6")
@pytest.mark.req("HA-7")
def test_what_was_acknowledged_is_done_although_drivers_leaders_and_the_store_fail() -> None:
    reports = [troubled(number) for number in TROUBLED]
    failures = [report.failure() for report in reports if report.violations]
    assert not failures, f"{len(failures)} of {len(TROUBLED)}\n{failures[0]}"
    met = sum((report.counts for report in reports), Counter[str]())
    assert not seldom(met, dict.fromkeys(MET, 1)), met


PATIENCE = 20.0  # seconds that running batches may take
LATE = 25.0  # seconds until everybody knows that they took longer: a driver and a leader may be replaced meanwhile


def impatient(number: int) -> Report:
    """A stream whose batches take longer than a stop may, while leaders and drivers die."""

    async def story(run: Run) -> None:
        cluster, rng = run.cluster, run.cluster.store.rng
        stream = cluster.submit("stream", Script(seconds=None, batch_seconds=100.0))
        await wait_for(run, lambda: runs(run, stream), "the stream runs")
        asked = cluster.ask(stream, rng.choice((Procedure.SUSPEND, Procedure.DRAIN, Procedure.SAVEPOINT)), PATIENCE)
        await wait_for(run, lambda: stored(run, stream) is not None, "the request is stored")
        end = run.loop.time() + PATIENCE
        while run.loop.time() < end - 1.0:
            found = stored(run, stream)
            if found is None or found.deadline_ms != asked.deadline_ms:
                cluster.history.violate("scenario", f"before its time was over the request became {found}")
            await wait_seconds(run, rng.uniform(0.5, 6.0))
            drivers = [work.process for work in cluster.room.drivers.values() if work.process.alive]
            if drivers and rng.random() < 0.3:
                cluster.history.add("test", "a driver dies")
                cluster.machines.kill(drivers[-1])
                cluster.history.count("a driver died")
            elif cluster.jm_process is not None and cluster.jm_process.alive:
                cluster.history.add("test", "the leader dies")
                cluster.kill_job_manager()
                cluster.history.count("a leader died")
                await wait_seconds(run, 0.5)
                cluster.start_job_manager()
        await wait_for(run, lambda: stored(run, stream) is None, "the request is over")
        if run.loop.time() > end + LATE:
            cluster.history.violate("scenario", f"that took {run.loop.time() - end:.1f} s more than it may")
        await wait_for(run, lambda: runs(run, stream), "the stream runs on")
        if cluster.truth.savepoints or stream.job_id in cluster.truth.released or cluster.store.stopped:
            cluster.history.violate("scenario", "something came of it")
        await run.end_everything()
        check_handles(run)

    return play(ClusterPlan(seed=f"impatient {number}", task_managers=2), story)


def stored(run: Run, job: SubmittedJob) -> ProcedureRequest | None:
    """What the job is asked to do."""
    handle = run.cluster.store.disk.jobs.get(job.job_id) if job.job_id is not None else None
    return None if handle is None else handle.procedure


@pytest.mark.campaign
@pytest.mark.req("END-6")
@pytest.mark.req("HA-5")
def test_a_deadline_holds_whoever_leads_and_whichever_attempt_runs() -> None:
    reports = [impatient(number) for number in TROUBLED]
    failures = [report.failure() for report in reports if report.violations]
    assert not failures, f"{len(failures)} of {len(TROUBLED)}\n{failures[0]}"
    met = sum((report.counts for report in reports), Counter[str]())
    assert not seldom(met, dict.fromkeys(("a driver died", "a leader died"), len(TROUBLED) // 3)), met


def displaced(number: int) -> Report:
    """A stream has to leave every node there is. While it waits for a place it is asked for something, and drivers and
    leaders die on the way."""

    async def story(run: Run) -> None:
        cluster, rng = run.cluster, run.cluster.store.rng
        stream = cluster.submit("stream", Script(seconds=None))
        await wait_for(run, lambda: runs(run, stream), "the stream runs")
        nodes = [f"node-{each}" for each in (1, 2)]
        for node in nodes:
            cluster.blocklist.block(node, BlockAction.MARK_BLOCKED_AND_EVACUATE_TASKS, 3600.0, EvacuatedDrivers.WAIT)
        if rng.random() < 0.7:  # before it has told that it may leave
            await wait_for(run, lambda: stored(run, stream) is not None, "it is asked to move")
            for work in list(cluster.room.drivers.values()):
                if work.process.alive:
                    cluster.machines.kill(work.process)
        await wait_for(run, lambda: waits_for_a_place(run, stream), "it waits for a place")
        moving = stored(run, stream)
        if moving is not None:
            cluster.history.count("a move gave way")
        wanted = rng.choice((Procedure.SUSPEND, Procedure.DRAIN, Procedure.SAVEPOINT))
        dying = asyncio.create_task(leader_dies(run, rng.uniform(0.0, 0.3))) if rng.random() < 0.5 else None
        request = await asked(run, stream, wanted)
        if dying is not None:
            await dying
        if stream.ask_answer != "done":
            cluster.history.violate("scenario", f"it was refused: {stream.ask_answer}")
        for node in nodes:
            cluster.blocklist.unblock(node)
        if wanted is Procedure.SAVEPOINT:
            await wait_for(run, lambda: savepoints(run, stream) == [request.trigger_id], "there is a savepoint")
        else:
            await wait_for(run, lambda: ended(run, stream), "the stream has ended")
            check_stopped(run, stream, [request.trigger_id])
        await run.settle()
        await run.end_everything()
        check_handles(run)

    return play(ClusterPlan(seed=f"displaced {number}", task_managers=2), story)


async def leader_dies(run: Run, seconds: float) -> None:
    cluster = run.cluster
    await wait_seconds(run, seconds)
    cluster.history.add("test", "the leader dies")
    cluster.kill_job_manager()
    cluster.history.count("a leader died")
    await wait_seconds(run, 0.5)
    cluster.start_job_manager()


def waits_for_a_place(run: Run, job: SubmittedJob) -> bool:
    waiting = run.properties.waiting.get(job.job_id, "") if job.job_id is not None else ""
    driven = any(work.process.alive for work in run.cluster.room.drivers.values())
    return "blocked nodes" in waiting and not driven


@pytest.mark.campaign
@pytest.mark.req("HA-5")
def test_a_job_that_waits_for_a_place_is_asked_and_does_it_once_there_is_one() -> None:
    reports = [displaced(number) for number in TROUBLED]
    failures = [report.failure() for report in reports if report.violations]
    assert not failures, f"{len(failures)} of {len(TROUBLED)}\n{failures[0]}"
    met = sum((report.counts for report in reports), Counter[str]())
    assert not seldom(met, dict.fromkeys(("a move gave way", "a leader died"), len(TROUBLED) // 4)), met
