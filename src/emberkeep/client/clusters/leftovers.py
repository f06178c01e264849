"""Find and stop processes that a cluster left behind: drivers and executors outlive a killed task manager.

They are found by their environment: a task manager starts each of them with SPARK_LOCAL_DIRS below its working
directory, and their children inherit the variable.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from emberkeep.base.processes.process_identity import ProcessIdentity, identify, is_alive

_MARKER = b"SPARK_LOCAL_DIRS="
_POLL = 0.05
_KILL_SECONDS = 10.0


def processes_below(directories: Iterable[Path]) -> list[ProcessIdentity]:
    """Return the live processes that were started by task managers working in or below these directories."""
    prefixes = tuple(_MARKER + os.fsencode(directory) + b"/" for directory in directories)
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:  # another user's process, or one that has just ended
            continue
        if any(variable.startswith(prefixes) for variable in environ.split(b"\0")):
            identity = identify(int(entry.name))
            if identity is not None:
                found.append(identity)
    return sorted(found, key=lambda identity: identity.pid)


def send(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to exactly this process. False if it has ended."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor refers to one process. Checked after opening it, the pid cannot belong to another process.
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_gone(identities: Iterable[ProcessIdentity], deadline: float) -> list[ProcessIdentity]:
    """Wait until all processes have ended, or until ``deadline`` (monotonic seconds). Return the live ones. Blocks."""
    left = [identity for identity in identities if is_alive(identity)]
    while left and time.monotonic() < deadline:
        time.sleep(_POLL)
        left = [identity for identity in left if is_alive(identity)]
    return left


def kill_below(directories: Iterable[Path]) -> list[ProcessIdentity]:
    """Kill the processes that were started by task managers working in or below these directories. Blocks.

    Repeat this for new processes, for at most 10 s. Return the processes that are left.
    """
    places = list(directories)
    deadline = time.monotonic() + _KILL_SECONDS
    while True:
        left = processes_below(places)
        if not left or time.monotonic() > deadline:
            return left
        for identity in left:
            send(identity, signal.SIGKILL)
        wait_gone(left, min(deadline, time.monotonic() + 1.0))
