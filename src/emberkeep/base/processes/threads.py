"""Threads that end with their process, and the error if the process may have no more of them now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from emberkeep.base.errors import Unavailable

MORE_PROCESSES: Final = "raise the limit of processes: `ulimit -u`, TasksMax= of the service, or the container's"


def start_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread that does ``work``. Raises Unavailable if this process may have no more threads now."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise _no_thread(error) from error
    return thread


def started_pool(count: int, name: str) -> ThreadPoolExecutor:
    """Return a pool whose threads all exist, so that no work fails later because no thread can be started.

    Raises Unavailable if this process may not have that many threads now.
    """
    pool, exist = ThreadPoolExecutor(count, name), threading.Event()
    try:
        for _ in range(count):
            pool.submit(exist.wait)  # a thread that waits takes no other work, so each gets its own
    except RuntimeError as error:
        pool.shutdown(wait=False)
        raise _no_thread(error) from error
    finally:
        exist.set()
    return pool


def _no_thread(error: RuntimeError) -> Unavailable:
    return Unavailable(f"no thread can be started: {error}", hint=MORE_PROCESSES)
