"""What a Python process answers to the one that has started it."""

from __future__ import annotations


def answer_in(printed: bytes) -> bytes:
    """Return the answer, the last line that was printed. Python's site, or its user's, may print before it."""
    return printed.rstrip().rpartition(b"\n")[2]
