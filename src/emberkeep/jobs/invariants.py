"""The invariants of a job's state, which hold between any two events."""

from __future__ import annotations

from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.state import JobState
from emberkeep.jobs.transitions import Phase

STATUSES: dict[Phase, frozenset[JobStatus]] = {
    Phase.NEW: frozenset({JobStatus.CREATED}),
    Phase.WITHOUT_GRAPH: frozenset({JobStatus.CREATED, JobStatus.INITIALIZING, JobStatus.RUNNING}),
    Phase.PLACING: frozenset({JobStatus.CREATED, JobStatus.RESTARTING}),
    Phase.RECORDING_ATTEMPT: frozenset({JobStatus.CREATED, JobStatus.RESTARTING, JobStatus.CANCELLING}),
    Phase.ADOPTING: frozenset({JobStatus.INITIALIZING, JobStatus.RUNNING, JobStatus.CANCELLING}),
    Phase.STARTING: frozenset({JobStatus.INITIALIZING}),
    Phase.RUNNING: frozenset({JobStatus.RUNNING}),
    Phase.ENDING: frozenset({JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.CANCELLING}),
    Phase.BACKING_OFF: frozenset({JobStatus.CREATED, JobStatus.RESTARTING}),
    Phase.RECORDING_RESULT: frozenset(status for status in JobStatus if not status.is_globally_terminal),
    Phase.ENDED: frozenset(status for status in JobStatus if status.is_globally_terminal),
}


def check(job: JobState) -> None:
    """Raise AssertionError naming the broken invariant."""
    # A stopped job keeps its status until it is FINISHED.
    as_before = job.stopped and job.phase is Phase.ENDING and job.status in (JobStatus.INITIALIZING, JobStatus.RUNNING)
    _hold(job, as_before or job.status in STATUSES[job.phase], "status fits the phase")
    _hold(job, not job.stopped or job.phase not in (Phase.PLACING, Phase.BACKING_OFF), "nothing follows a stop")
    driver = job.driver
    with_driver = job.phase in (Phase.ADOPTING, Phase.STARTING, Phase.RUNNING, Phase.ENDING)
    _hold(job, not with_driver or (driver is not None and not driver.is_gone), "the phase's driver may be alive")
    _hold(
        job,
        job.phase not in (Phase.PLACING, Phase.RECORDING_ATTEMPT, Phase.BACKING_OFF)
        or driver is None
        or driver.is_gone,
        "no driver may be alive while the next one is prepared",
    )
    _hold(job, driver is None or driver.attempt == job.attempt, "the driver is the newest attempt's")
    _hold(job, job.phase is not Phase.STARTING or job.attempt > 0, "attempts start at 1")
    without_graph = job.phase is Phase.WITHOUT_GRAPH
    _hold(job, not without_graph or job.verdict is None, "nothing is decided about a job without its graph")
    _hold(job, not without_graph or (driver is None) == (job.attempt == 0), "its driver may be alive")
    _hold(job, not without_graph or driver is None or not driver.is_gone, "its driver is not given up")
    ending = job.phase in (Phase.RECORDING_RESULT, Phase.ENDED)
    _hold(job, ending == (job.result is not None), "a result exists exactly from its recording on")
    _hold(job, job.result is None or job.verdict_is(job.result.status), "the result is the verdict")
    if (with_driver and job.phase is not Phase.ADOPTING) or job.phase is Phase.BACKING_OFF:
        _hold(job, job.deadline() is not None, "a deadline moves it on")


def _hold(job: JobState, truth: bool, what: str) -> None:
    if not truth:
        raise AssertionError(
            f"job {job.graph.job_id} in {job.phase.value}/{job.status.value} breaks the invariant: {what}; "
            f"{tuple(job.steps)}"
        )
