"""Lists the processes recorded by the previous task manager process, and makes outcomes of lost drivers."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.slots.table.events import DriverState, SlotState
from emberkeep.slots.table.machine import SlotTable
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, ProcessKey

NO_ROOM = "the task manager has fewer slots or driver places than before its restart"
GONE = "ended, or was not started yet, while its task manager was away"


def recorded_processes(table: SlotTable) -> list[ProcessKey]:
    """Return the processes that were started or about to be started.

    Executors come first, because the end of a driver frees all slots of its attempt.
    """
    executors = [
        ExecutorKey(
            job_id=slot.allocation.job_id,
            attempt=slot.allocation.attempt,
            allocation_id=slot.allocation.id,
            executor_id=slot.executor_id,
        )
        for slot in table.slots.values()
        if slot.executor_id is not None and slot.state is not SlotState.EXITED
    ]
    return [*executors, *(DriverKey(job_id=driver.job_id, attempt=driver.attempt) for driver in table.drivers.living())]


def ended_drivers(table: SlotTable) -> frozenset[DriverKey]:
    """Return the drivers whose end the JobManager has not acknowledged."""
    return frozenset(
        DriverKey(job_id=driver.job_id, attempt=driver.attempt)
        for driver in table.drivers.by_attempt.values()
        if driver.state is DriverState.EXITED
    )


def jobs_held(table: SlotTable) -> frozenset[JobId]:
    """Return the jobs that hold a slot or have a driver in the table."""
    held = {slot.allocation.job_id for slot in table.slots.values()}
    return frozenset(held | {job_id for job_id, _ in table.drivers.by_attempt})


def lost_outcome(message: str, exit_code: int | None = None) -> AttemptOutcome:
    """Return the outcome of a driver that wrote none. ``exit_code`` None: unknown."""
    return AttemptOutcome(exit_code=1 if exit_code is None else exit_code, kind=FailureKind.LOST, message=message)
