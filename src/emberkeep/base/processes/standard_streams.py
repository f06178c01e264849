"""The standard streams of a process that runs a script: the script may close, remove or replace them.

A stream may be a pipe whose reader hangs, or a thread that hangs in it may hold its lock. So each wait is bounded. A
stream that hangs is removed, so that nobody waits for it again.

A signal handler may have interrupted a write of its own thread, which then holds the stream's lock: what the handler
writes is written when it has returned. So it hardly waits, and the stream stays.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

_SECONDS = 30.0  # time limit of one write or flush
_SECONDS_IN_HANDLER = 1.0  # the same, in a signal handler

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
    name = _name(stream)
    seconds = _within_limit(stream, stream.flush)
    if seconds is not None:
        say(f"emberkeep: {name} was not written within {seconds:.0f} s and may be incomplete")


def _name(stream: Any) -> str:
    if stream is sys.stdout:
        return "standard output"
    return "standard error" if stream is sys.stderr else object.__repr__(stream)


def _within_limit(stream: Any, step: Callable[[], object]) -> float | None:
    """Write to the stream by this step, on a thread of its own. Raises what it raises.

    Return None, or if the stream hangs, how many seconds this has waited.
    """
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
        in_handler = _is_in_signal_handler()
        seconds = _SECONDS_IN_HANDLER if in_handler else _SECONDS
        thread.join(seconds)
        if thread.is_alive():
            if not in_handler:
                _remove(stream)
            return seconds
    if errors:
        raise errors[0]
    return None


def _is_in_signal_handler() -> bool:
    """True if this thread runs a signal handler: a function that was given the frame that called it."""
    frame = sys._getframe() if threading.current_thread() is threading.main_thread() else None
    while frame is not None:
        if frame.f_back is not None and any(each is frame.f_back for each in _arguments(frame)):
            return True
        frame = frame.f_back
    return False


def _arguments(frame: types.FrameType) -> list[object]:
    """Return the positional arguments of a function that runs; none of a module or a class."""
    code = frame.f_code
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return []
    count, values = code.co_argcount, frame.f_locals
    found = [values.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & inspect.CO_VARARGS:
        others = values.get(code.co_varnames[count + code.co_kwonlyargcount])
        found.extend(others if isinstance(others, tuple) else ())
    return found


def _remove(stream: Any) -> None:
    """Leave this process without the stream. Python, and its logging at the end, do nothing with one that is None."""
    HUNG.append(stream)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is stream:
            setattr(sys, name, None)
