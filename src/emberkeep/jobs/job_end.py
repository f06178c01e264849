"""Ends a job: the result is issued once, and the job is forgotten after the result is durable."""

from __future__ import annotations

from emberkeep.jobs import events as ev
from emberkeep.jobs.model import AttemptOutcome, JobResult, JobStatus
from emberkeep.jobs.state import JobState, Verdict
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.transitions import Phase


class JobEnd:
    """The job's result and what follows its recording. Part of the JobMachine."""

    def __init__(self, job: JobState) -> None:
        self._job = job

    def fail(self, outcome: AttemptOutcome, now: Moment, *, keeps_data: bool = False) -> None:
        """Fail the job while it has no driver. ``keeps_data``: see JobResult."""
        job = self._job
        job.history.failed_unstarted(job.attempt, outcome, now.ms)
        job.verdict = Verdict(JobStatus.FAILED, outcome.exit_code, outcome.message, keeps_data=keeps_data)
        job.enter(JobStatus.FAILING, now)
        self.record_result(now)

    def record_result(self, now: Moment) -> None:
        job = self._job
        assert job.verdict is not None  # noqa: S101 - an invariant, not input
        job.phase = Phase.RECORDING_RESULT
        newest = job.history.newest_attempt()
        job.result = JobResult(
            job_id=job.graph.job_id,
            name=job.graph.name,
            status=job.verdict.status,
            exit_code=job.verdict.exit_code,
            root_cause=job.verdict.root_cause,
            submitted_ms=job.graph.submitted_ms,
            ended_ms=now.ms,
            attempts=job.history.attempts(),
            exceptions=job.history.exceptions(),
            idempotency_key=job.graph.idempotency_key,
            owner=job.graph.owner,
            namespace=job.graph.namespace,
            savepoint=job.graph.savepoint,
            keeps_data=job.verdict.keeps_data,
            attempt=max(job.recorded, newest.attempt if newest else 0),
        )
        job.effects.append(ev.RecordResult(job.result))

    def result_recorded(self, event: ev.ResultRecorded, now: Moment) -> None:
        job = self._job
        assert job.verdict is not None  # noqa: S101
        job.phase = Phase.ENDED
        job.enter(job.verdict.status, now)
        if job.driver is None or job.driver.is_gone:
            self.forget()
        else:
            job.forget_at = now.at + job.policy.grace

    def forget(self) -> None:
        job = self._job
        if not job.forgotten:
            job.forgotten = True
            job.forget_at = None
            job.effects.append(ev.JobOver())
