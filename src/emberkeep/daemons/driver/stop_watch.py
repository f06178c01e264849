"""Detects that the driver's processes were stopped for too long (SIGSTOP, suspend), and holds the JVM until it is safe.

Commits of streaming queries check the lease themselves (``spark.queries.checkpoint_guard``). Everything else in the
JVM, such as the commit of a batch write, does not. So within milliseconds of resuming, the JVM is stopped again until a
JobManager has confirmed that no other attempt has taken over.
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
    """Stops the JVM while the attempt's lease is in doubt.

    ``jvm`` returns the JVM's pid; None while no JVM runs. ``ask`` makes the JobMaster ask the JobManager at once; it is
    called when the lease is in doubt.
    """

    def __init__(self, lease: AttemptLease, jvm: Callable[[], int | None], ask: Callable[[], None]) -> None:
        self._lease = lease
        self._jvm = jvm
        self._ask = ask

    def start(self) -> None:
        """Start a thread that watches, until this process ends, whether the process was stopped (SIGSTOP, suspend)."""
        threading.Thread(target=self._run, name=f"{OWN_THREAD_PREFIX}-stop-watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(self._lease.interval)
            if self._lease.look():
                self._hold()

    def _hold(self) -> None:
        pid = self._jvm()
        _signal(pid, signal.SIGSTOP)
        log.warning("this process was stopped for long; it commits nothing until the JobManager confirms the attempt")
        self._ask()
        self._lease.wait()
        _signal(pid, signal.SIGCONT)
        log.info("the JobManager has confirmed the attempt; commits continue")


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
