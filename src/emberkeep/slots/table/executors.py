"""Follows the executor in each slot from its start to its end."""

from __future__ import annotations

from emberkeep.base.errors import Absent, Conflict
from emberkeep.slots.table.events import (
    ExecutorEnded,
    ExecutorStarted,
    LaunchExecutor,
    StartWanted,
    TableEffect,
    TellJobMaster,
)
from emberkeep.slots.table.slot import Slot, SlotState
from emberkeep.slots.table.slot_release import SlotRelease
from emberkeep.slots.table.state import TableState


class SlotExecutors:
    """Follows executors. A slot has one executor at a time, and no executor id twice. Part of the SlotTable."""

    def __init__(self, table: TableState, releases: SlotRelease) -> None:
        self._table = table
        self._releases = releases

    def start_wanted(self, event: StartWanted, now: float) -> list[TableEffect]:
        table = self._table
        table.fences.check(event.job_id, event.attempt)
        slot = table.slot_of(event.job_id, event.attempt, event.allocation_id)
        if slot is None or slot.state is SlotState.RELEASING:
            raise Absent(f"allocation {event.allocation_id} is not held here: it was released or not accepted in time")
        if slot.executor_id == event.executor_id:
            table.accept(slot, now)
            return []
        if slot.executor_id is not None and slot.state is not SlotState.EXITED:
            raise Conflict(f"allocation {event.allocation_id} already holds executor {slot.executor_id}")
        others = table.of_attempt(event.job_id, event.attempt)
        if any(event.executor_id in (other.executor_id, *other.former) for other in others):
            raise Conflict(f"executor {event.executor_id} lives in another slot, or has ended")
        table.accept(slot, now)  # the reply to the offer was lost or is late
        table.move(slot, SlotState.STARTING)
        if slot.executor_id is not None:
            slot.former = (*slot.former, slot.executor_id)
        slot.executor_id, slot.pid, slot.exit_code, slot.detail = event.executor_id, 0, None, ""
        slot.decommissioned = False
        return [LaunchExecutor(event.allocation_id, event.executor_id)]

    def executor_started(self, event: ExecutorStarted, _: float) -> list[TableEffect]:
        slot = self._slot_with(event)
        if slot is None:
            return []
        slot.pid, slot.start, slot.why_cold = event.pid, event.start, event.why_cold
        if slot.state is SlotState.RELEASING:  # released before there was a process to stop
            return [self._releases.end_executor(slot)]
        self._table.move(slot, SlotState.RUNNING)
        return _tell(slot)

    def executor_ended(self, event: ExecutorEnded, _: float) -> list[TableEffect]:
        slot = self._slot_with(event)
        if slot is None:
            return []
        if slot.state is SlotState.RELEASING:
            return self._releases.free(slot)
        self._table.move(slot, SlotState.EXITED)
        slot.exit_code, slot.detail = event.exit_code, event.detail
        return _tell(slot)

    def _slot_with(self, event: ExecutorStarted | ExecutorEnded) -> Slot | None:
        """Return the slot with this executor; None if no slot has it, or if the executor's end is known.

        An end may be reported before the start.
        """
        slot = self._table.slots.get(event.allocation_id)
        if slot is None or slot.executor_id != event.executor_id or slot.state is SlotState.EXITED:
            return None
        return slot


def _tell(slot: Slot) -> list[TableEffect]:
    """Notify the JobMaster, unless the slot is still on offer, because the offer itself reports the executor."""
    return [TellJobMaster(slot.id)] if slot.is_claimed else []
