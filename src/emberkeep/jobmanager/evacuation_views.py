"""How far an evacuation is: what still runs on a task manager that is to be left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from emberkeep.base.ids import JobId
from emberkeep.jobmanager.views import Evacuation, JobView, TaskManagerView
from emberkeep.protocol.messages import DriverReport, ProcessState

UNKNOWN = -1


def with_evacuations(views: Sequence[TaskManagerView], jobs: Iterable[JobView]) -> list[TaskManagerView]:
    """The evacuated ones among ``views`` with what their jobs say of it."""
    running = {job.job_id: job for job in jobs if not job.status.is_globally_terminal}
    return [
        msgspec.structs.replace(view, evacuation=_evacuation(view, running)) if view.evacuated else view
        for view in views
    ]


def _evacuation(view: TaskManagerView, jobs: dict[JobId, JobView]) -> Evacuation:
    reports = (job.status_report for job in jobs.values())
    executors = [
        executor.departure
        for report in reports
        if report is not None
        for executor in report.executors
        if executor.task_manager == view.info.id and executor.departure is not None
    ]
    drivers = [driver for driver in view.report.drivers if driver.state is not ProcessState.EXITED]
    moving = sum(_moves(driver, jobs.get(driver.job_id)) for driver in drivers)
    return Evacuation(
        executors=len(executors),
        executors_waiting=sum(not departure.begun for departure in executors),
        shuffle_blocks=sum(max(0, departure.shuffle_blocks) for departure in executors),
        cached_blocks=sum(max(0, departure.cached_blocks) for departure in executors),
        at_least=any(UNKNOWN in (d.shuffle_blocks, d.cached_blocks) or d.at_least for d in executors),
        drivers_moving=moving,
        drivers_staying=len(drivers) - moving,
    )


def _moves(driver: DriverReport, job: JobView | None) -> bool:
    """Whether a driver is about to leave: it ends or was asked to move, or nobody needs it any more."""
    return job is None or job.leaving or driver.attempt != job.attempt
