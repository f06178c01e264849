"""A task manager's record without a disk: encoded as on a disk, and read by the next process of the task manager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emberkeep.base.errors import Absent, EmberkeepError
from emberkeep.taskmanager.agent_record import AgentRecord, decode, encode


class MemoryAgentStore:
    """Implements ``taskmanager.ports.AgentStore``. A write takes ``seconds``; if cancelled, the old record stays."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.seconds = 0.0
        self.problem: EmberkeepError | None = None  # raised by writes while set
        self.unreadable: EmberkeepError | None = None  # raised by reads while set
        self.writes = 0
        self.on_write: list[Callable[[AgentRecord], None]] = []

    async def read(self) -> AgentRecord:
        if self.unreadable is not None:
            raise self.unreadable
        if self.data is None:
            raise Absent("nothing was written")
        return decode(self.data, where="memory")

    async def write(self, record: AgentRecord) -> None:
        data = encode(record)
        await asyncio.sleep(self.seconds)
        if self.problem is not None:
            raise self.problem
        self.data = data
        self.writes += 1
        for told in self.on_write:
            told(record)
