"""Which failures speak against the node rather than against the job: read off what a process said when it failed.

Words alone prove nothing: a job may fill a disk itself. They only decide what counts as evidence (see ``detection``).
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


# What the kernel and the C library say (errno's texts), and the JVM, in lower case.
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
    """What the failure of a process says of its node; None: nothing. ``started`` False: it never ran."""
    lowered = text.lower()
    for words, symptom in _WORDS:
        if words in lowered:
            return symptom
    return None if started else Symptom.NOT_STARTED
