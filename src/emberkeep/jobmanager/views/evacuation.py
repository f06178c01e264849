"""Progress of an evacuation: the work that still runs on a task manager and must move elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.cluster import Evacuation, JobView, TaskManagerView
from emberkeep.protocol.messages import Departure, DriverReport, ProcessState

UNKNOWN = -1


def with_evacuations(views: Sequence[TaskManagerView], jobs: Iterable[JobView]) -> list[TaskManagerView]:
    """Return ``views`` with the progress of each evacuation, as the jobs report it.

    ``jobs`` must be read after ``views``, so that a driver that is about to start on a task manager is in one of the
    two.
    """
    running = {job.job_id: job for job in jobs if not job.status.is_globally_terminal}
    departures: dict[TaskManagerId, list[Departure]] = {}
    expected: dict[TaskManagerId, list[JobView]] = {}
    for job in running.values():
        for executor in job.status_report.executors if job.status_report is not None else ():
            if executor.departure is not None:
                departures.setdefault(executor.task_manager, []).append(executor.departure)
        if job.driver_expected_on is not None:
            expected.setdefault(job.driver_expected_on, []).append(job)
    return [
        msgspec.structs.replace(
            view,
            evacuation=_evacuation(
                view.report.drivers, departures.get(view.info.id, []), expected.get(view.info.id, []), running
            ),
        )
        if view.evacuated
        else view
        for view in views
    ]


def _evacuation(
    reported: Sequence[DriverReport],
    departures: Sequence[Departure],
    expected: Sequence[JobView],
    jobs: Mapping[JobId, JobView],
) -> Evacuation:
    """Return the progress of one task manager's evacuation.

    ``expected``: jobs whose driver, as far as is known, runs on this task manager or may still start on it.
    """
    drivers = [driver for driver in reported if driver.state is not ProcessState.EXITED]
    told = {(driver.job_id, driver.attempt) for driver in reported}
    coming = sum((job.job_id, job.attempt) not in told for job in expected)
    moving = sum(_moves(driver, jobs.get(driver.job_id)) for driver in drivers)
    return Evacuation(
        executors=len(departures),
        executors_waiting=sum(not departure.begun for departure in departures),
        shuffle_blocks=sum(max(0, departure.shuffle_blocks) for departure in departures),
        cached_blocks=sum(max(0, departure.cached_blocks) for departure in departures),
        at_least=any(UNKNOWN in (d.shuffle_blocks, d.cached_blocks) or d.at_least for d in departures),
        drivers_moving=moving + coming,
        drivers_staying=len(drivers) - moving,
    )


def _moves(driver: DriverReport, job: JobView | None) -> bool:
    """True if a driver is about to leave, because it ends, must move, or belongs to an ended attempt."""
    return job is None or job.leaving or driver.attempt != job.attempt
