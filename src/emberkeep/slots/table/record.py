"""What of a SlotTable outlives its process: as plain data, out of a table and into the table of the next life.

Times and pids are not kept: they mean nothing to another process. What lives is found by looking; until then an
executor or driver that had been started counts as being started, and its start or end comes as an event.
"""

from __future__ import annotations

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import ExecutorId, JobId
from emberkeep.slots.model import Allocation
from emberkeep.slots.table.events import DriverPlace, DriverState, Slot, SlotState
from emberkeep.slots.table.fences import FenceRecord
from emberkeep.slots.table.machine import SlotTable, TableLimits


class SlotRecord(Compatible, frozen=True, kw_only=True):
    """One slot; see ``table_events.Slot``."""

    allocation: Allocation
    state: SlotState
    executor_id: ExecutorId | None = None
    former: tuple[ExecutorId, ...] = ()
    exit_code: int | None = None
    detail: str = ""
    attempt_ends: bool = False


class DriverRecord(Compatible, frozen=True, kw_only=True):
    """One driver; see ``table_events.DriverPlace``."""

    job_id: JobId
    attempt: int
    memory_mb: int
    state: DriverState
    stop_grace: float | None = None


class TableRecord(Compatible, frozen=True, kw_only=True):
    """A whole table. ``epoch`` (of the job store ``lineage``) and ``fences``: whom it refuses."""

    epoch: int = 0
    lineage: str = ""
    fences: tuple[FenceRecord, ...] = ()
    slots: tuple[SlotRecord, ...] = ()
    drivers: tuple[DriverRecord, ...] = ()


def record_table(table: SlotTable) -> TableRecord:
    """What is to be kept of a table at present."""
    return TableRecord(
        epoch=table.fences.epoch,
        lineage=table.fences.lineage,
        fences=table.fences.records(),
        slots=tuple(
            SlotRecord(
                allocation=slot.allocation,
                state=slot.state,
                executor_id=slot.executor_id,
                former=slot.former,
                exit_code=slot.exit_code,
                detail=slot.detail,
                attempt_ends=slot.attempt_ends,
            )
            for slot in table.slots.values()
        ),
        drivers=tuple(
            DriverRecord(
                job_id=driver.job_id,
                attempt=driver.attempt,
                memory_mb=driver.memory_mb,
                state=driver.state,
                stop_grace=driver.stop_grace,
            )
            for driver in table.drivers.by_attempt.values()
        ),
    )


def restore_table(limits: TableLimits, record: TableRecord, now: float) -> SlotTable:
    """The table of the next life, with every slot to be accepted anew.

    The node may have been given less meanwhile: a driver without room is to be ended, a slot without room is gone. What
    works claims its room first, and what is to end last.
    """
    table = SlotTable(limits)
    table.fences.admit_epoch(record.epoch, record.lineage)
    table.fences.recall(record.fences)
    for driver in sorted(record.drivers, key=lambda each: each.stop_grace is not None):
        table.take_driver(_driver(table, driver), now)
    for slot in sorted(record.slots, key=lambda each: (_rank(each), each.allocation.slot_index >= limits.slots)):
        index = _free_index(table, slot.allocation.slot_index)
        if index is not None and _has_room(table, slot):
            table.take_slot(_slot(slot, index, now + limits.recovery_timeout), now)
    return table


def recall_ended(table: SlotTable, job_id: JobId, attempt: int, now: float) -> None:
    """Enter a driver that has ended and that no record tells of, so that its end is told until it is acknowledged."""
    table.fences.end(job_id, attempt)
    table.take_driver(DriverPlace(job_id, attempt, 0, DriverState.EXITED), now)


def _driver(table: SlotTable, record: DriverRecord) -> DriverPlace:
    ended = record.state is DriverState.EXITED
    if not ended and (table.drivers.is_full or record.memory_mb > table.free.memory_mb):
        table.fences.end(record.job_id, record.attempt)
        ended = True
    return DriverPlace(
        record.job_id,
        record.attempt,
        0 if ended else record.memory_mb,
        DriverState.EXITED if ended else DriverState.STARTING,
        stop_grace=record.stop_grace,
    )


def _rank(record: SlotRecord) -> int:
    if record.state is SlotState.RELEASING:
        return 2
    return 0 if record.state in (SlotState.STARTING, SlotState.RUNNING) else 1


def _free_index(table: SlotTable, own: int) -> int | None:
    """Its own number, or the first free one where that is another's or too high; None: there is none."""
    taken = {slot.allocation.slot_index for slot in table.slots.values()}
    free = [index for index in range(table.limits.slots) if index not in taken]
    return own if own in free else next(iter(free), None)


def _has_room(table: SlotTable, record: SlotRecord) -> bool:
    allocation = record.allocation
    fenced = table.fences.is_refused(allocation.job_id, allocation.attempt)
    return allocation.profile.fits_in(table.free) and (not fenced or record.state is SlotState.RELEASING)


def _slot(record: SlotRecord, index: int, claim_until: float) -> Slot:
    return Slot(
        msgspec.structs.replace(record.allocation, slot_index=index),
        SlotState.STARTING if record.state is SlotState.RUNNING else record.state,
        claim_until,
        executor_id=record.executor_id,
        former=record.former,
        exit_code=record.exit_code,
        detail=record.detail,
        attempt_ends=record.attempt_ends,
    )
