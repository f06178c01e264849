"""What the command prints: results on standard output, messages on standard error.

Names, errors and exceptions come from jobs and servers, and may contain anything. Everything that is printed here is
inert: it cannot move the cursor, retitle the terminal or reverse the order of letters. A traceback is printed only with
EMBERKEEP_DEBUG=1.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

from emberkeep.base.inert_text import inert

DEBUG_VARIABLE = "EMBERKEEP_DEBUG"


def print_line(text: str) -> None:
    """Print a line of the command's result on standard output."""
    print(inert(text))


def say(text: str) -> None:
    """Print a line for the user. Ignore write errors: the command continues when its terminal has closed."""
    with contextlib.suppress(OSError):
        print(f"emberkeep: {inert(text)}", file=sys.stderr, flush=True)


def say_error(message: str, hint: str | None) -> None:
    """Print what is wrong and, on the next line, what to do about it."""
    say(message)
    if hint:
        with contextlib.suppress(OSError):
            print(f"  hint: {inert(hint)}", file=sys.stderr, flush=True)


def is_debugging() -> bool:
    return bool(os.environ.get(DEBUG_VARIABLE))


def show_traceback(error: BaseException) -> None:
    """Print the traceback of ``error``, for EMBERKEEP_DEBUG=1."""
    with contextlib.suppress(OSError):
        traceback.print_exception(error, file=sys.stderr)
