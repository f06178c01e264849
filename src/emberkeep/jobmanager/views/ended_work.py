"""The work of a job that has ended: as it is kept with the job's result, and as it is shown under a later leader."""

from __future__ import annotations

import msgspec

from emberkeep.jobs.model import JobResult
from emberkeep.jobs.progress.kept_work import KeptWork
from emberkeep.jobs.progress.work import ended
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus


def with_work(result: JobResult, report: JobMasterStatus | None) -> JobResult:
    """Return the result with what the newest report says that the job has done."""
    if report is None or report.work is None:
        return result
    kept = KeptWork(app_id=report.app_id, work=ended(report.work), course=report.course)
    return msgspec.structs.replace(result, work=kept)


def report_of(kept: KeptWork | None) -> JobMasterStatus | None:
    """Return what remains of the newest report of a job that ended under an earlier leader."""
    if kept is None:
        return None
    return JobMasterStatus(
        sequence=0,
        requirements=(),
        executors=(),
        completed_tasks=kept.work.completed_tasks,
        failed_tasks=kept.work.failed_tasks,
        app_id=kept.app_id,
        work=kept.work,
        course=kept.course,
    )
