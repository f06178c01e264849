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
from emberkeep.slots.table.memory import MemoryLimit, MemoryUse, MemoryWatch, given_memory
from emberkeep.slots.table.state import TableState
from emberkeep.taskmanager.ports import ExecutorKey, ProcessKey

log = structlog.get_logger(__name__)

_SECONDS = 1.0  # between two looks
_MIB = 1024**2


class MeasuredProcesses(Protocol):
    """The drivers and executors that run here."""

    async def memory_mb(self) -> dict[ProcessKey, int]:
        """Return how many MiB each driver and executor uses, with all that it has started. Raises RetryLater."""

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
        available = self._available_mb()
        try:
            uses = await self._uses() if self._watch.wants(available) else {}
        except RetryLater:  # nothing is known about them now
            return
        for key, reason in self._watch.look(uses, available).items():
            log.warning("ending a process that uses more memory than it was given", process=str(key), reason=reason)
            with contextlib.suppress(RetryLater):  # this task manager ends, and the next one looks again
                await self._processes.end(key, reason)

    async def _uses(self) -> dict[ProcessKey, MemoryUse]:
        used = await self._processes.memory_mb()
        given = given_memory(self._table())
        found = {}
        for key, used_mb in used.items():
            holder = key.allocation_id if isinstance(key, ExecutorKey) else (key.job_id, key.attempt)
            if given_mb := given.get(holder, 0):
                found[key] = MemoryUse(used_mb, given_mb)
        return found
