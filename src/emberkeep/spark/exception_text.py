"""What an exception says in one line. Pure."""

from __future__ import annotations

_TRACEBACK = "Traceback (most recent call last):"


def in_one_line(message: str) -> str:
    """The first line of an exception's message. Where that only announces a traceback, of a function that was given to
    Spark: what the function has raised."""
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
