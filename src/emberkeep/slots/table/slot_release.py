"""Frees slots. A slot keeps its resources until its executor has provably ended."""

from __future__ import annotations

from emberkeep.slots.table.events import EndExecutor, ReportChanged, SlotFreed, TableEffect
from emberkeep.slots.table.slot import Slot, SlotState
from emberkeep.slots.table.state import TableState

_WITH_PROCESS = (SlotState.STARTING, SlotState.RUNNING, SlotState.RELEASING)


class SlotRelease:
    """Frees slots. A slot with a process is RELEASING until that process has ended. Part of the SlotTable."""

    def __init__(self, table: TableState) -> None:
        self._table = table

    def release(self, slot: Slot, *, unwanted: bool = False, attempt_ends: bool = False) -> list[TableEffect]:
        """Free a slot: at once if it has no process, else when its process has ended.

        ``unwanted``: its job continues without it, or no JobMaster has claimed it. ``attempt_ends``: see ``Slot``.
        """
        slot.attempt_ends = slot.attempt_ends or attempt_ends
        if slot.state is SlotState.RELEASING:
            return []
        if slot.state not in _WITH_PROCESS:
            return self.free(slot, unwanted=unwanted)
        self._table.move(slot, SlotState.RELEASING)
        return [self.end_executor(slot)]

    def release_unclaimed(self, slot: Slot) -> list[TableEffect]:
        """Release a slot that no JobMaster takes for its attempt.

        If no executor has used the slot, the local state that the slot took over stays for the job's next executors.
        """
        return self.release(slot, unwanted=slot.state is not SlotState.OFFERED)

    def end_executor(self, slot: Slot) -> EndExecutor:
        """Return the order to kill the executor in the slot."""
        if slot.executor_id is None:
            raise self._table.impossible(slot, "end its executor")
        return EndExecutor(*slot.attempt, slot.id, slot.executor_id)

    def free(self, slot: Slot, *, unwanted: bool = False) -> list[TableEffect]:
        """Remove a slot without a process from the table."""
        table = self._table
        ended_by_itself = slot.state is SlotState.EXITED and not slot.decommissioned and not unwanted
        # Nothing ever ran in a slot that was not accepted: anything kept for it was left by another slot's executor.
        never_used = slot.state is SlotState.OFFERED and not unwanted
        table.move(slot, None)
        del table.slots[slot.id]
        table.freed.append(slot.id)
        if not table.of_attempt(*slot.attempt):
            table.heard.pop(slot.attempt, None)
        may_return = ended_by_itself or never_used or slot.attempt_ends or table.fences.is_refused(*slot.attempt)
        return [SlotFreed(slot.allocation, may_return), ReportChanged()]
