"""Translate file system errors: a file is absent, data is unavailable for now, or data cannot be stored.

One rule holds for all data on which a decision depends: data that cannot be read now is unavailable. It must never be
taken for missing or damaged.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from emberkeep.base.errors import Absent, Fatal, Unavailable

# The cause is the disk or the request, not the connection: waiting alone does not help.
CANNOT_STORE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG})

# The cause is neither the path nor its disk: this process or this machine has used up something, and may get it back.
_SHORTAGES = {
    errno.EMFILE: "raise this process's limit of open files: `ulimit -n`, or LimitNOFILE= of its service",
    errno.ENFILE: "raise the machine's limit of open files, fs.file-max",
    errno.ENOMEM: "free memory, or give this process or its container more",
}


# A disk has found that it cannot return what is stored in one place: a bad sector, or a checksum that does not match.
_BAD_PLACES = frozenset({errno.EIO, errno.EUCLEAN, errno.EBADMSG})


def is_bad_place(error: BaseException | None) -> bool:
    """True if the cause of ``error`` may be a damaged place on a disk. It may also be a server that is away."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error is not None and error.errno in _BAD_PLACES


def shortage(error: BaseException | None) -> str | None:
    """Return what to do if ``error`` comes from a shortage in this process or on this machine, which may pass."""
    return _SHORTAGES.get(error.errno or 0) if isinstance(error, OSError) else None


def cannot_read(path: Path, error: OSError) -> Absent | Unavailable:
    """Translate an error of reading ``path``.

    Returns Absent only if ``path`` itself is missing in a directory that can be read. A missing directory may be a
    mount that is absent, so it is Unavailable, as is every other error.
    """
    if error.errno == errno.ENOENT and is_directory(path.parent):
        return Absent(f"{path} does not exist")
    return Unavailable(
        f"{path} cannot be read now: {error.strerror or error}",
        hint=shortage(error) or "check that its file system is mounted and that this user may read it",
    )


def read_if_there(path: Path) -> bytes | None:
    """Return the bytes of a file; None only if it certainly does not exist. Raises Unavailable."""
    try:
        return path.read_bytes()
    except OSError as error:
        problem = cannot_read(path, error)
        if isinstance(problem, Absent):
            return None
        raise problem from error


def names_if_there(directory: Path) -> list[str]:
    """Return the names in a directory, sorted; none if it does not exist. Raises Unavailable.

    A missing directory may be a mount that is absent: callers check that by other means.
    """
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - names are all that is needed
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot_read(directory, error) from error


def cannot_write(path: Path, error: OSError) -> Fatal | Unavailable:
    """Translate an error of writing ``path``: Fatal if space or the name is the cause, else Unavailable."""
    if error.errno in CANNOT_STORE:
        return Fatal(
            f"{path} cannot be written: {error.strerror or error}",
            hint="check free space and quota there, and the length of the name",
        )
    return Unavailable(
        f"{path} cannot be written now: {error.strerror or error}",
        hint=shortage(error) or "check that its file system is mounted and that this user may write to it",
    )


def disk_fails(path: Path, error: OSError) -> Fatal | Unavailable:
    """Translate an error of reading a file of this process's own, which nobody else can bring back.

    Unavailable if the cause is a shortage, which may pass.
    """
    problem = f"cannot read {path}: {error.strerror or error}"
    if hint := shortage(error):
        return Unavailable(problem, hint=hint)
    return Fatal(problem, hint="check that disk")


def is_directory(path: Path) -> bool:
    """True if ``path`` is known to be a directory; False if not, or if it cannot be examined now."""
    try:
        return path.is_dir()
    except OSError:
        return False


def file_problem(error: BaseException) -> tuple[str, str] | None:
    """Return message and hint for an error about a file that nobody has translated; None if it is about no file.

    For the edge of a process: settings and options name many files, and a check that one exists may fail, too.
    """
    if not isinstance(error, OSError) or not isinstance(error.filename, str | bytes | os.PathLike):
        return None
    reason = error.strerror or type(error).__name__
    hint = "check that this path is the one that you mean, and that this user may use it and the directories above it"
    return f"cannot use {os.fsdecode(error.filename)}: {reason}", shortage(error) or hint
