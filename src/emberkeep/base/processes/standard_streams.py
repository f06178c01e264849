"""The standard streams of a process that runs a script: the script may close, remove or replace them.

A stream may be a pipe whose reader hangs, or a thread that hangs in it may hold its lock. So each wait is bounded. A
stream that hangs is removed, so that nobody waits for it again.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

_SECONDS = 30.0  # time limit of one write or flush

HUNG: list[Any] = []
"""Streams that were removed because they hang."""


def say(text: str) -> None:
    """Write a line to stderr, as far as that is possible: a message must not fail what it is about."""
    stream = sys.stderr

    def write() -> None:
        stream.write(f"{text}\n")
        stream.flush()

    with contextlib.suppress(Exception):  # the stream may be any object of the script's, and its disk may be full
        _within_limit(stream, write)


def flush(stream: Any) -> None:
    """Flush a stream as Python does at its end: not one that is closed or removed. Raises what the stream raises.

    If it hangs, say so and return.
    """
    if stream is None or getattr(stream, "closed", False):
        return
    if not _within_limit(stream, stream.flush):
        say(f"emberkeep: {object.__repr__(stream)} was not written within {_SECONDS:.0f} s and may be incomplete")


def _within_limit(stream: Any, step: Callable[[], object]) -> bool:
    """Write to the stream by this step, on a thread of its own. Return False if it hangs. Raises what it raises."""
    errors: list[BaseException] = []

    def take() -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            errors.append(error)

    # Daemon: this process can end although the thread hangs.
    thread = threading.Thread(target=take, name="emberkeep-output", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # this process may have no further thread
        take()
    else:
        thread.join(_SECONDS)
        if thread.is_alive():
            _remove(stream)
            return False
    if errors:
        raise errors[0]
    return True


def _remove(stream: Any) -> None:
    """Leave this process without the stream. Python, and its logging at the end, do nothing with one that is None."""
    HUNG.append(stream)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is stream:
            setattr(sys, name, None)
