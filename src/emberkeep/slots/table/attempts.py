"""Ends attempts on a task manager: a newer attempt follows, a driver has ended, or the JobManager demands it."""

from __future__ import annotations

from emberkeep.base.ids import JobId
from emberkeep.slots.table.events import AttemptsOver, DriverEnded, ReportChanged, StopWanted, TableEffect
from emberkeep.slots.table.slot_release import SlotRelease
from emberkeep.slots.table.state import TableState


class Attempts:
    """Ends attempts: releases everything that they held, and refuses them from then on. Part of the SlotTable."""

    def __init__(self, table: TableState, releases: SlotRelease) -> None:
        self._table = table
        self._releases = releases

    def attempts_over(self, event: AttemptsOver, _: float) -> list[TableEffect]:
        return self._end(event.job_id, event.attempt)

    def driver_ended(self, event: DriverEnded, _: float) -> list[TableEffect]:
        if not self._table.drivers.ended(event):
            return []
        return [*self._end(event.job_id, event.attempt), ReportChanged()]

    def stop_wanted(self, event: StopWanted, _: float) -> list[TableEffect]:
        if (event.job_id, event.attempt) in self._table.drivers.by_attempt:
            return self._table.drivers.end(event.job_id, event.attempt, event.grace)
        return self._end(event.job_id, event.attempt)

    def _end(self, job_id: JobId, attempt: int) -> list[TableEffect]:
        """End this attempt and all older ones permanently."""
        self._table.fences.end(job_id, attempt)
        return self._clear_until(job_id, attempt)

    def supersede(self, job_id: JobId, attempt: int) -> list[TableEffect]:
        """Begin a newer attempt: release the slots and stop the drivers that older attempts still hold here."""
        self._table.fences.see(job_id, attempt)
        return self._clear_until(job_id, attempt - 1)

    def _clear_until(self, job_id: JobId, attempt: int) -> list[TableEffect]:
        effects = self._table.drivers.end_until(job_id, attempt)
        for slot in list(self._table.slots.values()):
            if slot.allocation.job_id == job_id and slot.allocation.attempt <= attempt:
                effects += self._releases.release(slot)
        return effects
