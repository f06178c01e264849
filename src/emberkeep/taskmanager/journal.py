"""Keeps a task manager's record on disk up to date, outside its event loop: one write at a time, in order.

Only the newest state matters: states that arrive during a write are combined into the next write.
"""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.base.errors import Absent, EmberkeepError, NewerFormat, RetryLater, Unavailable
from emberkeep.taskmanager.agent_record import AgentRecord
from emberkeep.taskmanager.ports import AgentStore

log = structlog.get_logger(__name__)

RETRY_PAUSE = 1.0  # seconds after a failed write
PATIENCE = 15  # writes in a row that may fail before what waits to be started is refused


class Journal:
    """Writes the newest record to its store while ``run`` runs. All methods belong to one event loop."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        self._newest: AgentRecord | None = None
        self._put = 0  # number of the newest state that was put
        self._written = 0  # number of the newest state on disk
        self._tried = 0  # number of the newest state whose write has succeeded or failed
        self._failures = 0  # writes in a row
        self._due = asyncio.Event()
        self._progress = asyncio.Condition()
        self.problem = ""  # why the last write failed; empty if it succeeded

    async def read(self) -> AgentRecord | None:
        """Return the record of the previous task manager process, or None if there is no usable record.

        Raises NewerFormat, Unavailable: the record may be intact, and deciding without it could kill processes that
        hold slots.
        """
        try:
            return await self._store.read()
        except Absent:
            return None
        except (NewerFormat, Unavailable):
            raise
        except EmberkeepError as error:
            log.error("cannot use the record of slots: the slots are lost and their processes end", reason=str(error))
            return None

    def put(self, record: AgentRecord) -> None:
        """Make ``record`` the next one to write. Nothing is written if it equals the last one."""
        if record == self._newest:
            return
        self._newest = record
        self._put += 1
        self._due.set()

    async def settled(self) -> None:
        """Return once all records that were put before this call, or newer ones, are on disk."""
        wanted = self._put
        async with self._progress:
            await self._progress.wait_for(lambda: self._written >= wanted)

    async def accepted(self) -> None:
        """Return once all records that were put before this call, or newer ones, are on disk.

        Raises RetryLater if so many writes in a row have failed that the disk may not take them for long.
        """
        wanted = self._put
        async with self._progress:
            await self._progress.wait_for(lambda: self._written >= wanted or self._failures >= PATIENCE)
        if self._written < wanted:
            raise RetryLater(f"the task manager cannot write its record: {self.problem}")

    async def tried(self) -> None:
        """Return once all records that were put before this call, or newer ones, are on disk or a write has failed."""
        wanted = self._put
        async with self._progress:
            await self._progress.wait_for(lambda: self._tried >= wanted)

    async def run(self) -> None:
        """Write new records until cancelled. A failed write is repeated; ``settled`` waits until it succeeds."""
        while True:
            await self._due.wait()
            self._due.clear()
            while self._written < self._put:
                await self._write()

    async def _write(self) -> None:
        number, record = self._put, self._newest
        assert record is not None, "something was put"  # noqa: S101
        try:
            await self._store.write(record)
        except EmberkeepError as error:
            log.error("cannot write the record of slots; trying again", reason=str(error))
            self.problem = str(error)
            self._failures += 1
            await self._note_tried(number)
            await asyncio.sleep(RETRY_PAUSE)
            return
        self.problem = ""
        self._failures = 0
        self._written = number
        await self._note_tried(number)

    async def _note_tried(self, number: int) -> None:
        async with self._progress:
            self._tried = number
            self._progress.notify_all()
