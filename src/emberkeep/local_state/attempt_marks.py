"""Marks of a job's attempts, in the job's own durable root: the empty file ``.attempts/<number>`` for each attempt.

An attempt writes its mark before it does anything that a user could see. So whoever lists the marks and finds none of a
newer attempt knows that no newer attempt has done anything before the listing began. A mark is written before older
marks are deleted: a listing always shows the newest one.
"""

from __future__ import annotations

from emberkeep.base.errors import Absent
from emberkeep.local_state.errors import Exists
from emberkeep.local_state.gateway_ports import Spool
from emberkeep.local_state.ports import DurableState

MARKS_DIRECTORY = ".attempts"


def mark_of(attempt: int) -> str:
    """Return the name of an attempt's mark."""
    return f"{MARKS_DIRECTORY}/{attempt}"


def roots_directory(attempt: int) -> str:
    """Return the directory of the roots that an attempt's driver has named, see ``named_roots``."""
    return f"{mark_of(attempt)}.roots"


def marked_attempts(own: DurableState) -> list[int]:
    """Return the attempts that have a mark. ``own``: the job's own root. Raises RetryLater, Fatal."""
    try:
        entries = own.listing(MARKS_DIRECTORY)
    except Absent:
        return []
    names = (entry.name.rpartition("/")[2] for entry in entries)
    return [int(name) for name in names if name.isdecimal()]


def write_mark(own: DurableState, attempt: int, spool: Spool) -> None:
    """Write the mark of an attempt durably, unless it exists, after the directory for the roots that its driver names.

    ``spool``: an empty file, which is discarded. Raises RetryLater, UnknownOutcome, Fatal.
    """
    try:
        own.make_directory(roots_directory(attempt))
        spool.finish()
        own.create(mark_of(attempt), spool.path, overwrite=False)
    except Exists:
        pass
    finally:
        spool.discard()


def clear_older_marks(own: DurableState, attempt: int) -> None:
    """Delete marks and named roots of attempts before this one, whose mark is durable. Raises RetryLater, Fatal."""
    for older in marked_attempts(own):
        if older < attempt:
            own.delete(roots_directory(older), recursive=True)
            own.delete(mark_of(older), recursive=False)
