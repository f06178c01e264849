"""What an error of a file system says about the data: it is away for now, or it cannot be stored.

One rule for every place that reads data on which a decision rests: what cannot be read now is unavailable. It is not
gone, and it is not damaged.
"""

from __future__ import annotations

import errno
from pathlib import Path

from emberkeep.base.errors import Absent, Fatal, Unavailable

# The disk or the request is at fault, not the connection: waiting alone does not help.
CANNOT_STORE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG})


def cannot_read(path: Path, error: OSError) -> Absent | Unavailable:
    """Translate an error of reading ``path``.

    Absent only where ``path`` itself is missing in a directory that can be read; a missing directory may be a mount
    that is not there, and is Unavailable, as is every other error.
    """
    if error.errno == errno.ENOENT and is_directory(path.parent):
        return Absent(f"{path} does not exist")
    return Unavailable(
        f"{path} cannot be read now: {error.strerror or error}",
        hint="check that its file system is mounted and that this user may read it",
    )


def read_if_there(path: Path) -> bytes | None:
    """The bytes of a file; None only where it is sure that there is none. Raises Unavailable."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = cannot_read(path, error)
        if isinstance(problem, Absent):
            return None
        raise problem from error


def cannot_write(path: Path, error: OSError) -> Fatal | Unavailable:
    """Translate an error of writing ``path``: Fatal where space or a name is the cause, Unavailable otherwise."""
    if error.errno in CANNOT_STORE:
        return Fatal(f"{path} cannot be written: {error.strerror or error}", hint="free some space there")
    return Unavailable(
        f"{path} cannot be written now: {error.strerror or error}",
        hint="check that its file system is mounted and that this user may write to it",
    )


def is_directory(path: Path) -> bool:
    """Whether a directory can be seen there; False also where nobody can look now."""
    try:
        return path.is_dir()
    except OSError:
        return False
