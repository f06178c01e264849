"""The drivers on a task manager, as part of its SlotTable: places, memory, and progress of each driver's end."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId
from emberkeep.slots.custom.addresses import ResourceAddresses
from emberkeep.slots.model import ProcessStart
from emberkeep.slots.table.events import (
    DriverEnded,
    DriverStarted,
    EndDriver,
    TableEffect,
)


class DriverState(enum.Enum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    EXITED = "EXITED"  # uses nothing; kept until the JobManager has acknowledged its end


@dataclass
class HeldDriver:
    job_id: JobId
    attempt: int
    memory_mb: int  # reserved; 0 once it has ended
    state: DriverState
    pid: int = 0
    stop_grace: float | None = None  # seconds that it was given to stop; None: not asked
    start: ProcessStart | None = None  # how it got its process, None if unknown
    why_cold: str = ""
    addresses: tuple[ResourceAddresses, ...] = ()  # of custom resources; none once it has ended


class DriverPlaces:
    """The drivers on a task manager, with their places and memory.

    A driver uses both until it has provably ended, and is reported until its end is acknowledged.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self.by_attempt: dict[tuple[JobId, int], HeldDriver] = {}

    @property
    def memory_mb(self) -> int:
        """MiB reserved by living drivers."""
        return sum(driver.memory_mb for driver in self.by_attempt.values())

    @property
    def addresses(self) -> list[ResourceAddresses]:
        """Addresses of custom resources that drivers have."""
        return [held for driver in self.by_attempt.values() for held in driver.addresses]

    def living(self) -> list[HeldDriver]:
        return [driver for driver in self.by_attempt.values() if driver.state is not DriverState.EXITED]

    def is_alive(self, job_id: JobId, attempt: int) -> bool:
        driver = self.by_attempt.get((job_id, attempt))
        return driver is not None and driver.state is not DriverState.EXITED

    @property
    def is_full(self) -> bool:
        return len(self.living()) >= self.places

    def check_free(self) -> None:
        """Raise Conflict when all places are taken."""
        if self.is_full:
            raise Conflict(f"all {self.places} driver places are taken")

    def started(self, event: DriverStarted) -> list[TableEffect]:
        driver = self.by_attempt.get((event.job_id, event.attempt))
        if driver is None or driver.state is not DriverState.STARTING:
            return []  # its end was reported before its start
        driver.state, driver.pid = DriverState.RUNNING, event.pid
        driver.start, driver.why_cold = event.start, event.why_cold
        if driver.stop_grace is None:
            return []
        return [EndDriver(event.job_id, event.attempt, driver.stop_grace)]  # asked to stop before it had a process

    def ended(self, event: DriverEnded) -> bool:
        """Note that a driver has ended. Return True if that was not known before."""
        if not self.is_alive(event.job_id, event.attempt):
            return False
        driver = self.by_attempt[(event.job_id, event.attempt)]
        driver.state, driver.memory_mb, driver.addresses = DriverState.EXITED, 0, ()
        return True

    def end(self, job_id: JobId, attempt: int, grace: float) -> list[TableEffect]:
        """Ask a driver to stop within ``grace`` seconds, unless an earlier request gave it this time or less."""
        driver = self.by_attempt.get((job_id, attempt))
        if driver is None or driver.state is DriverState.EXITED:
            return []
        if driver.stop_grace is not None and driver.stop_grace <= grace:
            return []
        return self.end_again(driver, grace)

    def end_again(self, driver: HeldDriver, grace: float) -> list[TableEffect]:
        driver.stop_grace = grace
        return [EndDriver(driver.job_id, driver.attempt, grace)]

    def end_until(self, job_id: JobId, attempt: int) -> list[TableEffect]:
        """Kill the drivers of this attempt and of all older ones."""
        return [effect for key in list(self._until(job_id, attempt)) for effect in self.end(*key, 0.0)]

    def acknowledge(self, job_id: JobId, attempt: int) -> None:
        """Forget an ended driver: the consequences are in the job store, so its end no longer needs to be reported."""
        driver = self.by_attempt.get((job_id, attempt))
        if driver is not None and driver.state is DriverState.EXITED:
            del self.by_attempt[(job_id, attempt)]

    def _until(self, job_id: JobId, attempt: int) -> Iterator[tuple[JobId, int]]:
        return (key for key in self.by_attempt if key[0] == job_id and key[1] <= attempt)
