"""Find failures that point to the node rather than the job, from the messages of a failed process.

A message alone proves nothing. The messages only decide which failures count as evidence (see ``detection``). A lack of
disk space or memory does not: a job may have caused it, its own or that of others.
"""

from __future__ import annotations

import enum


class Symptom(enum.Enum):
    """What seems to be wrong with a node, in words."""

    IO_ERROR = "input/output error"
    READ_ONLY = "read-only file system"
    NOT_STARTED = "processes cannot be started"


# Messages of the kernel and the C library (errno texts) and of the JVM, in lower case.
_WORDS = (
    ("input/output error", Symptom.IO_ERROR),
    ("structure needs cleaning", Symptom.IO_ERROR),
    ("read-only file system", Symptom.READ_ONLY),
)
_LACKING = (
    "no space left on device",
    "disk quota exceeded",
    "insufficient memory for the java runtime",
    "cannot allocate memory",
)


def symptom_of(text: str, *, started: bool) -> Symptom | None:
    """Return the node symptom in a process's failure message, or None if the message names none.

    ``started`` False: the process never ran, which is a symptom even without a known message.
    """
    lowered = text.lower()
    if any(words in lowered for words in _LACKING):
        return None
    for words, symptom in _WORDS:
        if words in lowered:
            return symptom
    return None if started else Symptom.NOT_STARTED
