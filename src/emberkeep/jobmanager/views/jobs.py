"""Views of jobs for the edges."""

from __future__ import annotations

import msgspec

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobGraph, JobResult, JobStatus
from emberkeep.jobs.state import JobState
from emberkeep.jobs.transitions import Phase
from emberkeep.protocol.messages import JobMasterStatus


def view_of(
    state: JobState,
    graph: JobGraph | None,
    report: JobMasterStatus | None,
    pointers: JobPointers,
    procedure: ProcedureView | None = None,
    *,
    moving: bool = False,
    held: str = "",
) -> JobView:
    """Return the view of a job that this JobManager has managed.

    ``graph``: None if it could not be read. ``moving``: True if the job's driver was asked to move. ``held``: what the
    next attempt waits for before it can be recorded.
    """
    ended = state.status.is_globally_terminal
    result = state.result if ended else None
    driver, home = state.driver, state.driver_home()
    attempts = state.history.attempts()
    return JobView(
        job_id=state.graph.job_id,
        name=state.graph.name,
        status=state.status,
        submitted_ms=state.graph.submitted_ms,
        ended_ms=result.ended_ms if result else None,
        status_times_ms=dict(state.history.status_times_ms),
        attempt=state.attempt,
        driver_task_manager=(attempts[-1].task_manager or None) if attempts else None,
        driver_pid=driver.pid if driver is not None and not ended else 0,
        exit_code=result.exit_code if result else None,
        root_cause=state.verdict.root_cause if state.verdict else "",
        waiting=held or state.waiting() or (report.waiting if report and not ended else ""),
        attempts=attempts,
        exceptions=state.history.exceptions(),
        graph=graph,
        status_report=report,
        result=result,
        pointers=msgspec.structs.replace(pointers, queries=()) if ended else pointers,
        procedure=None if ended else procedure,
        unreadable=state.phase is Phase.WITHOUT_GRAPH,
        leaving=moving or state.phase not in (Phase.RUNNING, Phase.WITHOUT_GRAPH),
        driver_expected_on=None if home is None else home.task_manager,
    )


def view_of_result(result: JobResult) -> JobView:
    """Return the view of a job that ended under an earlier leader."""
    newest = result.attempts[-1] if result.attempts else None
    return JobView(
        job_id=result.job_id,
        name=result.name,
        status=result.status,
        submitted_ms=result.submitted_ms,
        ended_ms=result.ended_ms,
        status_times_ms={JobStatus.CREATED: result.submitted_ms, result.status: result.ended_ms},
        attempt=newest.attempt if newest else 0,
        driver_task_manager=(newest.task_manager or None) if newest else None,
        driver_pid=0,
        exit_code=result.exit_code,
        root_cause=result.root_cause,
        waiting="",
        attempts=result.attempts,
        exceptions=result.exceptions,
        graph=None,
        status_report=None,
        result=result,
        pointers=JobPointers(attempt=newest.attempt if newest else 0, savepoints=result.savepoints),
    )


def with_missing(view: JobView, missing: str) -> JobView:
    """Return the view, changed to say that the job waits for ``missing``: what the cluster cannot provide now.

    Return the view unchanged if nothing is missing, or if the job waits for its graph.
    """
    return msgspec.structs.replace(view, waiting=missing) if missing and not view.unreadable else view
