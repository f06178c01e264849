"""Notice that the script ends this process by ``os._exit``, which skips everything that follows a script."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from emberkeep.spark.script.runner import OWN_THREAD_PREFIX

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def immediate_exits(leaving: Callable[[int], None]) -> Iterator[None]:
    """Within this context, call ``leaving`` with the exit code (0 to 255) before ``os._exit`` ends this process.

    Any thread of the script may leave. Emberkeep's own threads, and processes that the script forks, end as without
    this.
    """
    own, end = os.getpid(), os._exit
    leavers: set[int] = set()  # threads

    def leave(status: Any) -> None:
        thread = threading.current_thread()
        is_scripts = os.getpid() == own and not thread.name.startswith(OWN_THREAD_PREFIX)
        # It is in the set already if a signal handler of the script has interrupted ``leaving``.
        if is_scripts and threading.get_ident() not in leavers and isinstance(status, int):
            leavers.add(threading.get_ident())
            try:
                leaving(status & 0xFF)
            except BaseException as error:
                log.error("the end of the script could not be handed over", exc_info=error)
        end(status)

    os._exit = leave  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = end
