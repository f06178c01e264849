"""Reports that a task manager makes of its table: for the JobManager, and of an executor for its JobMaster."""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol.messages.task_manager_reports import (
    DriverReport,
    ExecutorReport,
    ProcessState,
    TaskManagerReport,
)
from emberkeep.slots.custom.addresses import amounts_of
from emberkeep.slots.table.driver_places import HeldDriver
from emberkeep.slots.table.slot import Slot, SlotState
from emberkeep.slots.table.state import TableState
from emberkeep.taskmanager.ports import DriverKey, NodeUsage

_REPORTED = {
    SlotState.STARTING: ProcessState.STARTING,
    SlotState.RUNNING: ProcessState.RUNNING,
    SlotState.EXITED: ProcessState.EXITED,
}


def task_manager_report(
    table: TableState,
    left: tuple[JobId, ...],
    outcomes: Mapping[DriverKey, AttemptOutcome],
    usage: NodeUsage,
    sequence: int,
    adopted: int,
) -> TaskManagerReport:
    """Return the report of everything that this task manager holds, for the JobManager.

    Slots that are being released count as held.
    """
    return TaskManagerReport(
        sequence=sequence,
        allocations=tuple(slot.allocation for slot in table.slots.values()),
        drivers=tuple(_driver_report(driver, outcomes) for driver in table.drivers.by_attempt.values()),
        leaving=table.closing,
        draining=table.draining,
        disk_free_mb=usage.disk_free_mb,
        disk_total_mb=usage.disk_total_mb,
        memory_used_mb=usage.memory_used_mb,
        memory_total_mb=usage.memory_total_mb,
        cpu_percent=usage.cpu_percent,
        blobs=usage.blobs,
        adopted=adopted,
        local_state=usage.local_state,
        state_gateway=usage.state_gateway,
        connections_rejected=usage.connections_rejected,
        standbys=usage.standbys,
        reserved_standbys=usage.reserved_standbys,
        left=left,
    )


def _driver_report(driver: HeldDriver, outcomes: Mapping[DriverKey, AttemptOutcome]) -> DriverReport:
    return DriverReport(
        job_id=driver.job_id,
        attempt=driver.attempt,
        state=ProcessState[driver.state.name],
        pid=driver.pid,
        memory_mb=driver.memory_mb,
        custom=amounts_of(driver.addresses),
        outcome=outcomes.get(DriverKey(job_id=driver.job_id, attempt=driver.attempt)),
        start=driver.start,
        why_cold=driver.why_cold,
    )


def executor_report(slot: Slot) -> ExecutorReport | None:
    """Return an executor's report for its JobMaster; None if the slot has no executor or is being released."""
    state = _REPORTED.get(slot.state)
    if state is None or slot.executor_id is None:
        return None
    return ExecutorReport(
        allocation_id=slot.allocation.id,
        executor_id=slot.executor_id,
        state=state,
        pid=slot.pid,
        exit_code=slot.exit_code,
        detail=slot.detail,
        start=slot.start,
        why_cold=slot.why_cold,
    )
