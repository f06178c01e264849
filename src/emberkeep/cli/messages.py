"""What the command says beside its results: on standard error, never with a traceback unless asked for."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

DEBUG_VARIABLE = "EMBERKEEP_DEBUG"


def say(text: str) -> None:
    """A line for the user. A closed standard error (the terminal is gone) is no reason to stop."""
    with contextlib.suppress(OSError):
        print(f"emberkeep: {text}", file=sys.stderr, flush=True)


def say_error(message: str, hint: str | None) -> None:
    """What is wrong, and below it what to do."""
    say(message)
    if hint:
        with contextlib.suppress(OSError):
            print(f"  hint: {hint}", file=sys.stderr, flush=True)


def is_debugging() -> bool:
    return bool(os.environ.get(DEBUG_VARIABLE))


def show_traceback(error: BaseException) -> None:
    """The whole story, for EMBERKEEP_DEBUG=1."""
    with contextlib.suppress(OSError):
        traceback.print_exception(error, file=sys.stderr)
