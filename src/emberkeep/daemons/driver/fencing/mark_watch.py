"""Reads the marks of attempts while no JobManager confirms this one, and ends the driver if a newer attempt has begun.

A driver that is cut off, together with its task manager, cannot be ended from outside, and must not go on beside the
attempt that replaces it. It still reaches the shared storage, where that attempt has written its mark.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.jobmaster.lease import AttemptLease
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX

log = structlog.get_logger(__name__)


class MarkWatch:
    """Reads the marks whenever the lease needs it.

    ``newest`` returns the newest attempt that has a mark, and raises EmberkeepError if that cannot be known now.
    ``superseded`` ends this process; it gets the reason.
    """

    def __init__(
        self, lease: AttemptLease, attempt: int, newest: Callable[[], int], superseded: Callable[[str], None]
    ) -> None:
        self._lease = lease
        self._attempt = attempt
        self._newest = newest
        self._superseded = superseded
        self._problem = ""  # why the last reading failed

    def start(self) -> None:
        """Start a thread that watches until this process ends."""
        threading.Thread(target=self._run, name=f"{OWN_THREAD_PREFIX}-mark-watch", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._lease.wait_until_marks_are_needed()
            if not self.read():
                time.sleep(self._lease.interval)

    def read(self) -> bool:
        """Read the marks once. Return False if that is not possible now."""
        reading = self._lease.begin_reading()
        try:
            newest = self._newest()
        except EmberkeepError as error:
            if str(error) != self._problem:
                log.warning(
                    "no JobManager confirms this attempt, and it is unknown if a newer one has begun; nothing is "
                    "committed until that is known",
                    reason=str(error),
                    hint=error.hint,
                )
            self._problem = str(error)
            return False
        if newest > self._attempt:
            self._superseded(f"attempt {newest} has begun, and no JobManager can be reached")
            return False
        if self._problem:
            log.info("no newer attempt has begun; commits continue")
        self._problem = ""
        self._lease.marks_read(reading)
        return True
