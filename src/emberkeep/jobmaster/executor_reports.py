"""Translates a task manager's report about an executor into the form that the slot pool takes."""

from __future__ import annotations

from emberkeep.protocol.messages.task_manager_reports import ExecutorReport, ProcessState
from emberkeep.slots.pool.events import FoundExecutor
from emberkeep.slots.pool.held_slot import ExecutorState


def found_executor(report: ExecutorReport) -> FoundExecutor:
    """Return the reported executor. Its state is None if it has ended."""
    ended = report.state is ProcessState.EXITED
    return FoundExecutor(
        report.allocation_id,
        report.executor_id,
        None if ended else ExecutorState[report.state.name],
        report.pid,
        report.exit_code,
        report.detail,
        report.start,
        report.why_cold,
    )
