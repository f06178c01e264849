"""Keeps a task manager's record on disk up to date, beside its event loop: one write at a time, in order.

States that come while one is being written are gathered into the next write: only the newest one counts.
"""

from __future__ import annotations

import asyncio

import structlog

from emberkeep.base.errors import Absent, EmberkeepError, NewerFormat, Unavailable
from emberkeep.taskmanager.agent_record import AgentRecord
from emberkeep.taskmanager.ports import AgentStore

log = structlog.get_logger(__name__)

RETRY_PAUSE = 1.0  # seconds after a write that failed


class Journal:
    """``run`` it; ``put`` and ``settled`` belong to the same event loop."""

    def __init__(self, store: AgentStore) -> None:
        self._store = store
        self._newest: AgentRecord | None = None
        self._put = 0  # number of the newest state
        self._written = 0  # number of the newest one on disk
        self._due = asyncio.Event()
        self._progress = asyncio.Condition()
        self.problem = ""  # why the last write failed

    async def read(self) -> AgentRecord | None:
        """What the earlier life has left; None when there is nothing, or nothing that can be relied on. Raises
        NewerFormat, Unavailable: whatever is concluded without it could end processes that slots stand for."""
        try:
            return await self._store.read()
        except Absent:
            return None
        except (NewerFormat, Unavailable):
            raise
        except EmberkeepError as error:
            log.error("the record of slots cannot be used: they count as lost, their processes end", reason=str(error))
            return None

    def put(self, record: AgentRecord) -> None:
        """This is the state now. Equal to the last one: nothing is written."""
        if record == self._newest:
            return
        self._newest = record
        self._put += 1
        self._due.set()

    async def settled(self) -> None:
        """Return once everything that was put before is on disk."""
        wanted = self._put
        async with self._progress:
            await self._progress.wait_for(lambda: self._written >= wanted)

    async def run(self) -> None:
        """Write until cancelled. A disk that refuses is tried again: what waits for it is not done meanwhile."""
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
            log.error("the record of slots cannot be written; trying again", reason=str(error))
            self.problem = str(error)
            await asyncio.sleep(RETRY_PAUSE)
            return
        self.problem = ""
        async with self._progress:
            self._written = number
            self._progress.notify_all()
