"""Pre-flight check: test that a savepoint's directory is writable before anything depends on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

import structlog

from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX
from emberkeep.spark.stopping.savepoint_storage import SavepointStorage

log = structlog.get_logger(__name__)

_FILE = "_trial"


def trial_failure(place: Callable[[], SavepointStorage], seconds: float) -> EmberkeepError | None:
    """Write a file and remove it again. Return None if that works, else the reason.

    File systems may hang: a write that has not returned after ``seconds`` counts as failed, and its thread is left
    behind.
    """
    failures: list[EmberkeepError] = []

    def run() -> None:
        try:
            _write_and_remove(place())
        except EmberkeepError as error:
            failures.append(error)
        except Exception as error:
            log.exception("the pre-flight check of a savepoint's directory failed")
            failures.append(Fatal(f"{type(error).__name__}: {error}", hint="the driver's log has the traceback"))

    thread = threading.Thread(target=run, name=f"{OWN_THREAD_PREFIX}-trial", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        return RetryLater(f"it did not answer within {seconds:.0f} s", hint="check that the storage is reachable")
    return failures[0] if failures else None


def _write_and_remove(storage: SavepointStorage) -> None:
    """Write a test file and remove it; try to remove it even if the write failed. Raises EmberkeepError."""
    try:
        storage.write(_FILE, b"this file is removed at once\n")
    except EmberkeepError:
        with suppress(EmberkeepError):
            storage.remove()
        raise
    storage.remove()
