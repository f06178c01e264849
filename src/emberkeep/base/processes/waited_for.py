"""Children of this process that one of its threads waits for, so that the supervisor of processes does not reap them.

A child that is reaped by someone else has no exit code for the thread that waits: ``subprocess`` takes it for 0.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator

WAITED_FOR: set[int] = set()
"""Pids of children that have not been reaped. Guarded by REAPING."""
REAPING = threading.Lock()
"""Held while children are started or reaped, so that no child is reaped before its pid is in WAITED_FOR."""


@contextlib.contextmanager
def waited_for(start: Callable[[], subprocess.Popen[bytes]]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a child for which the caller waits within the context. Raises what ``start`` raises."""
    with REAPING:
        process = start()
        WAITED_FOR.add(process.pid)
    try:
        yield process
    finally:
        WAITED_FOR.discard(process.pid)
