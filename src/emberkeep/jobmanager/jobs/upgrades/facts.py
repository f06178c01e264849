"""What the JobManager knows about the jobs of an upgrade, as the upgrade's state machine reads it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.jobs.job_table import JobTable, ManagedJob
from emberkeep.jobs.checkpoints import LOCATION_LIMIT, JobPointers
from emberkeep.jobs.upgrades.model import Facts, QueryFacts, StopFacts, StopState, Upgrade, VersionFacts
from emberkeep.lifecycle.requests.events import Ended
from emberkeep.lifecycle.requests.transitions import RequestPhase
from emberkeep.protocol.messages.job_master_reports import QueryProgress


def facts_of(
    upgrade: Upgrade, table: JobTable, creating: frozenset[JobId], stop: Ended | None, *, has_stopped: bool = False
) -> Facts:
    """Return the facts.

    ``creating``: jobs that are being accepted. ``stop``: how the old job's stop has ended; None if it has not,
    or if that is not known. ``has_stopped``: it had made its savepoint before this JobManager took over.
    """
    return Facts(
        stop=_stop(upgrade, table, stop, has_stopped=has_stopped),
        old=_version(upgrade.job_id, table, creating),
        new=_version(upgrade.new_id, table, creating),
        back=_version(upgrade.back_id, table, creating),
    )


def pointers_of(job_id: JobId, table: JobTable) -> JobPointers:
    """Return the pointers of a job; without any for a job that is not known."""
    try:
        return table.view(job_id).pointers
    except Absent:
        return JobPointers()


def queries_of(job: ManagedJob | None) -> tuple[QueryFacts, ...]:
    """Return the streaming queries of a running job, as its newest attempt reports them."""
    report = None if job is None else job.report
    if report is None:
        return ()
    commits = {each.location: each.batch_id for each in report.checkpoints}
    return tuple(_query(each, commits) for each in report.queries)


def _query(query: QueryProgress, commits: Mapping[str, int]) -> QueryFacts:
    location, has_rows = query.checkpoint_location, query.num_input_rows > 0
    if 0 < len(location) <= LOCATION_LIMIT:
        batch = commits.get(location, -1)
    else:  # no commits are reported; without a checkpoint, each run counts its batches from 0
        location, batch = f"run {query.run_id}", query.batch_id if has_rows else query.batch_id - 1
    return QueryFacts(
        name=query.name or query.id, location=location, batch=batch, has_rows=has_rows, waits=query.is_waiting
    )


def _stop(upgrade: Upgrade, table: JobTable, ended: Ended | None, *, has_stopped: bool) -> StopFacts:
    if ended is not None and ended.savepoint:
        return StopFacts(state=StopState.MADE, savepoint=ended.savepoint)
    if ended is not None:
        return StopFacts(state=StopState.FAILED, failure=ended.failure or "no savepoint was made")
    if has_stopped:
        return StopFacts(state=StopState.UNREADABLE)
    job = table.active.get(upgrade.job_id)
    newest = None if job is None else job.requests.newest
    is_open = newest is not None and newest.trigger_id == upgrade.upgrade_id
    return StopFacts(state=StopState.OPEN if is_open else StopState.UNKNOWN)


def _version(job_id: JobId, table: JobTable, creating: frozenset[JobId]) -> VersionFacts:
    try:
        view = table.view(job_id)
    except Absent:
        return VersionFacts(is_known=job_id in creating)
    job = table.active.get(job_id)
    newest = next((each for each in reversed(view.attempts) if each.outcome is not None), None)
    cause = view.root_cause or (newest.outcome.message if newest is not None and newest.outcome is not None else "")
    return VersionFacts(
        is_known=True,
        status=view.status,
        is_over=view.status.is_globally_terminal and job is None,
        attempt=view.attempt,
        cause=cause,
        is_stopping=_is_stopping(job),
        queries=() if view.status.is_globally_terminal else queries_of(job),
    )


def _is_stopping(job: ManagedJob | None) -> bool:
    if job is None:
        return False
    newest = job.requests.newest
    asked = newest is not None and newest.procedure.stops_job
    return asked or job.requests.phase is RequestPhase.STOPPED
