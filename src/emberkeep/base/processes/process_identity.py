"""Identify a process: a pid alone is reused, so a process is its pid, its start time and the machine's boot.

Only reads Linux's /proc. Processes are started and stopped elsewhere.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec

from emberkeep.base.compatible import Compatible

_PROC = Path("/proc")
_DEAD_STATES = frozenset("ZXx")
_PF_EXITING = 0x4  # include/linux/sched.h


class ProcessIdentity(Compatible, frozen=True, kw_only=True):
    """One process. ``start_ticks``: clock ticks from boot to its start, as the kernel counts them."""

    pid: int
    start_ticks: int
    boot_id: str


class ProcessStat(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's report about a process at one moment."""

    pid: int
    state: str  # one letter: R, S, D, Z, …
    parent: int
    session: int
    start_ticks: int
    threads: int = 1
    is_ending: bool = False  # exiting: its files and connections are being closed, its exit code follows

    @property
    def is_dead(self) -> bool:
        """True if the process no longer runs. A zombie keeps its pid until its parent has read its exit code.

        ``state`` is that of the main thread. While other threads are left, the process's files and ports are still
        open: a replacement process would find the port in use.
        """
        return self.state in _DEAD_STATES and self.threads <= 1


def boot_id() -> str:
    """Return the id of the machine's current boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()


def read_stat(pid: int) -> ProcessStat | None:
    """Return what the kernel reports about ``pid``; None if there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name is in parentheses and may itself contain spaces and parentheses.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessStat(
        pid=pid,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
        threads=int(fields[17]),
        is_ending=bool(int(fields[6]) & _PF_EXITING),
    )


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of the live process ``pid``; None if no process or only a zombie has that pid."""
    stat = read_stat(pid)
    if stat is None or stat.is_dead:
        return None
    return ProcessIdentity(pid=pid, start_ticks=stat.start_ticks, boot_id=boot_id())


def own_identity() -> ProcessIdentity:
    """Return the identity of this process."""
    identity = identify(os.getpid())
    assert identity is not None, "this process is alive"  # noqa: S101
    return identity


def may_be_alive(identity: ProcessIdentity) -> bool:
    """True unless this process has certainly ended.

    A machine may hide the processes of other users (proc's ``hidepid``). This process may lack descriptors to look.
    """
    try:
        if boot_id() != identity.boot_id:
            return False
        if read_stat(identity.pid) is not None:
            return is_alive(identity)
        os.kill(identity.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def is_ending(identity: ProcessIdentity) -> bool:
    """True if exactly this process still runs, but exits or was sent SIGKILL: it runs no code of its own any longer.

    On a busy machine a process may take a second to end after that. Raises OSError.
    """
    stat = _live_stat(identity)
    if stat is None:
        return False
    return stat.is_ending or bool(_pending_signals(identity.pid) >> (signal.SIGKILL - 1) & 1)


def _pending_signals(pid: int) -> int:
    """Return the signals that a process has not acted on, as a mask. The one of SIGKILL stays until it has ended."""
    try:
        lines = (_PROC / str(pid) / "status").read_text("utf-8", "replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:")), 0)


def is_alive(identity: ProcessIdentity) -> bool:
    """True if exactly this process still runs; neither another process with the same pid nor a zombie counts.

    Raises OSError.
    """
    return _live_stat(identity) is not None


def _live_stat(identity: ProcessIdentity) -> ProcessStat | None:
    """Return what the kernel reports about exactly this process; None if it no longer runs. Raises OSError."""
    stat = read_stat(identity.pid)
    if stat is None or stat.is_dead or stat.start_ticks != identity.start_ticks:
        return None
    return stat if boot_id() == identity.boot_id else None
