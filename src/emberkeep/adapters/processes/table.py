"""Which processes belong to one that we started, however far they tried to get away from it.

Four marks, any of which counts: the session of the leader (while the leader, alive or a zombie, still holds its pid, so
that the session's number cannot be another's), a parent or a session mate that belongs, having belonged at an earlier
look, and our marker in the environment (those that left the session and lost their parents have it). A process that
escapes all four has left its session, replaced its environment and lost its parent between two looks.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from emberkeep.base.process_identity import ProcessIdentity, ProcessStat, read_stat

MARKER_VARIABLE = "EMBERKEEP_PROCESS"

_PROC = Path("/proc")

Table = Mapping[int, ProcessStat]
"""All processes of the machine at one moment, by pid."""
Members = dict[int, int]
"""Pid → start ticks: which process is meant, also when the pid is another's later."""


def take_table() -> Table:
    """Read the kernel's table. Processes that end meanwhile are left out."""
    stats = (read_stat(int(entry.name)) for entry in _PROC.iterdir() if entry.name.isdigit())
    return {stat.pid: stat for stat in stats if stat is not None}


def carries_marker(pid: int, marker: str) -> bool:
    """Whether ``pid`` was started with our marker in its environment. False also when that cannot be read."""
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARKER_VARIABLE}={marker}".encode() in environ.split(b"\0")


def variable_of(pid: int, name: str) -> str | None:
    """A variable of the environment that ``pid`` was started with. None also when that cannot be read."""
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
    """Live processes that belong to ``leader`` (None: not known), it included.

    ``seen``: those found earlier. ``is_marked`` reads a process's environment; None: spare that cost.
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
    """Add the children of members, and the sessions of members: one that is not the leader's was made by a member."""
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
    """Send a signal to that very process; nothing when it is gone, even if another has its pid now.

    Returns False when we may not (it runs as another user).
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
