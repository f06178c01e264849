"""Streams get periodic savepoints while leaders and drivers die and the store fails: none is lost, none comes twice."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from tests.campaign import seeds, seldom
from tests.simulation.test_crash_points import runs, wait_for
from tests.simulation.test_procedures import wait_seconds
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, play

INTERVAL = 10.0
OPTIONS = {"execution.savepoint.interval": f"{INTERVAL:.0f}s", "execution.savepoint.retained": "2"}
SEEDS = seeds(4, theme="periodic savepoints")


def recorded(run: Run, job: SubmittedJob) -> tuple[SavepointPointer, ...]:
    handle = run.cluster.store.disk.jobs.get(job.job_id) if job.job_id is not None else None
    if handle is None or not handle.pointers:
        return ()
    return msgspec.json.decode(handle.pointers, type=JobPointers).savepoints


def troubled(number: int) -> Report:
    async def story(run: Run) -> None:
        cluster, truth = run.cluster, run.cluster.truth
        stream = cluster.submit("stream", Script(seconds=None, savepoints_fail=0.2), OPTIONS)
        await wait_for(run, lambda: runs(run, stream), "the stream runs")
        began, rng = run.loop.time(), cluster.store.rng
        cluster.store.trouble = 0.2
        for _ in range(8):
            await wait_seconds(run, rng.uniform(1.0, 20.0))
            drivers = [work.process for work in cluster.room.drivers.values() if work.process.alive]
            if rng.random() < 0.5 and drivers:
                cluster.machines.kill(rng.choice(drivers))
                cluster.history.count("driver died")
            elif cluster.jm_process is not None and cluster.jm_process.alive:
                cluster.kill_job_manager()
                cluster.history.count("leader died")
                await wait_seconds(run, 0.5)
                cluster.start_job_manager()
        cluster.store.trouble = 0.0
        made = len(truth.savepoints)
        for _ in range(3):  # some fail, one after the other by chance
            if len(truth.savepoints) == made:
                await wait_seconds(run, 3 * INTERVAL)
        await wait_for(run, lambda: len(truth.savepoints) > made, "another savepoint is written")
        await wait_for(
            run,
            lambda: len(recorded(run, stream)) <= 2 and not any(each.retired_ms for each in recorded(run, stream)),
            "what is no longer retained is deleted",
        )
        check(run, stream, run.loop.time() - began)
        await run.settle()
        await run.end_everything()

    return play(ClusterPlan(seed=f"periodic {number}", task_managers=2), story)


def check(run: Run, job: SubmittedJob, seconds: float) -> None:
    truth, violate = run.cluster.truth, run.cluster.history.violate
    known = {each.trigger_id for each in recorded(run, job)}
    if len(truth.savepoints) > seconds / INTERVAL + 1:
        violate("scenario", f"{len(truth.savepoints)} savepoints in {seconds:.0f} s are a burst")
    if gone := known & truth.deleted.keys():
        violate("scenario", f"the records of {gone} are left, and their files are gone")
    handle = run.cluster.store.disk.jobs[job.job_id]  # type: ignore[index]
    current = {handle.procedure.trigger_id} if handle.procedure is not None else set()
    left = {trigger for trigger, number in truth.savepoints.items() if number > truth.discarded[trigger]}
    if lost := left - known - truth.deleted.keys() - current:
        violate("scenario", f"{lost} were written, and are neither recorded nor deleted")
    for _ in truth.deleted:
        run.cluster.history.count("deleted by retention")


@pytest.mark.campaign
@pytest.mark.req("SAFE-4")
@pytest.mark.req("HA-5")
def test_periodic_savepoints_are_neither_lost_nor_repeated_although_leaders_and_drivers_die() -> None:
    reports = [troubled(number) for number in SEEDS]
    failures = [report.failure() for report in reports if report.violations]
    assert not failures, f"{len(failures)} of {len(SEEDS)}\n{failures[0]}"
    met = sum((report.counts for report in reports), Counter[str]())
    assert not seldom(met, {"driver died": 1, "leader died": 1, "deleted by retention": 1}), met
