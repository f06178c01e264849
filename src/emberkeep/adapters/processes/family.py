"""One started process with its kin, and the reaping of children: what a supervisor keeps about each."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from emberkeep.adapters.processes.start import LEADERS, REAPING
from emberkeep.adapters.processes.table import Members, Table, carries_marker, select_members, send_signal
from emberkeep.base.errors import Fatal
from emberkeep.base.process_identity import ProcessIdentity, read_stat

_PR_SET_CHILD_SUBREAPER = 36

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Exit:
    """A process has ended and nothing of its session is left."""

    name: str
    exit_code: int | None  # negative: minus the signal; None: it was not our child, so nobody knows


OnExit = Callable[[Exit], None]


@dataclass(eq=False)
class Family:
    """One leader and its kin. ``members`` and ``untouchable`` are the supervisor's thread's, the rest is the loop's."""

    name: str
    marker: str
    leader: ProcessIdentity | None
    is_child: bool
    on_exit: OnExit | None
    pidfd: int | None = None
    leader_ended: bool = False
    kill_at: float | None = None  # loop time from which on everything is killed
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    members: Members = field(default_factory=dict)
    untouchable: set[int] = field(default_factory=set)
    looks: int = 0  # since the leader ended or the killing began

    @property
    def is_ours(self) -> bool:
        """Started or adopted, not just to be ended."""
        return self.is_child or self.on_exit is not None

    def is_due(self, now: float) -> bool:
        return self.kill_at is not None and now >= self.kill_at

    def find_members(self, table: Table, *, read_environments: bool) -> None:
        is_marked = (lambda pid: carries_marker(pid, self.marker)) if read_environments else None
        self.members = select_members(table, self.leader, self.members, is_marked)
        for pid in self.untouchable:
            self.members.pop(pid, None)

    def kill_group(self) -> None:
        """Kill the leader's process group as one, which no forking escapes. Nothing when the leader's pid is free."""
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
    """The exit code of a leader that has ended; negative: minus the signal."""
    assert process.leader is not None  # noqa: S101
    with REAPING:
        _, status = os.waitpid(process.leader.pid, 0)
        LEADERS.discard(process.leader.pid)
    return os.waitstatus_to_exitcode(status)


def reap_orphans(table: Table) -> None:
    """Reap zombies that became our children when their parents died."""
    own_session = os.getsid(0)
    for stat in table.values():
        if stat.parent == os.getpid() and stat.is_dead and stat.session != own_session:
            with REAPING, contextlib.suppress(ChildProcessError):
                if stat.pid not in LEADERS:
                    os.waitpid(stat.pid, os.WNOHANG)


def become_subreaper() -> None:
    """Orphans below this process become its children instead of init's, so that it can reap them. Raises Fatal."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise Fatal(
            f"cannot become the reaper of orphans: {os.strerror(ctypes.get_errno())}", hint="Linux 5.3 or newer"
        )
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited from a parent that ignored it: the kernel would throw exit codes away.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
