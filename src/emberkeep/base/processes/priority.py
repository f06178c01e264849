"""Run a process at idle priority until it is needed, and its compiler threads for a while longer.

Where the kernel shares processors among sessions first, a process's own priority counts only within its session. So a
process that leads a session has the session's priority changed, too. Linux lets only privileged processes raise their
priority again. Without that privilege, nothing is lowered that would have to be raised later.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable
from pathlib import Path

_CAP_SYS_NICE = 23
_LOWEST_NICE = 19
_COMPILER = "C2 Comp"  # the beginning of the names of the threads that compile often used code again
_NORMAL_NICE = 20  # the limit of resource RLIMIT_NICE that allows a nice value of 0


def can_be_raised() -> bool:
    """True if this process may give processes of its user the normal priority again."""
    if resource.getrlimit(resource.RLIMIT_NICE)[0] >= _NORMAL_NICE:
        return True
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return False
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(line.split()[1], 16) >> _CAP_SYS_NICE & 1)


def lower(pid: int) -> None:
    """Run a process, and what it starts from now on, only while the machine has nothing else to do."""
    _change(pid, os.SCHED_IDLE)
    set_session_nice(pid, _LOWEST_NICE)


def raise_to_normal(pids: Iterable[int], *, compilers: bool = True) -> None:
    """Give all threads of these processes the normal priority, or all except those that optimize the code of JVMs.

    While a job starts, these threads would take half of the processor time, for code that runs well enough without.
    """
    spared = "" if compilers else _COMPILER
    for pid in pids:
        set_session_nice(pid, 0)
        # A thread that an idle thread starts in the meantime is idle as well, so look until no idle thread is left.
        while _change(pid, os.SCHED_OTHER, spared):
            pass


def set_session_nice(pid: int, nice: int) -> None:
    """Set the priority of the session that a process leads; leave a session with another leader as it is."""
    with contextlib.suppress(OSError):  # a kernel without such priorities
        if os.getsid(pid) == pid:
            Path(f"/proc/{pid}/autogroup").write_text(str(nice), encoding="ascii")


def _change(pid: int, policy: int, spared: str = "") -> int:
    """Set the policy of a process's threads; return how many of them changed.

    ``spared``: the beginning of the names of threads that keep theirs; "" spares none. A thread that this process may
    not change keeps its policy, too: where all of Emberkeep runs at idle priority, so do the processes of jobs.
    """
    changed = 0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            number = int(thread.name)
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if os.sched_getscheduler(number) != policy and not (spared and _name(thread).startswith(spared)):
                    os.sched_setscheduler(number, policy, os.sched_param(0))
                    changed += 1
    return changed


def _name(thread: Path) -> str:
    return (thread / "comm").read_text(errors="replace")
