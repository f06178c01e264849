"""Views of jobs that have no state machine, and what a view adds about the cluster."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from emberkeep.jobmanager.views.briefs import JobBrief, newest_failure
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.ended_work import report_of
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobResult, JobStatus

AnyJob = TypeVar("AnyJob", JobView, JobBrief)


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


def brief_of(view: JobView) -> JobBrief:
    """Return a job's view in brief."""
    return JobBrief(
        job_id=view.job_id,
        name=view.name,
        status=view.status,
        submitted_ms=view.submitted_ms,
        ended_ms=view.ended_ms,
        entered_ms=view.entered_ms,
        owner=view.owner,
        namespace=view.namespace,
        has_known_owner=view.has_known_owner,
        alarms=view.alarms,
        waiting=view.waiting,
        waiting_since_ms=view.waiting_since_ms,
        unreadable=view.unreadable,
        failure=view.root_cause or newest_failure(view.attempts)[1],
        has_savepoints=bool(view.started_from or view.pointers.savepoints),
    )


def with_missing(view: AnyJob, missing: str) -> AnyJob:
    """Return the view, changed to say that the job waits for ``missing``: what the cluster cannot provide now.

    Return the view unchanged if nothing is missing, or if the job waits for its graph.
    """
    return msgspec.structs.replace(view, waiting=missing) if missing and not view.unreadable else view
