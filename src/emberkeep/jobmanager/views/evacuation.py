"""Progress of an evacuation: the work that still runs on a task manager and must move elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.views.cluster import Evacuation, JobView, TaskManagerView
from emberkeep.protocol.messages.job_master_reports import Departure
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState

UNKNOWN = -1


class EvacuationCounts:
    """Counts how much of each evacuation is done. Belongs to one leader, which shows it each list of task managers."""

    def __init__(self) -> None:
        self._most: dict[TaskManagerId, int] = {}

    def counted(self, views: Sequence[TaskManagerView], *, all_of_them: bool = True) -> list[TaskManagerView]:
        """Return ``views`` with counts in their evacuations. ``all_of_them``: any other evacuation is over."""
        if all_of_them:
            evacuated = {view.info.id for view in views if view.evacuated}
            self._most = {name: most for name, most in self._most.items() if name in evacuated}
        return [self._counted(view) for view in views]

    def _counted(self, view: TaskManagerView) -> TaskManagerView:
        evacuation = view.evacuation
        if evacuation is None:
            return view
        drivers = sum(driver.state is not ProcessState.EXITED for driver in view.report.drivers)
        # a driver that may still start there is expected, but not reported yet
        expected = evacuation.executors + evacuation.drivers_moving + evacuation.drivers_staying
        left = max(len(view.report.allocations) + drivers, expected)
        total = self._most[view.info.id] = max(left, self._most.get(view.info.id, 0))
        return msgspec.structs.replace(view, evacuation=msgspec.structs.replace(evacuation, left=left, total=total))


def with_evacuations(views: Sequence[TaskManagerView], jobs: Iterable[JobView]) -> list[TaskManagerView]:
    """Return ``views`` with the progress of each evacuation, as the jobs report it.

    ``jobs`` must be read after ``views``, so that a driver that is about to start on a task manager is in one of the
    two.
    """
    running = {job.job_id: job for job in jobs if not job.status.is_globally_terminal}
    departures: dict[TaskManagerId, list[Departure]] = {}
    expected: dict[TaskManagerId, list[JobView]] = {}
    for job in running.values():
        report = job.report
        for executor in report.executors if report is not None else ():
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
