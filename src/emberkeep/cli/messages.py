"""What the command prints: results on standard output, messages on standard error.

Names, errors and exceptions come from jobs and servers, and may contain anything. Everything that is printed here is
inert: it cannot move the cursor, retitle the terminal or reverse the order of letters. A traceback is printed only with
EMBERKEEP_DEBUG=1.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import traceback
from typing import BinaryIO, TextIO, cast

from emberkeep.base.inert_text import inert

DEBUG_VARIABLE = "EMBERKEEP_DEBUG"


_WAIT = 1.0  # seconds for which to wait for a full pipe, before looking again


def prepare_streams() -> None:
    """Let closed standard streams lead nowhere, and escape characters that standard output cannot encode.

    Of a closed stream, Python has no object: messages would then be printed among the results.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # each gets the lowest free descriptor
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - until the end
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def write_bytes(stream: TextIO, data: bytes) -> None:
    """Write bytes to a standard stream. Raises OSError.

    Another process can have made a pipe or terminal that it shares with this one non-blocking: wait while it is full.
    """
    stream.flush()
    output = cast("BinaryIO", getattr(stream.buffer, "raw", stream.buffer))
    left = memoryview(data)
    while left:
        written: int | None = None
        with contextlib.suppress(BlockingIOError):
            written = output.write(left)
        if written is None:
            select.select([], [output], [], _WAIT)
        else:
            left = left[written:]


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
