"""Find processes that a killed supervisor left running, and remove the records of those that have ended.

A pid alone never identifies a process.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.adapters.processes.start import RECORD_SUFFIX, read_process_record, remove_record
from emberkeep.adapters.processes.table import Members, Table, carries_marker, select_members, take_table
from emberkeep.base.errors import Absent, Fatal
from emberkeep.base.processes.process_identity import ProcessIdentity, boot_id

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Leftover:
    """Processes that an earlier supervisor left running.

    ``leader`` is None if the record is incomplete or damaged; the processes were then found by their marker.
    """

    name: str
    marker: str
    leader: ProcessIdentity | None
    members: Members  # those that were alive in the process table

    @property
    def is_led(self) -> bool:
        """True if the leader is known and was alive, so that another supervisor can adopt the process."""
        return self.leader is not None and self.members.get(self.leader.pid) == self.leader.start_ticks


def find_leftovers(directory: Path, watched: AbstractSet[str]) -> list[Leftover]:
    """Return the leftovers whose markers are not in ``watched``, and remove the records of processes that have ended.

    Blocks. Raises Unavailable if a record cannot be read now.
    """
    for temporary in directory.glob(".*.tmp"):
        temporary.unlink(missing_ok=True)
    table = take_table()
    found = []
    for path in sorted(directory.glob(f"*{RECORD_SUFFIX}")):
        marker = path.name.removesuffix(RECORD_SUFFIX)
        if marker in watched:
            continue
        leftover = _look(path, marker, table)
        if leftover is not None and leftover.members:
            found.append(leftover)
        else:
            remove_record(path)
    return found


def _look(path: Path, marker: str, table: Table) -> Leftover | None:
    name, leader = marker.rpartition("@")[0], None
    try:
        record = read_process_record(path)
        name, leader = record.name, record.identity
    except Absent:
        return None
    except Fatal as error:
        _log.error("process_record_unreadable", reason=str(error))
    if leader is not None and leader.boot_id != boot_id():
        return None
    members = select_members(table, leader, {}, lambda pid: carries_marker(pid, marker))
    return Leftover(name, marker, leader, members)
