"""Ends drivers and executors that use more memory than they were given, so that the machine keeps some."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import NoReturn, Protocol

import structlog

from emberkeep.base.configuration.options.task_managers import MEMORY_LIMIT, MEMORY_RESERVE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import RetryLater
from emberkeep.slots.model import ResourceProfile
from emberkeep.slots.table.memory import MemoryLimit, MemoryUse, MemoryWatch, reason_of_kernel
from emberkeep.slots.table.state import TableState
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey, ProcessKey

log = structlog.get_logger(__name__)

_SECONDS = 1.0  # between two looks at how much memory processes use
_LOOKS_AT_KILLS = 10  # meanwhile, at what the kernel has ended
_END_SECONDS = 10.0  # for which one process that ends keeps the guard from looking at the others
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
        *,
        end_seconds: float = _END_SECONDS,
    ) -> None:
        """``available_mb`` returns what the machine has left. ``end_seconds``: the longest wait for processes' ends."""
        limit = MemoryLimit(configuration[MEMORY_LIMIT])
        self._watch: MemoryWatch[ProcessKey] = MemoryWatch(limit, configuration[MEMORY_RESERVE] // _MIB)
        self._processes = processes
        self._table = table
        self._available_mb = available_mb
        self._ending: dict[ProcessKey, asyncio.Task[None]] = {}
        self._end_seconds = end_seconds

    async def run(self) -> NoReturn:
        try:
            while True:
                # A job whose tasks fail because the kernel ends their workers can be over within a second. Its history
                # has the reason only if the rest of the executor is ended before that.
                for _ in range(_LOOKS_AT_KILLS):
                    await asyncio.sleep(_SECONDS / _LOOKS_AT_KILLS)
                    await self.look_at_kills()
                await self.look()
        finally:
            for task in self._ending.values():
                task.cancel()

    async def look_at_kills(self) -> None:
        """End the processes of which the kernel has ended a part because of the limit."""
        # The kernel may end one Python worker and leave the rest of its executor: then each task would fail again.
        limits = await self._processes.exceeding()
        reasons = {key: reason_of_kernel(mb, is_driver=isinstance(key, DriverKey)) for key, mb in limits.items()}
        await self._end(reasons)

    async def look(self) -> None:
        """Look once at how much memory processes use, and end those that have to end."""
        available = self._available_mb()
        try:
            uses = await self._uses() if self._watch.wants(available) else {}
        except RetryLater:  # nothing is known about them now
            return
        await self._end(self._watch.look(uses, available))

    async def _end(self, reasons: Mapping[ProcessKey, str]) -> None:
        """End processes that do not end already. Wait until their memory is free, but not for ever.

        A killed process that waits for a file system ends only once that answers.
        """
        for key in [key for key, task in self._ending.items() if task.done()]:
            self._ending.pop(key).result()
        begun = {key: reason for key, reason in reasons.items() if key not in self._ending}
        for key, reason in begun.items():
            log.warning("ending a process that uses more memory than it was given", process=str(key), reason=reason)
            self._ending[key] = asyncio.create_task(self._end_one(key, reason), name=f"end {key}")
        if begun:
            await asyncio.wait([self._ending[key] for key in begun], timeout=self._end_seconds)

    async def _end_one(self, key: ProcessKey, reason: str) -> None:
        with contextlib.suppress(RetryLater):  # this task manager ends, and the next one looks again
            await self._processes.end(key, reason)

    async def _uses(self) -> dict[ProcessKey, MemoryUse]:
        """Return what each process uses and was given, without those that are ending."""
        used = await self._processes.memory_mb()
        found = {}
        for key, used_mb in used.items():
            given = resources_of(key, self._table())
            is_ending = key in self._ending and not self._ending[key].done()
            if given is not None and given.memory_mb and not is_ending:
                found[key] = MemoryUse(used_mb, given.memory_mb)
        return found


def resources_of(key: ProcessKey, table: TableState) -> ResourceProfile | None:
    """Return what a driver, which counts as one core, or an executor was given; None if the table does not know it."""
    if isinstance(key, ExecutorKey):
        slot = table.slots.get(key.allocation_id)
        return None if slot is None else slot.allocation.profile
    driver = table.drivers.by_attempt.get((key.job_id, key.attempt))
    return None if driver is None else ResourceProfile(cores=1, memory_mb=driver.memory_mb)
