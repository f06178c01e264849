"""The standard streams of a process that runs a script: the script may close, remove or replace them."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


def say(text: str) -> None:
    """Write a line to stderr, as far as that is possible: a message must not fail what it is about."""
    with contextlib.suppress(Exception):  # the stream may be any object of the script's, and its disk may be full
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def flush(stream: Any) -> None:
    """Flush a stream as Python does at its end: not one that is closed or removed. Raises what the stream raises."""
    if stream is not None and not getattr(stream, "closed", False):
        stream.flush()
