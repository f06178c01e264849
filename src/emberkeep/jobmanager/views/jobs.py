"""Views of jobs that have no state machine, and what a view adds about the cluster."""

from __future__ import annotations

import msgspec

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.ended_work import report_of
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobResult, JobStatus


def view_of_result(result: JobResult) -> JobView:
    """Return the view of a job that ended under an earlier leader."""
    newest = result.attempts[-1] if result.attempts else None
    attempt = result.attempt or (newest.attempt if newest else 0)
    return JobView(
        job_id=result.job_id,
        name=result.name,
        status=result.status,
        submitted_ms=result.submitted_ms,
        ended_ms=result.ended_ms,
        status_times_ms={JobStatus.CREATED: result.submitted_ms, result.status: result.ended_ms},
        attempt=attempt,
        driver_task_manager=(newest.task_manager or None) if newest else None,
        driver_pid=0,
        exit_code=result.exit_code,
        root_cause=result.root_cause,
        waiting="",
        attempts=result.attempts,
        exceptions=result.exceptions,
        graph=None,
        status_report=report_of(result.work),
        result=result,
        pointers=JobPointers(attempt=attempt, savepoints=result.savepoints),
    )


def with_missing(view: JobView, missing: str) -> JobView:
    """Return the view, changed to say that the job waits for ``missing``: what the cluster cannot provide now.

    Return the view unchanged if nothing is missing, or if the job waits for its graph.
    """
    return msgspec.structs.replace(view, waiting=missing) if missing and not view.unreadable else view
