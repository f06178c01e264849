"""Shorten an exception's message to one line. Pure."""

from __future__ import annotations

_TRACEBACK = "Traceback (most recent call last):"


def in_one_line(message: str) -> str:
    """Return the first line of an exception's message.

    If that line only announces the traceback of a Python function that Spark called, return the line with the exception
    that the function raised.
    """
    first, *rest = message.strip().split("\n")
    if not first.endswith(_TRACEBACK):
        return first
    found, inside = first, True
    for line in rest:
        if line.endswith(_TRACEBACK):
            inside = True
        elif inside and line and not line[0].isspace():
            found, inside = line, False
    return found.strip()
