"""Ends drivers and executors that use more memory than they were given, so that the machine keeps some."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import NoReturn, Protocol

import structlog

from emberkeep.base.configuration.options import MEMORY_LIMIT, MEMORY_RESERVE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import RetryLater
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.table.memory import MemoryLimit, MemoryUse, MemoryWatch, reason_of_kernel
from emberkeep.slots.table.state import TableState
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, ProcessKey

log = structlog.get_logger(__name__)

_SECONDS = 1.0  # between two looks
_MIB = 1024**2


class MeasuredProcesses(Protocol):
    """The drivers and executors that run here."""

    async def memory_mb(self) -> dict[ProcessKey, int]:
        """Return how many MiB each driver and executor uses, with all that it has started.

        Those whose memory the kernel limits are left out. Raises RetryLater.
        """

    async def exceeding(self) -> dict[ProcessKey, int]:
        """Return those of which the kernel has ended a process because of the limit, and that limit in MiB."""

    async def end(self, key: ProcessKey, reason: str) -> None:
        """End a process at once, and report this reason with its end. Raises RetryLater."""


class MemoryGuard:
    """Looks at all processes of a task manager while it runs."""

    def __init__(
        self,
        configuration: Configuration,
        processes: MeasuredProcesses,
        table: Callable[[], TableState],
        available_mb: Callable[[], int],
    ) -> None:
        """``available_mb`` returns what the machine has left."""
        limit = MemoryLimit(configuration[MEMORY_LIMIT])
        self._watch: MemoryWatch[ProcessKey] = MemoryWatch(limit, configuration[MEMORY_RESERVE] // _MIB)
        self._processes = processes
        self._table = table
        self._available_mb = available_mb

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Look once, and end what has to end."""
        # The kernel may end one Python worker and leave the rest of its executor: then each task would fail again.
        for key, limit_mb in (await self._processes.exceeding()).items():
            await self._end(key, reason_of_kernel(limit_mb, is_driver=isinstance(key, DriverKey)))
        available = self._available_mb()
        try:
            uses = await self._uses() if self._watch.wants(available) else {}
        except RetryLater:  # nothing is known about them now
            return
        for key, reason in self._watch.look(uses, available).items():
            await self._end(key, reason)

    async def _end(self, key: ProcessKey, reason: str) -> None:
        log.warning("ending a process that uses more memory than it was given", process=str(key), reason=reason)
        with contextlib.suppress(RetryLater):  # this task manager ends, and the next one looks again
            await self._processes.end(key, reason)

    async def _uses(self) -> dict[ProcessKey, MemoryUse]:
        used = await self._processes.memory_mb()
        found = {}
        for key, used_mb in used.items():
            given = resources_of(key, self._table())
            if given is not None and given.memory_mb:
                found[key] = MemoryUse(used_mb, given.memory_mb)
        return found


def resources_of(key: ProcessKey, table: TableState) -> ResourceProfile | None:
    """Return what a driver, which counts as one core, or an executor was given; None if the table does not know it."""
    if isinstance(key, ExecutorKey):
        slot = table.slots.get(key.allocation_id)
        return None if slot is None else slot.allocation.profile
    driver = table.drivers.by_attempt.get((key.job_id, key.attempt))
    return None if driver is None else ResourceProfile(cores=1, memory_mb=driver.memory_mb)
