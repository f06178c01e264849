"""Makes old rows visible while no batch arrives."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

# The standard logger, because modules that scripts import may run without Emberkeep. The script decides where lines go.
_log = logging.getLogger(__name__)
_LONGEST_WAIT_SECONDS = 5.0
_PAUSE_AFTER_FAILURE_SECONDS = 30.0


class AgeWatch:
    """A daemon thread that calls ``show`` once ``due_ms`` (Unix milliseconds, None: never) has passed."""

    def __init__(self, due_ms: Callable[[], int | None], show: Callable[[], None], alive: Callable[[], bool]) -> None:
        """``alive``: returns True while Spark is up; the thread ends once it returns False."""
        self._due_ms = due_ms
        self._show = show
        self._alive = alive
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emberkeep-sink-age", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; return at once. A running ``show`` completes."""
        self._ended.set()

    def _run(self) -> None:
        pause = 0.0
        while not self._ended.wait(max(pause, self._wait_seconds())) and self._alive():
            pause = 0.0
            due = self._due_ms()
            if due is None or time.time() * 1000 < due:
                continue
            try:
                self._show()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next batch does the same and raises it
                if self._alive() and not self._ended.is_set():
                    _log.warning(
                        "cannot make rows visible that have reached their maximum age; trying again: %s", error
                    )
                pause = _PAUSE_AFTER_FAILURE_SECONDS

    def _wait_seconds(self) -> float:
        due = self._due_ms()
        if due is None:
            return _LONGEST_WAIT_SECONDS
        return min(max(due / 1000 - time.time(), 0.05), _LONGEST_WAIT_SECONDS)
