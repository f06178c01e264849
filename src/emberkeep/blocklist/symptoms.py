"""Find failures that point to the node rather than the job, from the messages of a failed process.

A message alone proves nothing: a job may fill a disk itself. The messages only decide which failures count as evidence
(see ``detection``).
"""

from __future__ import annotations

import enum


class Symptom(enum.Enum):
    """What seems to be wrong with a node, in words."""

    NO_SPACE = "no space left on device"
    IO_ERROR = "input/output error"
    READ_ONLY = "read-only file system"
    NO_MEMORY = "not enough memory for the process"
    NOT_STARTED = "processes cannot be started"


# Messages of the kernel and the C library (errno texts) and of the JVM, in lower case.
_WORDS = (
    ("no space left on device", Symptom.NO_SPACE),
    ("disk quota exceeded", Symptom.NO_SPACE),
    ("input/output error", Symptom.IO_ERROR),
    ("structure needs cleaning", Symptom.IO_ERROR),
    ("read-only file system", Symptom.READ_ONLY),
    ("insufficient memory for the java runtime", Symptom.NO_MEMORY),
    ("cannot allocate memory", Symptom.NO_MEMORY),
)


def symptom_of(text: str, *, started: bool) -> Symptom | None:
    """Return the node symptom in a process's failure message, or None if the message names none.

    ``started`` False: the process never ran, which is a symptom even without a known message.
    """
    lowered = text.lower()
    for words, symptom in _WORDS:
        if words in lowered:
            return symptom
    return None if started else Symptom.NOT_STARTED
