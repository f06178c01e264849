"""Gives slots and driver places to attempts, as the JobManager orders. The totals are never exceeded."""

from __future__ import annotations

from emberkeep.base.errors import Conflict
from emberkeep.slots.custom.addresses import choose
from emberkeep.slots.custom.amounts import fit, said
from emberkeep.slots.model import Allocation
from emberkeep.slots.table.attempts import Attempts
from emberkeep.slots.table.driver_places import DriverState, HeldDriver
from emberkeep.slots.table.events import (
    LaunchDriver,
    ReportChanged,
    ReserveDriver,
    ReserveSlot,
    SlotBegun,
    TableEffect,
)
from emberkeep.slots.table.slot import Slot, SlotState
from emberkeep.slots.table.state import TableState


class Reservations:
    """Reserves slots and driver places. An order that arrives twice takes effect once. Part of the SlotTable."""

    def __init__(self, table: TableState, attempts: Attempts) -> None:
        self._table = table
        self._attempts = attempts

    def reserve_slot(self, event: ReserveSlot, now: float) -> list[TableEffect]:
        table = self._table
        table.fences.check(event.job_id, event.attempt)
        known = table.slots.get(event.allocation_id)
        if known is not None:
            if known.attempt != (event.job_id, event.attempt):
                raise Conflict(f"allocation {event.allocation_id} belongs to job {known.allocation.job_id}")
            return []
        if event.allocation_id in table.freed:
            raise Conflict(f"allocation {event.allocation_id} was given back: this order comes late")
        table.check_open()
        free = table.free_indices()
        if not free:
            raise Conflict(f"all {table.limits.slots} slots are taken")
        if not event.profile.fits_in(table.free):
            raise Conflict(f"a slot of {event.profile} does not fit in what is free: {table.free}")
        effects = self._attempts.supersede(event.job_id, event.attempt)
        allocation = Allocation(
            id=event.allocation_id,
            slot_index=free[0],
            job_id=event.job_id,
            attempt=event.attempt,
            profile=event.profile,
            job_master=event.job_master,
            addresses=choose(table.limits.addresses, table.held_addresses, event.profile.custom),
        )
        table.take_slot(Slot(allocation, SlotState.OFFERED, now + table.limits.slot_timeout), now)
        return [*effects, SlotBegun(allocation), ReportChanged()]

    def reserve_driver(self, event: ReserveDriver, now: float) -> list[TableEffect]:
        table = self._table
        table.fences.check(event.job_id, event.attempt)
        if (event.job_id, event.attempt) in table.drivers.by_attempt:
            return []
        table.check_open()
        table.drivers.check_free()
        if event.memory_mb > table.free.memory_mb:
            raise Conflict(f"a driver of {event.memory_mb} MiB does not fit in what is free: {table.free}")
        if not fit(event.custom, table.free.custom):
            raise Conflict(f"a driver with {said(event.custom)} does not fit in what is free: {table.free}")
        effects = self._attempts.supersede(event.job_id, event.attempt)
        addresses = choose(table.limits.addresses, table.held_addresses, event.custom)
        driver = HeldDriver(event.job_id, event.attempt, event.memory_mb, DriverState.STARTING, addresses=addresses)
        table.take_driver(driver, now)
        return [*effects, LaunchDriver(event.job_id, event.attempt), ReportChanged()]
