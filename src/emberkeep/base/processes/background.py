"""Turns this process into a background process, which gives way to all others and ends with its parent.

Everything that the process starts afterwards inherits its priorities, but not the bond to its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

from emberkeep.base.processes.priority import set_session_nice

_PR_SET_PDEATHSIG = 1
_LOWEST = 19
_OWN = Path("/proc/self")


def give_way() -> None:
    """Use processors and disks only while no other process needs them; be the first to go if memory runs out.

    A setting that the system forbids is skipped. Start this process as the leader of its own session: Linux may share
    processors among sessions first, and then a process's own priority counts only within its session.
    """
    os.setpriority(os.PRIO_PROCESS, 0, _LOWEST)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        (_OWN / "oom_score_adj").write_text("1000")
    set_session_nice(os.getpid(), _LOWEST)


def end_with_parent(parent: int) -> None:
    """Let the kernel send SIGTERM to this process as soon as its parent ends. Exit if that has happened already.

    ``parent`` is the pid with which this process was started. The kernel watches the thread that started this process:
    if that thread ends before its process does, the signal comes then.
    """
    _signal_at_end_of_parent(signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which has started this one, has ended")


def outlive_parent() -> None:
    """Undo ``end_with_parent``: this process continues when its parent ends."""
    _signal_at_end_of_parent(0)


def _signal_at_end_of_parent(number: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot change what happens to this process when its parent ends")
