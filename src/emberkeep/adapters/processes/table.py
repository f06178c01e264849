"""Find all processes that belong to the leader of a session, even those that tried to get away from it.

A process belongs to the leader if one of these is true:

- It is in the leader's session. This holds while the leader, alive or a zombie, still has its pid: no other session
  can have the same id before that ends.
- Its parent belongs to the leader, or another process of its session does.
- It belonged to the leader at an earlier check.
- It has our marker in its environment. This finds processes that left the session and lost their parents.

A process escapes if it leaves its session, replaces its environment and loses its parent between two checks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from emberkeep.base.files.errors import shortage
from emberkeep.base.processes.process_identity import ProcessIdentity, ProcessStat, read_stat

MARKER_VARIABLE = "EMBERKEEP_PROCESS"

_PROC = Path("/proc")

Table = Mapping[int, ProcessStat]
"""All processes of the machine at one moment, by pid."""
Members = dict[int, int]
"""Pid → start ticks. The pair identifies a process even after its pid was reused."""


def take_table() -> Table:
    """Read the kernel's process table. Processes that end during the reading are left out. Raises OSError."""
    stats = (read_stat(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit())
    return {stat.pid: stat for stat in stats if stat is not None}


def carries_marker(pid: int, marker: str) -> bool:
    """True if ``pid`` was started with our marker in its environment. False if it has ended or may not be looked at.

    Raises OSError if this process cannot read now, for example for want of descriptors.
    """
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError as error:
        if shortage(error):
            raise
        return False
    return f"{MARKER_VARIABLE}={marker}".encode() in environ.split(b"\0")


def variable_of(pid: int, name: str) -> str | None:
    """Return a variable of the environment that ``pid`` was started with. None if it is not set or cannot be read."""
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    mark = f"{name}=".encode()
    found = next((entry for entry in environ.split(b"\0") if entry.startswith(mark)), None)
    return None if found is None else found.removeprefix(mark).decode("utf-8", "replace")


def select_members(
    table: Table,
    leader: ProcessIdentity | None,
    seen: Members,
    is_marked: Callable[[int], bool] | None,
) -> Members:
    """Return the live processes that belong to ``leader``, with the leader itself.

    ``leader`` None means that it is unknown. ``seen`` are the members of an earlier check. ``is_marked`` reads a
    process's environment; None skips that costly step.
    """
    first = leader.start_ticks if leader is not None else 0
    young = {pid: stat for pid, stat in table.items() if stat.start_ticks >= first and pid != os.getpid()}
    holder = None if leader is None else table.get(leader.pid)
    session = holder.pid if holder is not None and holder.start_ticks == first else None
    found = {
        pid
        for pid, stat in young.items()
        if (session is not None and stat.session == session) or seen.get(pid) == stat.start_ticks
    }
    if is_marked is not None:
        found |= {pid for pid in young.keys() - found if is_marked(pid)}
    _add_kin(young, found)
    return {pid: young[pid].start_ticks for pid in found if not young[pid].is_dead}


def _add_kin(table: Table, found: set[int]) -> None:
    """Add the members' children, and the other processes in the members' sessions.

    A member's session is the leader's or was made by a member. This process's own session is the exception.
    """
    own_session = os.getsid(0)
    children: dict[int, list[int]] = {}
    sessions: dict[int, list[int]] = {}
    for pid, stat in table.items():
        children.setdefault(stat.parent, []).append(pid)
        sessions.setdefault(stat.session, []).append(pid)
    open_ends = list(found)
    while open_ends:
        pid = open_ends.pop()
        session = table[pid].session
        kin = children.get(pid, []) + (sessions.get(session, []) if session != own_session else [])
        open_ends += [other for other in kin if other not in found]
        found.update(kin)


def send_signal(pid: int, start_ticks: int, number: signal.Signals) -> bool:
    """Send a signal to exactly this process. Does nothing if it has ended, even if another process has its pid now.

    Returns False without permission (the process runs as another user).
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        stat = read_stat(pid)
        if stat is not None and stat.start_ticks == start_ticks:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(descriptor)
    return True
