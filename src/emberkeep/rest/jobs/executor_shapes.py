"""Conversion of what a JobMaster reports about its executors to bodies of the REST API. Pure functions."""

from __future__ import annotations

import msgspec

from emberkeep.jobs.progress.work import ExecutorWork
from emberkeep.protocol.messages.job_master_reports import Departure, ExecutorView, JobMasterStatus
from emberkeep.protocol.progress.rest_work import EndedExecutorInfo
from emberkeep.protocol.rest_jobs import DepartureInfo, ExecutorInfo


def executor_infos(report: JobMasterStatus | None) -> list[ExecutorInfo]:
    """Return the executors of a report, each with what Spark says about it."""
    if report is None:
        return []
    work = {} if report.work is None else {one.executor_id: one for one in report.work.executors}
    return [_executor(executor, work.get(executor.executor_id)) for executor in report.executors]


def ended_executor_infos(report: JobMasterStatus | None) -> list[EndedExecutorInfo]:
    """Return what the executors that have ended had done, as far as a report names them."""
    if report is None or report.work is None:
        return []
    return [
        EndedExecutorInfo(
            id=one.executor_id,
            host=one.host,
            tasks_finished=one.tasks,
            tasks_failed=one.failed,
            task_time=one.task_ms,
            gc_time=one.gc_ms,
        )
        for one in report.work.executors
        if not one.active
    ]


def _executor(executor: ExecutorView, work: ExecutorWork | None) -> ExecutorInfo:
    return ExecutorInfo(
        id=executor.executor_id,
        taskmanager_id=executor.task_manager,
        host=executor.host,
        state=executor.state,
        registered=executor.registered,
        pid=executor.pid,
        cores=executor.cores,
        heap_mb=executor.heap_mb,
        away=executor.away,
        departure=_departure(executor.departure),
        outgoing=executor.outgoing,
        lacks_space=executor.lacks_space,
        dismissed=executor.dismissed,
        cordoned=executor.cordoned,
        start=executor.start,
        why_cold=executor.why_cold,
        task_time=None if work is None else work.task_ms,
        gc_time=None if work is None else work.gc_ms,
    )


def _departure(departure: Departure | None) -> DepartureInfo | None:
    return None if departure is None else DepartureInfo(**msgspec.structs.asdict(departure))
