"""The files in a task manager's working directory that its next process reads.

``slots.record`` has what the next process takes over. ``agent.record`` names the current process and its port: the next
process binds the same port again, and drivers check whether their task manager is alive.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Fatal, NewerFormat
from emberkeep.base.files.durable import read_record, remove_leftovers, write_record
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.base.ids import InstanceId
from emberkeep.base.processes.process_identity import ProcessIdentity
from emberkeep.taskmanager import agent_record
from emberkeep.taskmanager.agent_record import AgentRecord

AGENT_KIND, AGENT_VERSION = "task-manager-agent", 1


class SlotsFile:
    """Implements ``taskmanager.ports.AgentStore``. ``files`` writes the record."""

    def __init__(self, path: Path, files: FileOps = SYSTEM_FILES) -> None:
        self._path = path
        self._files = files
        self._read: bytes | None = None

    async def read(self) -> AgentRecord:
        return await asyncio.to_thread(self.load)

    def load(self) -> AgentRecord:
        """Like ``read``, but blocks."""
        remove_leftovers(self._path)
        payload = read_record(self._path, agent_record.RECORD_KIND, agent_record.RECORD_VERSION)
        record = agent_record.decode(payload, where=str(self._path))
        self._read = payload
        return record

    async def write(self, record: AgentRecord) -> None:
        await asyncio.to_thread(self.store, record)

    def store(self, record: AgentRecord) -> None:
        """Like ``write``, but blocks."""
        payload = agent_record.encode(record, self._read)
        write_record(self._path, agent_record.RECORD_KIND, agent_record.RECORD_VERSION, payload, files=self._files)


class AgentLife(Compatible, frozen=True, kw_only=True):
    """One task manager process. ``port``: its RPC port."""

    instance: InstanceId
    process: ProcessIdentity
    port: int


def write_agent_life(path: Path, life: AgentLife, files: FileOps = SYSTEM_FILES) -> None:
    """Write ``agent.record``, which drivers of other users read, too. Raises Fatal."""
    write_record(path, AGENT_KIND, AGENT_VERSION, msgspec.json.encode(life), mode=0o644, files=files)


def read_agent_life(path: Path) -> AgentLife | None:
    """Return the newest task manager process; None if it is not recorded or the record is damaged.

    Blocks. Raises NewerFormat, Unavailable.
    """
    try:
        return from_json(read_record(path, AGENT_KIND, AGENT_VERSION), AgentLife)
    except NewerFormat:
        raise
    except (Absent, Fatal, msgspec.DecodeError):
        return None
