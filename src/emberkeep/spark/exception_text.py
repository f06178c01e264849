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
    found, cause = first, ""
    is_traceback = inside = of_python = first.endswith(_TRACEBACK)  # of_python: the lines are those of its exception
    for line in rest:
        if line.endswith(_TRACEBACK):
            inside = of_python = of_python or line.startswith(_CAUSED)
        elif line.startswith(_CAUSED):
            cause, of_python = line.removeprefix(_CAUSED).strip(), is_traceback
        elif inside and line and not line[0].isspace():
            inside = False
            found, cause = (line, "") if is_traceback else (first, line.strip())
    found = found.strip()
    return f"{found}; caused by {cause}" if cause and cause not in found else found
