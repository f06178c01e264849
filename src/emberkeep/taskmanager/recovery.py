"""What the table of an earlier life says about processes, and what is said of those that are not found."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.slots.table.events import DriverState, SlotState
from emberkeep.slots.table.machine import SlotTable
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, ProcessKey

NO_ROOM = "this task manager has less room than in its earlier life"
GONE = "ended, or was not started yet, while its task manager was away"


def recorded_processes(table: SlotTable) -> list[ProcessKey]:
    """Those that had been started, or were about to be. Executors first: the end of a driver frees all slots of its
    attempt."""
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
    """Those whose end is still to be told."""
    return frozenset(
        DriverKey(job_id=driver.job_id, attempt=driver.attempt)
        for driver in table.drivers.by_attempt.values()
        if driver.state is DriverState.EXITED
    )


def jobs_held(table: SlotTable) -> frozenset[JobId]:
    """Jobs that hold a slot, or of which a driver is listed."""
    held = {slot.allocation.job_id for slot in table.slots.values()}
    return frozenset(held | {job_id for job_id, _ in table.drivers.by_attempt})


def lost_outcome(message: str, exit_code: int | None = None) -> AttemptOutcome:
    """Of a driver that left none. ``exit_code`` None: not known."""
    return AttemptOutcome(exit_code=1 if exit_code is None else exit_code, kind=FailureKind.LOST, message=message)
