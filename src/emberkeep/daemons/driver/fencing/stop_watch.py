"""Holds the JVM while the attempt's lease is in doubt: the driver was stopped for too long, or knows nothing recent.

Commits of streaming queries check the lease themselves (``spark.queries.checkpoint_guard``). Everything else in the
JVM, such as the commit of a batch write, does not. So within milliseconds of resuming from a stop (SIGSTOP, suspend),
the JVM is stopped again until a JobManager has confirmed that no other attempt has taken over. The same happens if
neither a JobManager nor the marks of attempts have shown for long that this attempt is the current one.
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
        """Start a thread that watches the lease until this process ends."""
        threading.Thread(target=self._run, name=f"{OWN_THREAD_PREFIX}-stop-watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(self._lease.interval)
            if self._lease.look():
                self.hold()

    def hold(self) -> None:
        """Stop the JVM until the lease is not in doubt."""
        pid = self._jvm()
        _signal(pid, signal.SIGSTOP)
        was_stopped = self._lease.was_stopped()
        if was_stopped:
            log.warning(
                "this process was stopped for long; it commits nothing until the JobManager confirms the attempt"
            )
        else:
            log.warning(
                "neither a JobManager nor the storage shows that this attempt is the current one; the JVM is stopped "
                "until one of them does"
            )
        self._ask()
        self._lease.wait_for_certainty()
        _signal(pid, signal.SIGCONT)
        if was_stopped:
            log.info("the JobManager has confirmed the attempt; commits continue")
        else:
            log.info("this attempt is the current one; the JVM continues")


def _signal(pid: int | None, number: signal.Signals) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
