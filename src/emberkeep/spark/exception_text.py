"""Shorten an exception's message to one line. Pure."""

from __future__ import annotations

_TRACEBACK = "Traceback (most recent call last):"
_CAUSED = "Caused by: "  # begins each cause in a stack trace of Java


def in_one_line(message: str) -> str:
    """Return the first line of an exception's message, and the innermost cause if a stack trace of Java follows.

    If that line only announces the traceback of a Python function that Spark called, return the line with the exception
    that the function raised instead of it.
    """
    first, *rest = message.strip().split("\n")
    found, inside, cause = first, first.endswith(_TRACEBACK), ""
    is_traceback = inside
    for line in rest:
        if line.startswith(_CAUSED) and not line.endswith(_TRACEBACK):
            cause = line.removeprefix(_CAUSED).strip()
        elif is_traceback and line.endswith(_TRACEBACK):
            inside = True
        elif inside and line and not line[0].isspace():
            found, inside, cause = line, False, ""
    found = found.strip()
    return f"{found}; caused by {cause}" if cause and cause not in found else found
