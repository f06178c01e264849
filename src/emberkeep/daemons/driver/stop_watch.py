"""Notices that the driver's processes were stopped for long, and holds its JVM until the attempt is confirmed.

What streaming queries commit asks the lease itself (``spark.queries.checkpoint_guard``). For all else the JVM does,
such as the commit of a batch write, it is stopped again, within milliseconds of its going on, until a JobManager has
confirmed that nobody has taken this attempt's place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

import structlog

from emberkeep.jobmaster.lease import AttemptLease
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX

log = structlog.get_logger(__name__)


class StopWatch:
    """``jvm``: its pid, None while there is none. ``ask``: lets the JobManager be asked at once; called in doubt."""

    def __init__(self, lease: AttemptLease, jvm: Callable[[], int | None], ask: Callable[[], None]) -> None:
        self._lease = lease
        self._jvm = jvm
        self._ask = ask

    def start(self) -> None:
        """Look until the process ends."""
        threading.Thread(target=self._run, name=f"{OWN_THREAD_PREFIX}-stop-watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(self._lease.interval)
            if self._lease.look():
                self._hold()

    def _hold(self) -> None:
        pid = self._jvm()
        _signal(pid, signal.SIGSTOP)
        log.warning("this process was stopped for long; nothing is committed before the attempt is confirmed")
        self._ask()
        self._lease.wait()
        _signal(pid, signal.SIGCONT)
        log.info("the attempt is confirmed; going on")


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
