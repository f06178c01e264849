"""The part of a SlotTable's state that outlives its process, as plain data from which the next instance restores it.

Times and pids are not kept, because they mean nothing to another process. The next instance finds out which processes
are alive. Until then an executor or driver that had been started counts as starting; its start or end arrives as an
event.
"""

from __future__ import annotations

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import ExecutorId, JobId
from emberkeep.slots.custom.addresses import ResourceAddresses, amounts_of
from emberkeep.slots.custom.amounts import fit
from emberkeep.slots.model import Allocation
from emberkeep.slots.table.driver_places import DriverState, HeldDriver
from emberkeep.slots.table.fences import FenceRecord
from emberkeep.slots.table.slot import Slot, SlotState
from emberkeep.slots.table.state import TableLimits, TableState


class SlotRecord(Compatible, frozen=True, kw_only=True):
    """One slot; see ``slot.Slot``."""

    allocation: Allocation
    state: SlotState
    executor_id: ExecutorId | None = None
    former: tuple[ExecutorId, ...] = ()
    exit_code: int | None = None
    detail: str = ""
    attempt_ends: bool = False


class DriverRecord(Compatible, frozen=True, kw_only=True):
    """One driver; see ``driver_places.HeldDriver``."""

    job_id: JobId
    attempt: int
    memory_mb: int
    state: DriverState
    stop_grace: float | None = None
    addresses: tuple[ResourceAddresses, ...] = ()


class TableRecord(Compatible, frozen=True, kw_only=True):
    """A whole table. ``epoch`` (in the job store ``lineage``) and ``fences`` determine which requests it refuses."""

    epoch: int = 0
    lineage: str = ""
    fences: tuple[FenceRecord, ...] = ()
    slots: tuple[SlotRecord, ...] = ()
    drivers: tuple[DriverRecord, ...] = ()


def record_table(table: TableState) -> TableRecord:
    """Return what must be kept of a table now."""
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
                addresses=driver.addresses,
            )
            for driver in table.drivers.by_attempt.values()
        ),
    )


def restore_table(limits: TableLimits, record: TableRecord, now: float) -> TableState:
    """Return the next instance's table. Every slot must be accepted again.

    The node may have less capacity than before. A driver without room is stopped; a slot without room is dropped.
    Running processes claim their room first, and processes that are ending claim it last.
    """
    table = TableState(limits)
    table.fences.admit_epoch(record.epoch, record.lineage)
    table.fences.recall(record.fences)
    for driver in sorted(record.drivers, key=lambda each: each.stop_grace is not None):
        table.take_driver(_driver(table, driver), now)
    for slot in sorted(record.slots, key=lambda each: (_rank(each), each.allocation.slot_index >= limits.slots)):
        index = _free_index(table, slot.allocation.slot_index)
        if index is not None and _has_room(table, slot):
            table.take_slot(_slot(slot, index, now + limits.recovery_timeout), now)
    return table


def recall_ended(table: TableState, job_id: JobId, attempt: int, now: float) -> None:
    """Add an ended driver that no record names, so that its end is reported until it is acknowledged."""
    table.fences.end(job_id, attempt)
    table.take_driver(HeldDriver(job_id, attempt, 0, DriverState.EXITED), now)


def _driver(table: TableState, record: DriverRecord) -> HeldDriver:
    ended = record.state is DriverState.EXITED
    fits = record.memory_mb <= table.free.memory_mb and fit(amounts_of(record.addresses), table.free.custom)
    if not ended and (table.drivers.is_full or not fits):
        table.fences.end(record.job_id, record.attempt)
        ended = True
    return HeldDriver(
        record.job_id,
        record.attempt,
        0 if ended else record.memory_mb,
        DriverState.EXITED if ended else DriverState.STARTING,
        stop_grace=record.stop_grace,
        addresses=() if ended else record.addresses,
    )


def _rank(record: SlotRecord) -> int:
    if record.state is SlotState.RELEASING:
        return 2
    return 0 if record.state in (SlotState.STARTING, SlotState.RUNNING) else 1


def _free_index(table: TableState, own: int) -> int | None:
    """Return the slot's own index; the first free index if that one is taken or too high; None if no index is free."""
    free = table.free_indices()
    return own if own in free else next(iter(free), None)


def _has_room(table: TableState, record: SlotRecord) -> bool:
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
        is_recovered=True,
    )
