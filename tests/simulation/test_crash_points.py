"""A leader killed between any two steps of what it does, one run for each; then a new one takes over.

A step is a message received, answered or sent, or a write to the job store or to a BLOB store, before and after it.
Between two of them a JobManager changes nothing that outlives it, so these are all the ways in which it can die. Of the
heartbeats, which are many and alike, some are taken, spread over the whole run.
"""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from emberkeep.jobs.model import JobStatus
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob
from tests.support.simulator.properties import TICK
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, play

HEARTBEATS = 16  # of these a run is ended at so many
AWAY = 1.5  # virtual seconds until the next leader starts
BOUND = 60.0
STEPS_AT_LEAST = {  # what an undisturbed run must go through, or the enumeration has become blind
    "receives submit",
    "store, before create batch",
    "store, after create batch",
    "has answered submit",
    "sends StartDriver",
    "receives RegisterJobMaster",
    "has answered RegisterJobMaster",
    "receives ReportOutcome",
    "store, before result FINISHED of batch",
    "store, after result FINISHED of batch",
    "has answered ReportOutcome",
    "receives cancel",
    "has answered cancel",
    "sends StopDriver",
    "store, before result CANCELED of stream",
    "store, after result CANCELED of stream",
    "HA store of BLOBs: put done",
    "HA store of BLOBs: delete_owner done",
}


@dataclass
class Death:
    """Kills the leader at its step ``at``, and the next one at the step ``again`` after its start.

    ``with_drivers``: all living drivers die with it.
    """

    at: int | None = None
    again: int | None = None
    with_drivers: bool = False
    steps: list[str] = field(default_factory=list)

    def watch(self, run: Run) -> None:
        run.cluster.history.on_step.append(lambda process, what: self._step(run, process, what))

    def _step(self, run: Run, process: str, what: str) -> None:
        if process != "jobmanager":
            return
        check_handles(run)
        number = len(self.steps)
        self.steps.append(what)
        second = self.at is not None and self.again is not None and number == self.at + 1 + self.again
        if number == self.at or second:
            self._kill(run, what)

    def _kill(self, run: Run, what: str) -> None:
        cluster = run.cluster
        leader = cluster.jm_process
        assert leader is not None
        cluster.history.add("test", f"the leader dies at: {what}")
        for each in (leader, *cluster.machines.drivers()) if self.with_drivers else (leader,):
            cluster.machines.kill(each)
        # In a context of its own: what a dead process has scheduled never runs.
        run.loop.call_later(AWAY, cluster.start_job_manager, context=contextvars.Context())


def check_handles(run: Run) -> None:
    """A handle exists if and only if the job is to be recovered; what was accepted is a handle or a result."""
    disk, history = run.cluster.store.disk, run.cluster.history
    for job_id in disk.jobs.keys() & disk.results.keys():
        history.violate("handle", f"job {job_id[:8]} has ended and would be recovered")
    for job in run.cluster.jobs:
        if job.job_id is not None and job.job_id not in disk.jobs and job.job_id not in disk.results:
            history.violate("handle", f"{job.name} was accepted, and nothing is stored of it")


async def wait_for(run: Run, condition: Callable[[], object], what: str) -> None:
    end = run.loop.time() + BOUND
    while not condition():
        if run.loop.time() > end:
            run.cluster.history.violate("scenario", f"not in {BOUND:.0f} s: {what}")
        await asyncio.sleep(TICK)


def check_end(run: Run, job: SubmittedJob, status: JobStatus) -> None:
    """It has ended as it should, and its script ran once: neither the deaths nor the new leaders interrupted it."""
    assert job.job_id is not None
    ended = run.cluster.store.recorded.get(job.job_id)
    if ended is None or ended.status is not status:
        run.cluster.history.violate("scenario", f"{job.name} ended with {ended}, not {status.value}")
    starts = [start for start in run.cluster.truth.script_starts if start[0] == job.job_id]
    if len(starts) != 1:
        run.cluster.history.violate("scenario", f"the script of {job.name} ran {len(starts)} times")


def lived(death: Death) -> Report:
    """A batch job and a stream are submitted and started; one finishes, the other is cancelled."""

    async def story(run: Run) -> None:
        death.watch(run)
        cluster = run.cluster
        batch = cluster.submit("batch", Script(seconds=4.0))
        stream = cluster.submit("stream", Script(seconds=None))
        await wait_for(run, lambda: runs(run, stream), "the stream runs")
        cluster.cancel(stream)
        await run.settle()
        check_end(run, batch, JobStatus.FINISHED)
        check_end(run, stream, JobStatus.CANCELED)
        await run.end_everything()
        check_handles(run)

    return play(ClusterPlan(seed="crash points", task_managers=2), story)


def runs(run: Run, job: SubmittedJob) -> bool:
    return job.job_id is not None and run.properties.shown.get(job.job_id) is JobStatus.RUNNING


def undisturbed() -> list[str]:
    death = Death()
    report = lived(death)
    assert not report.violations, report.failure()
    assert {step.partition(" cancel ")[0] for step in death.steps} >= {"store, before", "store, after"}
    assert set(death.steps) >= STEPS_AT_LEAST, STEPS_AT_LEAST - set(death.steps)
    return death.steps


def points(steps: list[str]) -> list[int]:
    """Where to end a leader: at each of the steps, and at some of the heartbeats."""
    heartbeats = [number for number, what in enumerate(steps) if what.endswith("Heartbeat")]
    some = heartbeats[:: max(1, len(heartbeats) // HEARTBEATS)]
    return sorted({*range(len(steps))} - {*heartbeats} | {*some})


def fails(death: Death) -> str:
    """How a run goes wrong, or nothing."""
    report = lived(death)
    return f"{death.at}, {death.again}: {report.failure()}" if report.violations else ""


@pytest.mark.req("HA-4")
@pytest.mark.req("HA-5")
@pytest.mark.req("HA-6")
@pytest.mark.req("HA-12")
def test_a_leader_killed_at_any_step_of_submit_start_finish_and_cancel_loses_and_repeats_nothing() -> None:
    chosen = points(undisturbed())
    failures = [failure for at in chosen if (failure := fails(Death(at)))]
    assert not failures, f"{len(failures)} of {len(chosen)} crash points\n" + failures[0]


@pytest.mark.req("HA-5")
def test_the_next_leader_killed_at_any_step_of_its_recovery_loses_and_repeats_nothing() -> None:
    at = undisturbed().index("has answered RegisterJobMaster")
    once = Death(at)
    assert not fails(once)
    chosen = points(once.steps[at + 1 :])
    failures = [failure for again in chosen if (failure := fails(Death(at, again)))]
    assert not failures, f"{len(failures)} of {len(chosen)} crash points\n" + failures[0]
