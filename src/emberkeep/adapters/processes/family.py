"""A started process and the processes that belong to it, and the reaping of children."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from emberkeep.adapters.processes.table import (
    Members,
    Table,
    carries_marker,
    select_members,
    send_signal,
    take_table,
)
from emberkeep.base.errors import Fatal
from emberkeep.base.processes.priority import raise_to_normal
from emberkeep.base.processes.process_identity import ProcessIdentity, read_stat
from emberkeep.base.processes.waited_for import REAPING, WAITED_FOR

_PR_SET_CHILD_SUBREAPER = 36

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Exit:
    """The end of a process and of every process that belonged to it.

    ``exit_code``: negative: minus the signal; None: unknown, as it was not our child. ``exceeded_mb``: the memory limit
    of its control group, if the kernel has ended one of these processes because of it.
    """

    name: str
    exit_code: int | None
    exceeded_mb: int | None = None


OnExit = Callable[[Exit], None]


@dataclass(eq=False)
class Family:
    """A started process, the leader of its session, and the processes that belong to it.

    ``members`` and ``untouchable`` belong to the supervisor's thread, everything else to the event loop.
    """

    name: str
    marker: str
    leader: ProcessIdentity | None
    is_child: bool
    on_exit: OnExit | None
    pidfd: int | None = None
    leader_ended: bool = False
    kill_at: float | None = None  # loop time from which on all members are killed
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    members: Members = field(default_factory=dict)
    untouchable: set[int] = field(default_factory=set)  # pids of members that run as another user: we cannot kill them
    looks: int = 0  # checks of the members since the leader ended or the killing began

    @property
    def is_ours(self) -> bool:
        """True if this supervisor started or adopted the process; false for a leftover that it only stops."""
        return self.is_child or self.on_exit is not None

    def is_due(self, now: float) -> bool:
        return self.kill_at is not None and now >= self.kill_at

    def find_members(self, table: Table, *, read_environments: bool) -> None:
        is_marked = (lambda pid: carries_marker(pid, self.marker)) if read_environments else None
        self.members = select_members(table, self.leader, self.members, is_marked)
        for pid in self.untouchable:
            self.members.pop(pid, None)

    def raise_members(self) -> None:
        """Give all members the normal priority."""
        self.find_members(take_table(), read_environments=False)
        raise_to_normal(self.members)

    def kill_group(self) -> None:
        """Kill the leader's process group at once: no member can escape by forking.

        Does nothing if the leader's pid is free, or now belongs to another process.
        """
        stat = None if self.leader is None else read_stat(self.leader.pid)
        if stat is not None and self.leader is not None and stat.start_ticks == self.leader.start_ticks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(stat.pid, signal.SIGKILL)

    def kill_members(self) -> None:
        self.kill_group()
        for pid, start_ticks in list(self.members.items()):
            if not send_signal(pid, start_ticks, signal.SIGKILL):
                _log.warning("process_of_another_user_stays", process=self.name, pid=pid)
                self.untouchable.add(pid)
                del self.members[pid]


def reap_leader(process: Family) -> int:
    """Reap a leader that has ended and return its exit code; negative: minus the signal."""
    assert process.leader is not None  # noqa: S101
    with REAPING:
        _, status = os.waitpid(process.leader.pid, 0)
        WAITED_FOR.discard(process.leader.pid)
    return os.waitstatus_to_exitcode(status)


def reap_orphans(table: Table) -> None:
    """Reap zombies that became our children when their parents died."""
    own_session = os.getsid(0)
    for stat in table.values():
        if stat.parent == os.getpid() and stat.is_dead and stat.session != own_session:
            with REAPING, contextlib.suppress(ChildProcessError):
                if stat.pid not in WAITED_FOR:
                    os.waitpid(stat.pid, os.WNOHANG)


def become_subreaper() -> None:
    """Make this process, instead of init, the parent of orphans below it, so that it can reap them. Raises Fatal."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise Fatal(
            f"cannot become the reaper of orphans: {os.strerror(ctypes.get_errno())}", hint="use Linux 5.3 or newer"
        )
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited from a parent that ignores the signal: the kernel would discard exit codes.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
