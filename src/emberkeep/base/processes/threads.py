"""Threads that end with their process, and the error if the process may have no more of them now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from emberkeep.base.errors import Unavailable

MORE_PROCESSES: Final = "raise the limit of processes: `ulimit -u`, TasksMax= of the service, or the container's"


def start_thread(work: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread that does ``work``. Raises Unavailable if this process may have no more threads now."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise Unavailable(f"no thread can be started: {error}", hint=MORE_PROCESSES) from error
    return thread
