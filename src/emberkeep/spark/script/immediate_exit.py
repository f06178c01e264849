"""Notice that the script ends this process by ``os._exit``, which skips everything that follows a script."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import structlog

from emberkeep.base.processes.standard_streams import flush
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
            # The stream may be any object of the script's, and its disk may be full.
            with contextlib.suppress(Exception):
                _end_error_output()
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


def _end_error_output() -> None:
    """Drop what is written to standard error from now on.

    Without this module nothing would be: the process would have ended. Now other threads run on while the outcome is
    handed over, and their calls fail because Spark ends.
    """
    flush(sys.stderr)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
