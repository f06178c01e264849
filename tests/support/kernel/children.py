"""Children of this process that a supervisor started and gave up, because a test lets another one go on."""

from __future__ import annotations

import contextlib
import os

from emberkeep.base.processes.process_identity import read_stat
from emberkeep.base.processes.waited_for import WAITED_FOR


def reap(*pids: int) -> None:
    """Reap children that have been ended, so that nobody takes a later process with such a pid for one of them."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        WAITED_FOR.discard(pid)


def forgotten() -> list[int]:
    """Forget and return the pids that are waited for although no child of this process has them."""
    stats = {pid: read_stat(pid) for pid in WAITED_FOR}
    gone = [pid for pid, stat in stats.items() if stat is None or stat.parent != os.getpid()]
    WAITED_FOR.difference_update(gone)
    return gone
